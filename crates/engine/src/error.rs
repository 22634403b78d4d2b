//! What can go wrong in the engine.

use lockstep_sample::{RowError, SampleError};

use crate::model::ModelError;

/// An error of the engine or of one of its rows.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A request is unusable; nothing was changed.
    #[error("rows[{index}].{field}: {message}")]
    Request {
        /// Which of the submitted rows.
        index: usize,
        /// Its offending field.
        field: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
    /// A setting of an engine is unusable.
    #[error("{field}: {message}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
    /// A sampler or processor that the row brought along failed.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The operating system gave no seed.
    #[error("no seed from the operating system: {0}")]
    Seed(String),
    /// The row's constraint failed.
    #[error("constraint: {0}")]
    Constraint(String),
    /// The row's logits are unusable.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The model failed in the forward that held the row.
    #[error("model: {0}")]
    Model(#[from] ModelError),
    /// The party that submitted the row, or that waited for memory, was cancelled.
    #[error("the party was cancelled")]
    Cancelled,
    /// The engine has ended; nothing more can be submitted.
    #[error("the engine has stopped: {0}")]
    Stopped(String),
    /// A reservation is larger than everything the engine has.
    #[error(
        "kv memory: {needed} bytes are needed at once but the engine has {limit}: \
         use fewer rows, fewer tokens, or a larger `kv_bytes`"
    )]
    TooLarge {
        /// Bytes asked for.
        needed: usize,
        /// Bytes the engine was given.
        limit: usize,
    },
}
