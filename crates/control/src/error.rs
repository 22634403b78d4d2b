//! Errors of potentials, samplers and runs.

use lockstep_engine::EngineError;
use lockstep_sample::RowError;

use crate::weights::InfiniteWeight;

/// What kind of error a [`ControlError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is outside its range or does not fit the others.
    Argument,
    /// Two vocabularies that must agree do not.
    Vocabulary,
    /// A potential broke its contract.
    Contract,
    /// One row's logits or constraint are unusable; its particle dies, the run goes on.
    Row,
    /// The engine or its model failed.
    Engine,
    /// A potential written elsewhere failed.
    Custom,
    /// The run was cancelled.
    Cancelled,
    /// A merged call was given up by the run that made it for everybody.
    BatchAbandoned,
    /// The run's record could not be written.
    Record,
}

/// An error of a potential, a sampler or a run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    kind: ErrorKind,
    message: String,
}

impl ControlError {
    /// An error of `kind`; `message` is lower case, without a full stop, and says what to do.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, message)
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether only the row it happened to is lost: its particle dies and the run goes on.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        self.kind == ErrorKind::Row
    }
}

/// What a run that was cancelled ends with.
pub(crate) fn cancelled() -> ControlError {
    ControlError::new(ErrorKind::Cancelled, "the run was cancelled")
}

impl From<EngineError> for ControlError {
    fn from(error: EngineError) -> Self {
        let kind = match error {
            EngineError::Row(RowError::NonFinite { .. }) => ErrorKind::Row,
            EngineError::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Engine,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<InfiniteWeight> for ControlError {
    fn from(error: InfiniteWeight) -> Self {
        Self::new(ErrorKind::Contract, error.to_string())
    }
}
