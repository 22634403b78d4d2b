//! Log-probabilities of a step, on request.

use crate::chain;
use crate::filters::{Scan, Survivors};
use crate::normalizer::{Normalizer, RowError};
use crate::token::TokenId;

/// Of which distribution log-probabilities are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogprobMode {
    /// The model's, over the real ids, before bias, penalties and masks.
    #[default]
    Raw,
    /// After bias, penalties and masks, normalised, before temperature and filters.
    Processed,
    /// The one that is drawn from. A greedy draw's is all on its token.
    Final,
}

/// What log-probabilities a row wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogprobRequest {
    /// The distribution.
    pub mode: LogprobMode,
    /// How many alternatives; 0 for the drawn token alone. More than there are ids is all of them.
    pub top: usize,
}

/// The log-probabilities, in nats, that a row asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The drawn token's.
    pub token: f64,
    /// The alternatives in ranked order: log-probability descending, then id ascending. Impossible
    /// ones, at `-inf`, fill up the number asked for.
    pub top: Vec<(TokenId, f64)>,
}

impl Logprobs {
    /// Those of `token` and of the `top` likeliest ids under `softmax(logits)`.
    ///
    /// # Errors
    /// [`RowError::NonFinite`] at a NaN or `+inf` logit, [`RowError::EmptySupport`] if all are `-inf`.
    ///
    /// # Panics
    /// If `token` has no logit.
    pub fn of(logits: &[f32], token: TokenId, top: usize) -> Result<Self, RowError> {
        chain::with_workspace(|workspace| workspace.logprobs(logits, token, top))
    }
}

/// The log-probabilities of `softmax(logits / temperature)`.
///
/// # Errors
/// As [`Normalizer::of`].
pub(crate) fn of_row(
    logits: &[f32],
    temperature: f64,
    token: TokenId,
    top: usize,
    scan: &mut Scan,
    survivors: &mut Survivors,
) -> Result<Logprobs, RowError> {
    let normalizer = Normalizer::of(logits, temperature)?;
    let mut ranked = Vec::new();
    if top > 0 {
        scan.read(logits)?;
        survivors.gather_top(logits, scan, top);
        let entry = |i: usize| (TokenId(survivors.ids[i]), normalizer.logw(survivors.logits[i]));
        ranked = survivors.ranked().into_iter().map(entry).collect();
        fill_up(&mut ranked, top, logits.len());
    }
    Ok(Logprobs { token: normalizer.logw(logits[token.index()]), top: ranked })
}

/// Lengthens `ranked` to `top` entries with the lowest ids that it lacks, at `-inf`.
pub(crate) fn fill_up(ranked: &mut Vec<(TokenId, f64)>, top: usize, vocab_size: usize) {
    let top = top.min(vocab_size);
    ranked.truncate(top);
    if ranked.len() < top {
        let mut listed: Vec<TokenId> = ranked.iter().map(|&(id, _)| id).collect();
        listed.sort_unstable();
        let missing = (0..vocab_size as u32).map(TokenId).filter(|id| listed.binary_search(id).is_err());
        ranked.extend(missing.take(top - listed.len()).map(|id| (id, f64::NEG_INFINITY)));
    }
}
