//! Rows that generate by themselves: chat requests, completions, lines of a batch.
//!
//! A [`RowSpec`] says what to continue and how; [`Engine::submit`](crate::Engine::submit) hands it
//! over and answers with a [`RowStream`] of its tokens and text. A row waits in line, reads its
//! prompt in chunks, draws a token a step, and gives exactly one [`Finished`]. Whatever its settings,
//! it shares every forward and every draw pass with all other rows.
//!
//! Invariant: a row's tokens depend on its spec and on its logits, never on what shares its batch.

mod admission;
mod constraint;
mod continuation;
mod departure;
mod prompt_cache;
mod row;
mod rows;
mod slot;
mod spec;
mod stops;
mod stream;
mod work;

pub use constraint::Constraint;
pub use continuation::Continuation;
pub use spec::RowSpec;
pub use stream::{FinishReason, Finished, Generated, RowEvent, RowId, RowStream, RowToken, StoppedBy, Usage};

pub(crate) use continuation::LooseSequence;
pub(crate) use prompt_cache::PromptCache;
pub(crate) use row::{Held, Row};
pub(crate) use rows::{Feed, Got, Group, Purpose, Rows};
pub(crate) use slot::Slot;
pub(crate) use spec::{check, worst_case};
pub(crate) use work::Worked;
