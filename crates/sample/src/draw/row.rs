//! From logit rows to tokens: the draw pass.
//!
//! A row's weights are those of its [`Normalizer`], with the end-of-sequence set folded into its
//! lowest id and what the mask forbids at `-inf`. They are computed block by block on the way, or,
//! if the mask leaves few ids, for those alone; either way the result has the bits of writing the
//! whole row out and calling [`draw`](fn@crate::draw) on it, where a row without a mask has a
//! log-total of exactly 0.

use super::masked::{self, Row};
use super::{DrawMethod, Weights, draw_source, whole};
use crate::bitset::Bitset;
use crate::eos::EosSet;
use crate::normalizer::{Normalizer, RowError};
use crate::rng::DrawKey;
use crate::share;
use crate::token::TokenId;

/// A mask with fewer live ids than one in this many is drawn from as a list.
const LIST_BELOW: usize = 4;

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
    /// The log of the model's mass that the mask allows, in nats: the log-total of the row's
    /// weights under the mask. Without a mask that is everything: exactly 0.
    pub log_mass: f64,
    /// The log-probability of the token under the distribution drawn from, in nats: its weight less
    /// `log_mass`.
    pub logp: f64,
}

/// Draws one row.
///
/// # Errors
/// As [`Normalizer::of`], and [`RowError::EmptySupport`] if the mask leaves nothing live.
pub fn draw_row(row: &RowDraw<'_>) -> Result<Drawn, RowError> {
    match row.mask {
        Some(mask) => draw_masked(row, mask),
        None => match whole::draw(row)? {
            Some(drawn) => Ok(drawn),
            None => draw_written(row),
        },
    }
}

/// The draw of a masked row.
fn draw_masked(row: &RowDraw<'_>, mask: &Bitset) -> Result<Drawn, RowError> {
    let normalizer = Normalizer::of(row.logits, row.temperature)?;
    let fold = Fold::of(&normalizer, row);
    let (pick, position) = if mask.count() < row.logits.len() / LIST_BELOW {
        let (positions, log_weights) = allowed(&normalizer, &fold, row, mask);
        let pick = draw_source(&Weights::listed(&positions, &log_weights), row.method, &row.key);
        (pick, pick.map(|pick| positions[pick.index]))
    } else {
        let source = Row { normalizer, fold, logits: row.logits, eos: row.eos, mask: Some(mask) };
        let pick = match row.method {
            DrawMethod::GumbelMax => masked::race(&source, &row.key),
            method => draw_source(&source, method, &row.key),
        };
        (pick, pick.map(|pick| pick.index as u32))
    };
    let (Some(pick), Some(position)) = (pick, position) else { return Err(RowError::EmptySupport) };
    Ok(Drawn { token: fold.token(position), log_mass: pick.log_total, logp: pick.logp })
}

/// The draw of a row without a mask by way of its weights.
pub(super) fn draw_written(row: &RowDraw<'_>) -> Result<Drawn, RowError> {
    let normalizer = Normalizer::of(row.logits, row.temperature)?;
    let fold = Fold::of(&normalizer, row);
    let source = Row { normalizer, fold, logits: row.logits, eos: row.eos, mask: None };
    let pick = draw_source(&source, row.method, &row.key).ok_or(RowError::EmptySupport)?;
    Ok(fold.drawn(&normalizer, row, pick.index as u32))
}

/// Draws many rows, in parallel, each as [`draw_row`] would, bit for bit.
#[must_use]
pub fn draw_rows(rows: &[RowDraw<'_>]) -> Vec<Result<Drawn, RowError>> {
    share::map(rows, |row| row.logits.len(), draw_row)
}

/// The end-of-sequence set as one entry.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// The lowest id; `None` if the set is empty.
    pub(super) position: Option<u32>,
    pub(super) log_weight: f64,
}

impl Fold {
    pub(super) fn of(normalizer: &Normalizer, row: &RowDraw<'_>) -> Self {
        Self { position: row.eos.lowest(), log_weight: normalizer.eos(row.logits, row.eos) }
    }

    /// The weight of the set's member `id` once the set is folded.
    #[inline(always)]
    fn logw(&self, id: u32) -> f64 {
        if self.position == Some(id) { self.log_weight } else { f64::NEG_INFINITY }
    }

    /// The weight of `id` once the set is folded.
    pub(super) fn weight(&self, normalizer: &Normalizer, row: &RowDraw<'_>, id: u32) -> f64 {
        if row.eos.contains(id) { self.logw(id) } else { normalizer.logw(row.logits[id as usize]) }
    }

    /// What stands at a position.
    fn token(&self, position: u32) -> TokenId {
        if self.position == Some(position) { TokenId::EOS } else { TokenId(position) }
    }

    /// The outcome of a row without a mask. What such a row sums to is known, and its sum would only
    /// add rounding.
    pub(super) fn drawn(&self, normalizer: &Normalizer, row: &RowDraw<'_>, position: u32) -> Drawn {
        Drawn { token: self.token(position), log_mass: 0.0, logp: self.weight(normalizer, row, position) }
    }
}

/// The ids that `mask` allows, with their weights.
fn allowed(normalizer: &Normalizer, fold: &Fold, row: &RowDraw<'_>, mask: &Bitset) -> (Vec<u32>, Vec<f64>) {
    let positions: Vec<u32> = mask.iter().take_while(|&i| i < row.logits.len()).map(|i| i as u32).collect();
    let log_weights = positions.iter().map(|&id| fold.weight(normalizer, row, id)).collect();
    (positions, log_weights)
}
