//! XTC, exclude top choices: if at least two ids exceed a probability, all of them but the least
//! likely are removed.

use super::below;
use super::scan::Scan;
use super::survivors::Survivors;
use crate::blocks;
use crate::draw::Weights;
use crate::math;
use crate::normalizer::{Scale, mass_sum};
use crate::token::TokenId;

/// What XTC does, and buffers for it.
#[derive(Debug)]
pub(super) struct Xtc<'a> {
    /// Candidates are the ids whose share of the mass exceeds it.
    pub(super) threshold: f64,
    /// Ids that are never removed.
    pub(super) special: &'a [TokenId],
    pub(super) inverse: f64,
    pub(super) log_weights: &'a mut Vec<f64>,
    pub(super) masses: &'a mut Vec<f64>,
}

impl Xtc<'_> {
    /// Removes from `out` what is to be removed of it.
    pub(super) fn thin(self, out: &mut Survivors) {
        let scale = Scale::below(out.max(), self.inverse);
        out.weigh(scale, self.log_weights);
        let total = blocks::mass_sum(&Weights::listed(&out.ids, self.log_weights), 0.0);
        self.sort_out(out, scale, total, |removed| !removed);
    }

    /// Makes `out` what is to be removed of a whole row. Only ids near the threshold are looked at.
    pub(super) fn removed(self, logits: &[f32], scan: &Scan, out: &mut Survivors) {
        let scale = Scale::below(scan.max, self.inverse);
        let total = mass_sum(logits, scale);
        out.gather(logits, scan, below(scan.max, math::ln(self.threshold * total) / self.inverse));
        self.sort_out(out, scale, total, |removed| removed);
    }

    /// Keeps the ids of `out`, which has all candidates of a row with this total, that `keep` says.
    fn sort_out(self, out: &mut Survivors, scale: Scale, total: f64, keep: impl Fn(bool) -> bool) {
        out.masses(scale, self.masses);
        let bar = self.threshold * total;
        let (mut candidates, mut least) = (0_usize, f32::INFINITY);
        for (&l, &mass) in out.logits.iter().zip(self.masses.iter()) {
            if mass > bar {
                candidates += 1;
                least = if l < least { l } else { least };
            }
        }
        let mut masses = self.masses.iter();
        out.retain(|id, l| {
            let &mass = masses.next().expect("one mass a survivor");
            let above = candidates >= 2 && mass > bar && l > least;
            keep(above && !self.special.contains(&TokenId(id)))
        });
    }
}
