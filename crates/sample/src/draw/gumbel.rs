//! The Gumbel-max draw: `argmax(w_i + g_i)`, `g_i = −ln(−ln u_i)`.
//!
//! Only entries that can win have their two logarithms taken. With `d = 1 − u ≤ −ln u`, entry `i`
//! scores at most `w_i − ln d_i`, so it cannot reach the best score so far `S` unless
//! `d_i < exp(w_i − max) · exp(max − S)`. The first factor is needed for the total mass anyway, and
//! the second is raised by a slack beyond all rounding, so the index is that of the plain rule.

use super::Pick;
use crate::blocks::{self, BLOCK, Block, Peak, Positions, Source};
use crate::math::exp_lane;
use crate::rng::{self, DrawKey};
use crate::simd::Kernel;

/// Entries that are tested together.
const GROUP: usize = 64;

pub(super) struct GumbelMax<'a, S> {
    pub(super) source: &'a S,
    pub(super) key: &'a DrawKey,
}

impl<S: Source> Kernel for GumbelMax<'_, S> {
    type Output = Option<Pick>;

    #[inline(always)]
    fn run(self) -> Option<Pick> {
        let Self { source, key } = self;
        let peak = blocks::peak(source)?;
        let mut best = Best::new(peak, key.bits_lane(peak.position));
        let mut scratch = [0.0; BLOCK];
        let mut terms = [0.0; BLOCK];
        let mut bits = [0; BLOCK];
        let mut cursor = 0;
        let mut sum = 0.0;
        while let Some(block) = source.next(&mut cursor, &mut scratch) {
            let len = block.log_weights.len();
            let terms = &mut terms[..len];
            blocks::exps(block.log_weights, peak.log_weight, terms);
            sum += blocks::block_sum(block.positions, terms);
            let bits = block_bits(block.positions, len, key, &mut bits);
            for start in (0..len).step_by(GROUP) {
                let end = (start + GROUP).min(len);
                if best.may_fall(&terms[start..end], &bits[start..end]) {
                    for i in start..end {
                        if best.may_lose_to(terms[i], bits[i]) {
                            best.challenge(&block, i, bits[i]);
                        }
                    }
                }
            }
        }
        let log_total = blocks::log_of(peak.log_weight, sum);
        Some(Pick { index: best.index, log_total, logp: best.log_weight - log_total })
    }
}

/// The random bits of a block's entries.
#[inline(always)]
pub(crate) fn block_bits<'a>(
    positions: Positions<'_>,
    len: usize,
    key: &DrawKey,
    out: &'a mut [u64; BLOCK],
) -> &'a [u64] {
    match positions {
        Positions::Run(start) => key.fill_bits(start, &mut out[..len.next_multiple_of(2)]),
        Positions::List(positions) => {
            for (bits, &position) in out.iter_mut().zip(positions) {
                *bits = key.bits_lane(position);
            }
        }
    }
    &out[..len]
}

/// The best entry so far.
struct Best {
    score: f64,
    log_weight: f64,
    index: usize,
    position: u32,
    max: f64,
    slack: f64,
    /// `exp(max − score + slack)`.
    bar: f64,
}

impl Best {
    #[inline(always)]
    fn new(peak: Peak, bits: u64) -> Self {
        let max = peak.log_weight;
        let mut best = Self {
            score: max + rng::gumbel_lane(bits),
            log_weight: max,
            index: peak.index,
            position: peak.position,
            max,
            // Scores round by 2⁻⁵³ of the weight, exponents by less than 10⁻¹². An infinite bar is
            // harmless: it makes everyone a candidate.
            slack: 1e-9 + max.abs() * (f64::EPSILON * 16.0),
            bar: 0.0,
        };
        best.raise_bar();
        best
    }

    #[inline(always)]
    fn raise_bar(&mut self) {
        self.bar = exp_lane(self.max - self.score + self.slack);
    }

    /// Whether an entry of this term and noise might score more. The negation counts NaN (an
    /// infinite bar over a term of 0) as a yes.
    #[inline(always)]
    #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must count as a yes")]
    fn may_lose_to(&self, term: f64, bits: u64) -> bool {
        !(rng::complement_lane(bits) >= term * self.bar)
    }

    /// [`Best::may_lose_to`] of any entry.
    #[inline(always)]
    fn may_fall(&self, terms: &[f64], bits: &[u64]) -> bool {
        let mut any = 0_u64;
        for (&term, &bits) in terms.iter().zip(bits) {
            any |= u64::from(self.may_lose_to(term, bits));
        }
        any != 0
    }

    #[inline(always)]
    fn challenge(&mut self, block: &Block<'_>, i: usize, bits: u64) {
        let log_weight = block.log_weights[i];
        let score = log_weight + rng::gumbel_lane(bits);
        let position = block.positions.at(i);
        if score > self.score || (score == self.score && position < self.position) {
            *self = Self { score, log_weight, index: block.first + i, position, ..*self };
            self.raise_bar();
        }
    }
}
