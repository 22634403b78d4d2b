//! From logit rows to tokens: the draw pass.
//!
//! A row's weights are those of its [`Normalizer`](crate::Normalizer), with the end-of-sequence set
//! folded into its lowest id and what the mask forbids at `-inf`. The token is that of writing them
//! out and calling [`draw`](fn@crate::draw) on them. The mass that a mask allows is summed before
//! anything is normalised, so it is nearer the truth than the total of the rounded weights; without a
//! mask it is exactly 1.

use super::{DrawMethod, logits};
use crate::bitset::Bitset;
use crate::eos::EosSet;
use crate::normalizer::RowError;
use crate::rng::{DrawKey, ProblemKey};
use crate::share;
use crate::token::TokenId;

/// One row of the draw pass.
#[derive(Clone, Copy, Debug)]
pub struct RowDraw<'a> {
    /// The logits of the real ids, finite or `-inf`.
    pub logits: &'a [f32],
    /// Finite, above 0.
    pub temperature: f64,
    /// The ids that end a sequence. They are drawn as one symbol, at the lowest of them.
    pub eos: &'a EosSet,
    /// The allowed ids; those beyond the logits weigh nothing, and `None` allows all. The end is allowed iff the
    /// lowest id of `eos` is in; the bits of the others are ignored.
    pub mask: Option<&'a Bitset>,
    /// How to draw.
    pub method: DrawMethod,
    /// The key of the draw.
    pub key: DrawKey,
}

/// The outcome of a row's draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// A model id, or [`TokenId::EOS`] for the end.
    pub token: TokenId,
    /// The log of the model's mass that the mask allows, in nats: `LSE(masked l/T) − LSE(l/T)`. Without
    /// a mask that is everything: exactly 0.
    pub log_mass: f64,
    /// The log-probability of the token under the distribution drawn from, in nats: its weight less
    /// `log_mass`.
    pub logp: f64,
}

/// Draws one row.
///
/// # Errors
/// As [`Normalizer::of`](crate::Normalizer::of), and [`RowError::EmptySupport`] if the mask leaves
/// nothing live.
pub fn draw_row(row: &RowDraw<'_>) -> Result<Drawn, RowError> {
    logits::draw(row)
}

/// The log of the mass that `mask` allows of a row, in nats: [`Drawn::log_mass`] of its draws, without
/// one; `-inf` if that is nothing. The arguments are those of [`RowDraw`].
///
/// # Errors
/// As [`Normalizer::of`](crate::Normalizer::of).
pub fn log_mass(logits: &[f32], temperature: f64, eos: &EosSet, mask: &Bitset) -> Result<f64, RowError> {
    let key = DrawKey::new(ProblemKey::new(0, 0), 0, 0, 0);
    let (mask, method) = (Some(mask), DrawMethod::default());
    logits::log_mass(&RowDraw { logits, temperature, eos, mask, method, key })
}

/// Draws many rows, in parallel, each as [`draw_row`] would, bit for bit.
#[must_use]
pub fn draw_rows(rows: &[RowDraw<'_>]) -> Vec<Result<Drawn, RowError>> {
    share::map(rows, |row| row.logits.len(), draw_row)
}
