//! The filters of the sampler chain: which ids of a row stay.
//!
//! | stage | an id stays iff |
//! |---|---|
//! | top-p | the mass ranked before it is below `top_p` |
//! | min-p | `lp ≥ max + ln(min_p)`, or it is among the first `min_tokens_to_keep` |
//! | XTC | it is no candidate above the least likely candidate (where the row's gate is open) |
//! | top-k | it is among the first k |
//!
//! Ranked order is logit descending, then id ascending. Everything is found by thresholds and
//! selection; small logits are passed over by blocks.
//!
//! Invariant: at least one id stays; which ones depends on the row and its settings alone.

mod nucleus;
mod scan;
mod survivors;
#[cfg(test)]
mod tests;
mod xtc;

use crate::math;
use crate::normalizer::Scale;
use crate::params::{SamplingParams, count};
use crate::token::TokenId;

pub(crate) use scan::Scan;
pub(crate) use survivors::Survivors;

use xtc::Xtc;

/// What the filters of one row are to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filters<'a> {
    pub(crate) params: &'a SamplingParams,
    /// Whether XTC acts on this step.
    pub(crate) gate_is_open: bool,
    /// The ids that XTC spares.
    pub(crate) special_ids: &'a [TokenId],
    /// What a logit is multiplied by before it is compared: `1/T` if temperature comes first, else 1.
    pub(crate) inverse: f64,
}

/// What [`Filters::run`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The ids that stay.
    Listed,
    /// The ids that do not.
    AllBut,
}

/// A bound below which ids are of no use, except that some number of the highest is wanted.
#[derive(Clone, Copy, Debug)]
struct Floor {
    /// A finite logit.
    logit: f32,
    keep: usize,
}

/// Buffers of [`Filters::run`].
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    nucleus: nucleus::Scratch,
    log_weights: Vec<f64>,
    masses: Vec<f64>,
}

impl Filters<'_> {
    /// Whether these leave every row as it is.
    pub(crate) fn are_neutral(&self) -> bool {
        let params = self.params;
        params.top_p >= 1.0 && params.min_p <= 0.0 && params.top_k <= 0 && !self.gate_is_open
    }

    /// Makes `out` the ids of `logits` that stay, or those that do not. `scan` has read `logits`.
    pub(crate) fn run(
        &self,
        logits: &[f32],
        scan: &Scan,
        out: &mut Survivors,
        scratch: &mut Scratch,
    ) -> Outcome {
        let params = self.params;
        let top_k = if params.top_k == 0 { usize::MAX } else { count(params.top_k) };
        let floor = (params.min_p > 0.0).then(|| Floor {
            logit: below(scan.max, math::ln(params.min_p) / self.inverse),
            keep: count(params.min_tokens_to_keep),
        });
        let xtc = self.gate_is_open.then_some(Xtc {
            threshold: params.xtc_threshold,
            special: self.special_ids,
            inverse: self.inverse,
            log_weights: &mut scratch.log_weights,
            masses: &mut scratch.masses,
        });
        if params.top_p < 1.0 {
            nucleus::nucleus(logits, scan, params.top_p, self.inverse, floor, out, &mut scratch.nucleus);
        } else if let Some(floor) = floor {
            out.gather_reaching(logits, scan, floor);
        } else if let Some(xtc) = xtc {
            xtc.removed(logits, scan, out);
            if top_k == usize::MAX {
                return Outcome::AllBut;
            }
            let removed = std::mem::take(&mut out.ids);
            out.gather_top(logits, scan, top_k.saturating_add(removed.len()));
            out.retain(|id, _| removed.binary_search(&id).is_err());
            out.keep_top(top_k);
            return Outcome::Listed;
        } else {
            out.gather_top(logits, scan, top_k);
            return Outcome::Listed;
        }
        if params.min_p > 0.0 {
            self.min_p(scan, out);
        }
        if let Some(xtc) = xtc {
            xtc.thin(out);
        }
        out.keep_top(top_k);
        Outcome::Listed
    }

    /// Keeps what min-p keeps of a head of the ranked order.
    fn min_p(&self, scan: &Scan, out: &mut Survivors) {
        let scale = Scale::below(scan.max, self.inverse);
        let floor = math::ln(self.params.min_p);
        let good = |l: f32| scale.exponent(l) >= floor;
        let n = out.logits.iter().filter(|&&l| good(l)).count();
        let keep = count(self.params.min_tokens_to_keep);
        if n >= keep {
            out.retain(|_, l| good(l));
        } else {
            out.keep_top(keep);
        }
    }
}

/// A finite logit a little below `max + reach`, by more than f64 rounds at either of them.
fn below(max: f32, reach: f64) -> f32 {
    let max = f64::from(max);
    ((max + reach - 1e-12 * max.abs()) as f32).next_down().max(f32::MIN)
}
