//! Draws through running sums: `inverse_cdf` and `multinomial`.
//!
//! A first pass sums every part (a block of positions), a second walks through the chosen part
//! only. `base + partial` is non-decreasing and ends at the part's running sum, so a part whose
//! running sum exceeds the target always holds the entry.

use super::Pick;
use crate::blocks::{self, BLOCK, Block, Peak, Positions, Source};
use crate::simd::Kernel;

/// Positions a part of `multinomial`.
const MULTINOMIAL_PART: usize = 256;

pub(super) struct InverseCdf<'a, S> {
    pub(super) source: &'a S,
    pub(super) uniform: f64,
}

impl<S: Source> Kernel for InverseCdf<'_, S> {
    type Output = Option<Pick>;

    #[inline(always)]
    fn run(self) -> Option<Pick> {
        let parts = Parts::of(self.source, BLOCK)?;
        let target = self.uniform * parts.total();
        let (part, base) = parts.first_above(target);
        Some(parts.pick(self.source, part, base, target))
    }
}

pub(super) struct Multinomial<'a, S> {
    pub(super) source: &'a S,
    /// For the part and for the entry.
    pub(super) uniforms: [f64; 2],
}

impl<S: Source> Kernel for Multinomial<'_, S> {
    type Output = Option<Pick>;

    #[inline(always)]
    fn run(self) -> Option<Pick> {
        let parts = Parts::of(self.source, MULTINOMIAL_PART)?;
        let (part, _) = parts.first_above(self.uniforms[0] * parts.total());
        let target = self.uniforms[1] * part.sum;
        Some(parts.pick(self.source, part, 0.0, target))
    }
}

/// A part of positive mass.
#[derive(Clone, Copy)]
struct Part {
    /// Where the source has its block.
    cursor: usize,
    /// Its entries within that block.
    start: usize,
    end: usize,
    sum: f64,
}

struct Parts {
    parts: Vec<Part>,
    peak: Peak,
    log_total: f64,
}

impl Parts {
    /// Cuts a row into parts of `width` positions, a divisor of [`BLOCK`]; `None` if nothing is
    /// live.
    #[inline(always)]
    fn of(source: &impl Source, width: usize) -> Option<Self> {
        let peak = blocks::peak(source)?;
        let mut scratch = [0.0; BLOCK];
        let mut terms = [0.0; BLOCK];
        let mut parts = Vec::new();
        let mut sum = 0.0;
        let mut next = 0;
        loop {
            let cursor = next;
            let Some(block) = source.next(&mut next, &mut scratch) else { break };
            let terms = &mut terms[..block.log_weights.len()];
            blocks::masses(block.log_weights, peak.log_weight, terms);
            sum += blocks::block_sum(block.positions, terms);
            let mut start = 0;
            while start < terms.len() {
                let end = start + part_len(&block, start, width);
                let sum = terms[start..end].iter().fold(0.0, |sum, term| sum + term);
                if sum > 0.0 {
                    parts.push(Part { cursor, start, end, sum });
                }
                start = end;
            }
        }
        Some(Self { parts, peak, log_total: blocks::log_of(peak.log_weight, sum) })
    }

    #[inline(always)]
    fn total(&self) -> f64 {
        self.parts.iter().fold(0.0, |sum, part| sum + part.sum)
    }

    /// The first part whose running sum exceeds `target`, or else the last, and the running sum
    /// before it.
    #[inline(always)]
    fn first_above(&self, target: f64) -> (Part, f64) {
        let mut base = 0.0;
        let mut found = (self.parts[0], base);
        for &part in &self.parts {
            found = (part, base);
            base += part.sum;
            if base > target {
                break;
            }
        }
        found
    }

    /// The first entry of `part` of positive mass at which `base` and the running sum exceed
    /// `target`, or else the last of positive mass.
    #[inline(always)]
    fn pick(&self, source: &impl Source, part: Part, base: f64, target: f64) -> Pick {
        let mut scratch = [0.0; BLOCK];
        let mut terms = [0.0; BLOCK];
        let mut cursor = part.cursor;
        let block = source.next(&mut cursor, &mut scratch).expect("the part was cut from this block");
        let log_weights = &block.log_weights[part.start..part.end];
        let terms = &mut terms[..log_weights.len()];
        blocks::masses(log_weights, self.peak.log_weight, terms);
        let mut found = 0;
        let mut sum = 0.0;
        for (i, &term) in terms.iter().enumerate() {
            sum += term;
            if term > 0.0 {
                found = i;
                if base + sum > target {
                    break;
                }
            }
        }
        Pick {
            index: block.first + part.start + found,
            log_total: self.log_total,
            logp: log_weights[found] - self.log_total,
        }
    }
}

/// How many entries from `start` on lie in the same part as the entry there.
#[inline(always)]
fn part_len(block: &Block<'_>, start: usize, width: usize) -> usize {
    match block.positions {
        Positions::Run(_) => width.min(block.log_weights.len() - start),
        Positions::List(positions) => {
            let rest = &positions[start..];
            let part = rest[0] as usize / width;
            rest.partition_point(|&position| position as usize / width == part)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Weights;

    const SMALLEST: f64 = f64::EPSILON / 2.0;
    const LARGEST: f64 = 1.0 - f64::EPSILON / 2.0;

    fn inverse_cdf(log_weights: &[f64], uniform: f64) -> usize {
        InverseCdf { source: &Weights::dense(log_weights), uniform }.run().expect("a live row").index
    }

    #[test]
    fn samplers_26_inverse_cdf_at_the_smallest_uniform_skips_the_impossible() {
        assert_eq!(inverse_cdf(&[f64::NEG_INFINITY, 0.0], SMALLEST), 1);
        let multinomial =
            Multinomial { source: &Weights::dense(&[f64::NEG_INFINITY, 0.0]), uniforms: [SMALLEST; 2] };
        assert_eq!(multinomial.run().expect("a live row").index, 1);
    }

    #[test]
    fn the_largest_uniform_draws_the_last_of_positive_mass() {
        // Three positive masses, the last of them below the rounding of the sum.
        let mut log_weights = vec![f64::NEG_INFINITY; 3000];
        log_weights[5] = 0.0;
        log_weights[1500] = 0.0;
        log_weights[1501] = -50.0;
        log_weights[1502] = -800.0;
        assert_eq!(inverse_cdf(&log_weights, LARGEST), 1500);
        // Here u · total rounds to the total, so no running sum exceeds it.
        let log_weights = [0.0, -45.0, f64::NEG_INFINITY];
        let total = 1.0 + (-45.0_f64).exp();
        assert_eq!(total, 1.0);
        assert_eq!(inverse_cdf(&log_weights, 1.0), 1);
    }

    #[test]
    fn the_running_sum_is_that_of_the_plain_loop_in_blocks() {
        let key = crate::DrawKey::new(crate::ProblemKey::new(3, 0), 0, 1, 0);
        let log_weights: Vec<f64> = (0..2500).map(|i| 3.0 * key.gumbel(i)).collect();
        let max = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mass: Vec<f64> = log_weights.iter().map(|w| crate::math::exp(w - max)).collect();
        let total: f64 = mass.chunks(BLOCK).fold(0.0, |sum, block| sum + block.iter().sum::<f64>());
        for position in 0..2000 {
            let u = key.uniform(10_000 + position);
            let mut expected = None;
            let mut base = 0.0;
            for (b, block) in mass.chunks(BLOCK).enumerate() {
                let mut sum = 0.0;
                for (i, &m) in block.iter().enumerate() {
                    sum += m;
                    if expected.is_none() && base + sum > u * total {
                        expected = Some(b * BLOCK + i);
                    }
                }
                base += sum;
            }
            assert_eq!(Some(inverse_cdf(&log_weights, u)), expected);
        }
    }
}
