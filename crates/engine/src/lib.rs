//! The model seam, vocabularies, tokenizers, and the scheduler that turns rows into one batch.
//!
//! Read [`model`] for what a model must do, [`Engine`] for how rows reach it, [`generation`] for rows that
//! generate by themselves, [`row`] for what a row that is stepped from outside may ask, [`vocab`] for tokens and [`text`] for how text becomes tokens.

pub mod generation;
pub mod model;
pub mod party;
pub mod row;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod text;
pub mod vocab;

mod config;
mod draw_pass;
mod engine;
mod error;
mod kv;
mod scheduler;
mod stats;
mod sync;
mod ticket;

pub use config::{EngineConfig, RowLimits, StragglerWait};
pub use engine::{Engine, Party, Sequence};
pub use error::EngineError;
pub use generation::{FinishReason, Generated, RowEvent, RowSpec, RowStream};
pub use kv::{PendingReservation, Reservation};
pub use lockstep_sample::TokenId;
pub use stats::Stats;
pub use ticket::Ticket;
