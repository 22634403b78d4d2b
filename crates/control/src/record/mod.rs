//! The record of a run: what every particle did in every step.
//!
//! A [`Record`] takes the steps as they come: [`JsonRecord`] (a JSON list that viewers read),
//! [`JsonLinesRecord`] (an object a line) and [`MemoryRecord`] are there. [`Recording`] reads them
//! back. A run gets one by [`SmcRun::with_record`](crate::SmcRun::with_record); recording changes no
//! result.
//!
//! ```text
//! [{"step":1,"mode":"init","particles":[
//!    {"contents_incr":"He","logweight":"-1.25","weight_incr":"-1.25"}, …]},
//!  {"step":2,"mode":"smc_step","particles":[…]},
//!  {"step":3,"mode":"resample","ancestors":[0,0],"particles":[…]}]
//! ```
//!
//! `resample` has the ancestors of a resampling and the state after the step that followed it. A
//! particle's context is its parent's, `|`, its increment, where the parent is `ancestors[i]` in
//! `resample` and i otherwise; `weight_incr` is its log-weight minus its parent's recorded one.
//!
//! Tokens are written so that splitting at `|` and unescaping gives their bytes exactly: printable
//! ASCII as it is, a space as `␣`, `\n`, `\r`, `\t`, `\\`, all other bytes as `\xNN`, and so are
//! what could be misread: `|`, a `<` before `<<`, a `>` before `>>`, the first letter of a token
//! whose whole text is `EOS`. The end is `EOS`, a token without bytes is `\e`.

mod escape;
mod reader;
mod step;
mod writers;

pub use escape::{EscapeError, RecordedToken, escape, unescape};
pub use reader::{Recording, RecordingError};
pub use step::{Contents, Mode, ParticleRecord, StepRecord};
pub use writers::{JsonLinesRecord, JsonRecord, MemoryRecord};

use std::io;

/// Where a run's steps go.
pub trait Record: Send {
    /// Takes the next step. What was taken stays valid, whatever becomes of the run.
    ///
    /// # Errors
    /// If the step cannot be kept. It ends the run.
    fn write(&mut self, step: &StepRecord) -> io::Result<()>;
}
