//! Samplers and processors that we did not write.
//!
//! A [`RowSampler`] takes the place of greedy choice, filters and draw: its input is a row's
//! log-probabilities after bias, penalties and masks. One that says [`Independence::Stacked`] gets the
//! rows that share it in one call; any other gets exactly one call a row, in row order.
//!
//! Invariant: a failing or panicking call ends no row but its own. A failing call for several rows
//! is made again for each of them alone.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::normalizer::{Normalizer, RowError};
use crate::rng::DrawKey;
use crate::token::TokenId;

/// The first ordinal of third-party noise.
const FIRST_ORDINAL: u32 = 1 << 31;

/// Whether rows that share a sampler may be drawn in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Independence {
    /// One call a row, in row order: right for everything.
    #[default]
    PerRow,
    /// One call on k stacked rows equals k calls on one row each.
    Stacked,
}

/// Chooses tokens for rows.
pub trait RowSampler: Send {
    /// [`Independence::Stacked`] only if one call on k stacked rows equals k calls on one row each.
    fn independence(&self) -> Independence {
        Independence::PerRow
    }

    /// Writes the token of each row to `out`: an id below the vocabulary size that is not at `-inf`.
    ///
    /// # Errors
    /// Ends the row, or, if there are several, has each drawn alone.
    fn draw(
        &mut self,
        rows: LogprobRows<'_>,
        noise: &mut RowNoise<'_>,
        out: &mut [TokenId],
    ) -> Result<(), SampleError>;
}

/// A sampler that rows share. Rows are grouped by the object that they point to.
pub type SharedSampler = Arc<Mutex<dyn RowSampler>>;

/// Changes a row's logits after bias and penalties and before masks.
pub trait LogitsProcessor: Send {
    /// Changes `logits`, one for each real id, in place. `history` is the row's prompt and drawn
    /// tokens.
    ///
    /// # Errors
    /// Ends the row.
    fn process(&mut self, history: &[TokenId], logits: &mut [f32]) -> Result<(), SampleError>;
}

/// Why a row of [`sample_custom_rows`](crate::sample_custom_rows) has no token.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The row's logits are unusable, from the start or after a processor.
    #[error(transparent)]
    Row(#[from] RowError),
    /// A sampler or processor says that it failed.
    #[error("{0}")]
    Failed(String),
    /// A sampler or processor panicked.
    #[error("a sampler or processor panicked: {0}")]
    Panicked(String),
    /// A sampler's choice is none.
    #[error("the sampler chose {id} where the ids are below {vocab_size}; write a token for every row")]
    NoToken {
        /// What it wrote, or the end symbol if it wrote nothing.
        id: TokenId,
        /// The number of ids.
        vocab_size: usize,
    },
    /// A sampler chose a token of probability 0.
    #[error("the sampler chose id {id}, which is at -inf; choose ids of positive probability")]
    Impossible {
        /// What it wrote.
        id: TokenId,
    },
}

impl SampleError {
    /// A failure; `message` says what is wrong, in lower case without a full stop.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

/// Log-probabilities of one or more rows over the same ids, computed as they are read.
#[derive(Clone, Copy, Debug)]
pub struct LogprobRows<'a> {
    rows: &'a [LogprobRow<'a>],
}

/// Logits and what normalises them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogprobRow<'a> {
    pub(crate) logits: &'a [f32],
    pub(crate) normalizer: Normalizer,
}

impl LogprobRow<'_> {
    /// Whether `token` can be a sampler's choice.
    pub(crate) fn check(&self, token: TokenId) -> Result<TokenId, SampleError> {
        match self.logits.get(token.index()) {
            None => Err(SampleError::NoToken { id: token, vocab_size: self.logits.len() }),
            Some(&f32::NEG_INFINITY) => Err(SampleError::Impossible { id: token }),
            Some(_) => Ok(token),
        }
    }
}

impl<'a> LogprobRows<'a> {
    /// All of `rows`, which have the same number of logits.
    pub(crate) fn new(rows: &'a [LogprobRow<'a>]) -> Self {
        Self { rows }
    }

    /// The number of rows, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of ids.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.rows[0].logits.len()
    }

    /// The log-probability of `id` in row `row`, in nats; `-inf` if it is impossible.
    ///
    /// # Panics
    /// If there is no such row or id.
    #[must_use]
    pub fn logp(&self, row: usize, id: TokenId) -> f64 {
        self.rows[row].normalizer.logw(self.rows[row].logits[id.index()])
    }

    /// Writes the log-probabilities of row `row`, one an id.
    ///
    /// # Panics
    /// If there is no such row or `out` is not as long as there are ids.
    pub fn fill(&self, row: usize, out: &mut [f64]) {
        self.rows[row].normalizer.fill(self.rows[row].logits, out);
    }

    /// The logits of row `row`.
    pub(crate) fn logits(&self, row: usize) -> &'a [f32] {
        self.rows[row].logits
    }
}

/// The noise of the rows of a call. It is fixed by each row's own key, whatever rows it shares the
/// call with.
#[derive(Debug)]
pub struct RowNoise<'a> {
    rows: &'a mut [NoiseRow],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NoiseRow {
    key: DrawKey,
    used: u32,
}

impl NoiseRow {
    pub(crate) fn new(key: DrawKey) -> Self {
        Self { key, used: 0 }
    }
}

impl<'a> RowNoise<'a> {
    pub(crate) fn new(rows: &'a mut [NoiseRow]) -> Self {
        Self { rows }
    }

    /// The next key of row `row`, for one draw: ordinals 2³¹, 2³¹ + 1, … of the row's step.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn next_key(&mut self, row: usize) -> DrawKey {
        let noise = &mut self.rows[row];
        let ordinal = FIRST_ORDINAL | noise.used;
        noise.used += 1;
        DrawKey { ordinal, ..noise.key }
    }

    /// The key that the row itself has.
    pub(crate) fn row_key(&self, row: usize) -> DrawKey {
        self.rows[row].key
    }
}

impl fmt::Debug for dyn RowSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSampler").field("independence", &self.independence()).finish_non_exhaustive()
    }
}

impl fmt::Debug for dyn LogitsProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogitsProcessor")
    }
}
