//! The sampler chain: from a row's logits to its token.
//!
//! 1. *Guard.* Ids beyond the vocabulary are not read; NaN and `+inf` are an error.
//! 2. *Processors.* Bias and penalties, a row's own processors, masks last.
//! 3. *Normalise.* `lp = l − LSE(l)`; a row without a live id is an error.
//! 4. *Greedy*, if the temperature is 0: the largest, and the lowest id of several.
//! 5. *Filters.* Top-p, min-p, XTC, top-k, in this order; with `temperature_first` on `lp/T`.
//! 6. *Draw* from `softmax(lp/T)` over the survivors.
//!
//! Comparisons are made on `z = l · inverse − max`, `inverse` being 1 or `1/T`: stage 3 shifts a row
//! by one number, which cancels in all of them.
//!
//! Noise: the token has ordinal 0 of the row's key, addressed by id; the XTC gate has ordinal 1,
//! position 0. A greedy row uses none.
//!
//! Invariant: a row's result is a function of the row alone, equal bit for bit in any batch and at any
//! thread count.

use std::borrow::Cow;
use std::cell::RefCell;

use crate::bitset::Bitset;
use crate::draw::{RowDraw, Weights, draw, draw_row};
use crate::eos::EosSet;
use crate::filters::{Filters, Outcome, Scan, Scratch, Survivors};
use crate::history::History;
use crate::logprobs::{self, LogprobMode, LogprobRequest, Logprobs};
use crate::mask;
use crate::normalizer::{self, RowError, Scale};
use crate::params::SamplingParams;
use crate::penalties;
use crate::rng::DrawKey;
use crate::share;
use crate::token::TokenId;
use crate::visits;

/// The ordinal of the draw of a row's token.
pub(crate) const TOKEN_ORDINAL: u32 = 0;
/// Survivors that are at least one id in this many are drawn from as a thinned row.
const THINNED_FROM: usize = 4;
/// A greedy row costs about one part in so many of a drawn one.
const GREEDY: usize = 10;
/// The ordinal of the XTC gate.
const GATE_ORDINAL: u32 = 1;

/// One row of the draw pass, for the sampler chain.
#[derive(Clone, Copy, Debug)]
pub struct ChainRow<'a> {
    /// The logits, finite or `-inf`; those from `vocab_size` on are padding and not read.
    pub logits: &'a [f32],
    /// How many ids are real, at most the length of `logits`.
    pub vocab_size: usize,
    /// The settings, valid ([`SamplingParams::validate`]).
    pub params: &'a SamplingParams,
    /// The row's tokens so far.
    pub history: &'a History,
    /// The ids that XTC spares: by default every end-of-sequence id and the line break.
    pub special_ids: &'a [TokenId],
    /// The allowed ids, over the real ones; `None` allows all. Each id stands for itself.
    pub mask: Option<&'a Bitset>,
    /// Ids that are not to be drawn, such as the end before `min_tokens`.
    pub banned: &'a [TokenId],
    /// The key of the row's step. Its ordinal is not read.
    pub key: DrawKey,
    /// The log-probabilities wanted; none cost nothing.
    pub logprobs: Option<LogprobRequest>,
}

/// The outcome of a row of the sampler chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The drawn id, below the vocabulary size.
    pub token: TokenId,
    /// The log-probability of the token, in nats, under the distribution drawn from.
    pub logp: f64,
    /// The log of the mass, in nats, that mask and banned ids leave of the row after bias and
    /// penalties, at temperature 1. Exactly 0 without them.
    pub log_mass: f64,
    /// What [`ChainRow::logprobs`] asked for.
    pub logprobs: Option<Logprobs>,
}

impl<'a> ChainRow<'a> {
    /// The logits of the real ids.
    pub(crate) fn real(&self) -> &'a [f32] {
        &self.logits[..self.vocab_size]
    }

    /// What the row costs, as ids of a draw.
    fn cost(&self) -> usize {
        if self.params.is_greedy() { self.vocab_size / GREEDY } else { self.vocab_size }
    }

    fn is_masked(&self) -> bool {
        self.mask.is_some() || !self.banned.is_empty()
    }

    /// Whether stage 2 leaves the logits as they are, own processors aside.
    fn is_untouched(&self) -> bool {
        !self.is_masked() && penalties::are_neutral(self.params)
    }

    /// Whether XTC acts on this step.
    fn gate_is_open(&self) -> bool {
        let key = DrawKey { ordinal: GATE_ORDINAL, ..self.key };
        self.params.xtc_probability > 0.0 && key.uniform(0) < self.params.xtc_probability
    }
}

/// Samples many rows of any mix of settings in one pass, in parallel.
///
/// Each result is that of the row alone, bit for bit. A row that fails leaves the others as they are:
/// [`RowError::NonFinite`] at a NaN or `+inf` logit, before or after bias and penalties;
/// [`RowError::EmptySupport`] if everything is `-inf` or masked.
///
/// # Panics
/// If a row's `vocab_size` exceeds its logits.
#[must_use]
pub fn sample_rows(rows: &[ChainRow<'_>]) -> Vec<Result<Sampled, RowError>> {
    share::map(rows, ChainRow::cost, sample_row)
}

/// Samples one row; see [`sample_rows`].
///
/// # Errors
/// See [`sample_rows`].
///
/// # Panics
/// See [`sample_rows`].
pub fn sample_row(row: &ChainRow<'_>) -> Result<Sampled, RowError> {
    with_workspace(|workspace| {
        if row.is_untouched() {
            return choose(row, row.real(), 0.0, workspace);
        }
        normalizer::finite_max(row.real())?;
        let mut logits = std::mem::take(&mut workspace.logits);
        visits::looks(row.vocab_size);
        logits.clear();
        logits.extend_from_slice(row.real());
        penalties::apply(row.params, row.history, &mut logits);
        let sampled = mask(row, &mut logits).and_then(|log_mass| choose(row, &logits, log_mass, workspace));
        workspace.logits = logits;
        sampled
    })
}

/// Buffers that are kept for the next row. What they hold is never read again.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    logits: Vec<f32>,
    scan: Scan,
    survivors: Survivors,
    scratch: Scratch,
    /// Of the survivors.
    log_weights: Vec<f64>,
    /// The row with `-inf` for what does not survive, where that is the quicker way.
    thinned: Vec<f32>,
}

impl Workspace {
    /// The log-probabilities of `softmax(logits)`.
    pub(crate) fn logprobs(
        &mut self,
        logits: &[f32],
        token: TokenId,
        top: usize,
    ) -> Result<Logprobs, RowError> {
        logprobs::of_row(logits, 1.0, token, top, &mut self.scan, &mut self.survivors)
    }
}

/// Runs `work` with this thread's buffers.
pub(crate) fn with_workspace<T>(work: impl FnOnce(&mut Workspace) -> T) -> T {
    thread_local! {
        static WORKSPACE: RefCell<Workspace> = RefCell::default();
    }
    // Taken out, so that nothing is borrowed while `work` runs.
    let mut workspace = WORKSPACE.take();
    let result = work(&mut workspace);
    WORKSPACE.set(workspace);
    result
}

/// The masks of stage 2; returns the log of the mass that they leave.
pub(crate) fn mask(row: &ChainRow<'_>, logits: &mut [f32]) -> Result<f64, RowError> {
    if !row.is_masked() {
        return Ok(0.0);
    }
    let allowed = match (row.mask, row.banned) {
        (Some(mask), []) => Cow::Borrowed(mask),
        (mask, banned) => {
            let mut allowed = mask.cloned().unwrap_or_else(|| Bitset::full(logits.len()));
            for id in banned {
                if id.index() < allowed.len() {
                    allowed.remove(id.index());
                }
            }
            Cow::Owned(allowed)
        }
    };
    mask::apply(logits, &allowed)
}

/// Stages 3 on, for logits that are `row`'s after stage 2.
pub(crate) fn choose(
    row: &ChainRow<'_>,
    logits: &[f32],
    log_mass: f64,
    workspace: &mut Workspace,
) -> Result<Sampled, RowError> {
    let choice = Choice::of(row, logits, workspace)?;
    let logprobs = match row.logprobs {
        None => None,
        Some(request) => Some(choice.logprobs(row, logits, request, workspace)?),
    };
    Ok(Sampled { token: choice.token, logp: choice.logp, log_mass, logprobs })
}

/// A token, and what it was drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) token: TokenId,
    pub(crate) logp: f64,
    from: Source,
}

/// The distribution of a draw.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// All on the token.
    Token,
    /// The whole row at the temperature.
    Row,
    /// The workspace's thinned row at the temperature.
    Thinned,
    /// The workspace's survivors, whose weights have this log-total.
    Survivors { log_total: f64 },
}

impl Choice {
    /// Stages 4 on.
    pub(crate) fn of(
        row: &ChainRow<'_>,
        logits: &[f32],
        workspace: &mut Workspace,
    ) -> Result<Self, RowError> {
        let params = row.params;
        let Workspace { scan, survivors, scratch, log_weights, thinned, .. } = workspace;
        if params.is_greedy() {
            scan.read(logits)?;
            return Ok(Self { token: TokenId(scan.argmax(logits)), logp: 0.0, from: Source::Token });
        }
        let key = DrawKey { ordinal: TOKEN_ORDINAL, ..row.key };
        let inverse = normalizer::inverse(params.temperature);
        let filters = Filters {
            params,
            gate_is_open: row.gate_is_open(),
            special_ids: row.special_ids,
            inverse: if params.temperature_first { inverse } else { 1.0 },
        };
        let whole = |logits: &[f32], from: Source| {
            let drawn = draw_row(&RowDraw {
                logits,
                temperature: params.temperature,
                eos: &EosSet::new([]),
                mask: None,
                method: params.draw_method,
                key,
            })?;
            Ok(Self { token: drawn.token, logp: drawn.logp, from })
        };
        if filters.are_neutral() {
            return whole(logits, Source::Row);
        }
        scan.read(logits)?;
        match filters.run(logits, scan, survivors, scratch) {
            Outcome::AllBut if survivors.len() == 0 => whole(logits, Source::Row),
            Outcome::AllBut => {
                visits::looks(logits.len());
                thinned.clear();
                thinned.extend_from_slice(logits);
                for &id in &survivors.ids {
                    thinned[id as usize] = f32::NEG_INFINITY;
                }
                whole(thinned, Source::Thinned)
            }
            Outcome::Listed if survivors.len() >= logits.len() / THINNED_FROM => {
                thinned.clear();
                thinned.resize(logits.len(), f32::NEG_INFINITY);
                for (&id, &l) in survivors.ids.iter().zip(&survivors.logits) {
                    thinned[id as usize] = l;
                }
                whole(thinned, Source::Thinned)
            }
            Outcome::Listed => {
                survivors.weigh(Scale::below(survivors.max(), inverse), log_weights);
                let weights = Weights::listed(&survivors.ids, log_weights);
                let pick = draw(weights, params.draw_method, &key).expect("filters leave a live id");
                let from = Source::Survivors { log_total: pick.log_total };
                Ok(Self { token: TokenId(survivors.ids[pick.index]), logp: pick.logp, from })
            }
        }
    }

    /// The log-probabilities asked for; the workspace is as [`Choice::of`] left it.
    fn logprobs(
        &self,
        row: &ChainRow<'_>,
        logits: &[f32],
        request: LogprobRequest,
        workspace: &mut Workspace,
    ) -> Result<Logprobs, RowError> {
        let Workspace { scan, survivors, log_weights, thinned, .. } = workspace;
        let (token, top) = (self.token, request.top);
        match (request.mode, self.from) {
            (LogprobMode::Raw, _) => logprobs::of_row(row.real(), 1.0, token, top, scan, survivors),
            (LogprobMode::Processed, _) => logprobs::of_row(logits, 1.0, token, top, scan, survivors),
            (LogprobMode::Final, Source::Row) => {
                logprobs::of_row(logits, row.params.temperature, token, top, scan, survivors)
            }
            (LogprobMode::Final, Source::Thinned) => {
                logprobs::of_row(thinned, row.params.temperature, token, top, scan, survivors)
            }
            (LogprobMode::Final, from) => {
                let mut ranked = vec![(token, self.logp)];
                if let Source::Survivors { log_total } = from {
                    let entry = |i: usize| (TokenId(survivors.ids[i]), log_weights[i] - log_total);
                    ranked = survivors.ranked().into_iter().take(top).map(entry).collect();
                }
                logprobs::fill_up(&mut ranked, top, logits.len());
                Ok(Logprobs { token: self.logp, top: ranked })
            }
        }
    }
}
