//! Sequential Monte Carlo: weighted particles that advance in lockstep.
//!
//! A run targets `target.complete · critic.complete`, restricted to sequences of at most
//! `max_tokens` tokens, the end included. `log_ml = LSE(w) - ln N` estimates the target's total
//! mass without bias in the linear domain, for every N, threshold and scheme (Del Moral, 2004).
//!
//! A run is an iterator of its steps. It can be recorded and cancelled, and a path that it drew can
//! be retained in a conditional run:
//!
//! ```
//! use lockstep_control::testkit::WeightedSet;
//! use lockstep_control::{Direct, MemoryRecord, Smc, SmcOptions};
//! use std::sync::Arc;
//!
//! let target = WeightedSet::new("01", &[("0", 3.0), ("00", 2.0), ("1", 1.0)]).potential();
//! let critic = WeightedSet::new("01", &[("0", 1.0), ("00", 2.0), ("1", 3.0)]).potential();
//! let smc = Smc::new(Arc::new(Direct::new(target)), Some(critic))?;
//! let options = SmcOptions { n_particles: 100, seed: Some(1), ..SmcOptions::default() };
//!
//! let record = MemoryRecord::default();
//! let mut run = smc.start(&options)?.with_record(record.clone());
//! for step in &mut run {
//!     println!("ESS {:.1}", step?.ess);
//! }
//! let sequences = run.sequences();
//! assert!((sequences.log_ml() - 10_f64.ln()).abs() < 0.5);
//! assert_eq!(record.steps()[0].particles.len(), 100);
//!
//! let pick = sequences.sample(1, &sequences.pick_key().expect("a run made them"))[0];
//! let conditional = smc.conditional(&sequences.retained(pick)?, &options)?.finish()?;
//! assert_eq!(conditional.contexts()[0], sequences.contexts()[pick]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod conditional;
mod options;
mod population;
mod recorder;
mod run;

use conditional::Path;
pub use options::{SmcOptions, TerminateWhen, draw_method, set_draw_method};
pub use run::{SmcRun, Step};

use std::sync::Arc;

use crate::chooser::{Chooser, Keyed};
use crate::error::{ControlError, ErrorKind};
use crate::potential::Potential;
use crate::retained::Retained;
use crate::sampler::TokenSampler;
use crate::sequences::Sequences;

/// A sampler and, if there is one, a critic: what a run needs besides its options.
#[derive(Clone)]
pub struct Smc {
    sampler: Arc<dyn TokenSampler>,
    critic: Option<Arc<dyn Potential>>,
}

impl Smc {
    /// Runs of `sampler`, reweighted by `critic`.
    ///
    /// # Errors
    /// If the critic reads other tokens than the sampler draws.
    pub fn new(
        sampler: Arc<dyn TokenSampler>,
        critic: Option<Arc<dyn Potential>>,
    ) -> Result<Self, ControlError> {
        if let Some(critic) = &critic
            && !critic.vocab().same_tokens(sampler.vocab())
        {
            return Err(ControlError::new(
                ErrorKind::Vocabulary,
                "the critic reads other tokens than the sampler draws: coerce it to the sampler's vocabulary",
            ));
        }
        Ok(Self { sampler, critic })
    }

    /// Starts a run: an iterator of its steps.
    ///
    /// # Errors
    /// Naming the option that is out of range; if memory for the run can never be had; if the
    /// start weight is `-inf`; if the run was cancelled while it waited for memory.
    pub fn start(&self, options: &SmcOptions) -> Result<SmcRun, ControlError> {
        self.start_with(options, Box::new(Keyed { method: options.draw_method }))
    }

    /// Starts a run that takes its random choices from `chooser`.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with(
        &self,
        options: &SmcOptions,
        chooser: Box<dyn Chooser>,
    ) -> Result<SmcRun, ControlError> {
        options.check()?;
        SmcRun::start(&*self.sampler, self.critic.as_deref(), None, options, chooser)
    }

    /// Starts a conditional run: slot 0 holds the path `retained`, which keeps its slot in
    /// resamplings; the others draw their ancestors from all slots, by `multinomial`.
    ///
    /// With a path drawn exactly from the target (`terminate_when`, critic and `max_tokens`
    /// included), `E[1/Ẑ] = p/Z`, where p is the probability that a plain run does not die as a
    /// whole, most often 1: then `log_ml` is an upper bound of `ln Z` in expectation, where that of
    /// a plain run is a lower one.
    ///
    /// # Errors
    /// As for [`Self::start`]; if another resampling is asked for; if the path has no end, holds
    /// other tokens, is longer than `max_tokens`, or should have ended before by `terminate_when`;
    /// if the sampler's weights are random given the token and the path does not carry those it was
    /// drawn with. A path that turns out to have no mass ends the run with an error.
    pub fn conditional(&self, retained: &Retained, options: &SmcOptions) -> Result<SmcRun, ControlError> {
        self.conditional_with(retained, options, Box::new(Keyed { method: options.draw_method }))
    }

    /// Starts a conditional run that takes its random choices from `chooser`.
    ///
    /// # Errors
    /// As for [`Self::conditional`].
    pub fn conditional_with(
        &self,
        retained: &Retained,
        options: &SmcOptions,
        chooser: Box<dyn Chooser>,
    ) -> Result<SmcRun, ControlError> {
        options.check()?;
        let path = Path::new(retained, options, &*self.sampler)?;
        SmcRun::start(&*self.sampler, self.critic.as_deref(), Some(path), options, chooser)
    }

    /// Runs to the end: [`Self::start`] and [`SmcRun::finish`].
    ///
    /// # Errors
    /// As for [`Self::start`], and whatever ends a run early.
    pub fn run(&self, options: &SmcOptions) -> Result<Sequences, ControlError> {
        self.start(options)?.finish()
    }
}

impl std::fmt::Debug for Smc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Smc").field("critic", &self.critic.is_some()).finish_non_exhaustive()
    }
}
