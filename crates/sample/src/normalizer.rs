//! From a row of logits to log-weights, in the one way that everybody shares.
//!
//! `log_z = LSE(l/T)` over the real ids and `logw(l) = l · (1/T) − log_z`, in f64, product and
//! difference rounded separately: fused, the residue of a large product would outweigh the
//! difference at small temperatures. The sum is taken in the order of
//! [`log_total`](crate::log_total), shifted by the largest `l · (1/T)`.

use crate::blocks::{self, BLOCK, Positions};
use crate::eos::EosSet;
use crate::math::{self, mass_lane};
use crate::simd::{self, Kernel};
use crate::visits;

/// Why a row of logits cannot be drawn from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RowError {
    /// A logit is NaN or `+inf`.
    #[error("logit of id {id} is not finite; logits must be finite or -inf")]
    NonFinite {
        /// The lowest such id.
        id: u32,
    },
    /// No id has positive probability.
    #[error("nothing can be drawn: every id is at -inf or masked out")]
    EmptySupport,
}

/// How a row's logits become masses: `exp(l · inverse − shift)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) inverse: f64,
    /// The largest `l · inverse`.
    pub(crate) shift: f64,
}

impl Scale {
    /// That of a row whose largest logit is `max`, at a temperature.
    pub(crate) fn new(temperature: f64, max: f32) -> Self {
        Self::below(max, inverse(temperature))
    }

    /// That of a row whose largest logit is `max`, at `1/T`.
    pub(crate) fn below(max: f32, inverse: f64) -> Self {
        Self { inverse, shift: f64::from(max) * inverse }
    }

    /// The exponent of a logit's mass.
    #[inline(always)]
    pub(crate) fn exponent(&self, logit: f32) -> f64 {
        f64::from(logit) * self.inverse - self.shift
    }
}

/// The normaliser of a logit row at a temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalizer {
    inverse_temperature: f64,
    log_z: f64,
}

/// The largest `1/T` in use. At half of it already, any two different f32 logits are further apart
/// than f64 can express, and no product with a logit overflows.
const MAX_INVERSE: f64 = 1e200;

impl Normalizer {
    /// The normaliser of `logits` (real ids only; `-inf` is impossible) at a finite
    /// `temperature > 0`.
    ///
    /// # Errors
    /// [`RowError::NonFinite`] at a NaN or `+inf` logit, [`RowError::EmptySupport`] if all are `-inf`.
    pub fn of(logits: &[f32], temperature: f64) -> Result<Self, RowError> {
        debug_assert!(temperature > 0.0 && temperature.is_finite(), "temperatures are validated on entry");
        let max = finite_max(logits)?;
        if max == f32::NEG_INFINITY {
            return Err(RowError::EmptySupport);
        }
        let scale = Scale::new(temperature, max);
        Ok(Self::of_sum(scale, mass_sum(logits, scale)))
    }

    /// The normaliser of a row whose masses sum to `sum`, in the order of [`mass_sum`].
    pub(crate) fn of_sum(scale: Scale, sum: f64) -> Self {
        Self { inverse_temperature: scale.inverse, log_z: scale.shift + math::ln(sum) }
    }

    /// `LSE(l/T)` over the row, in nats.
    #[must_use]
    pub fn log_z(&self) -> f64 {
        self.log_z
    }

    /// The log-probability, in nats, of an id with this logit.
    #[inline(always)]
    #[must_use]
    pub fn logw(&self, logit: f32) -> f64 {
        f64::from(logit) * self.inverse_temperature - self.log_z
    }

    /// Writes [`Normalizer::logw`] of every logit.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn fill(&self, logits: &[f32], out: &mut [f64]) {
        assert_eq!(logits.len(), out.len(), "one weight a logit");
        simd::run(Fill { normalizer: self, logits, out });
    }

    /// The log-mass of the end-of-sequence set: the log-sum-exp of its ids' weights in ascending id
    /// order, exactly the weight of a single id, `-inf` if there is none. Ids beyond the row have
    /// no mass.
    #[must_use]
    pub fn eos(&self, logits: &[f32], eos: &EosSet) -> f64 {
        simd::run(Eos { normalizer: self, logits, eos })
    }
}

/// The largest logit, `-inf` if none is live.
///
/// # Errors
/// [`RowError::NonFinite`] at a NaN or `+inf` logit.
pub(crate) fn finite_max(logits: &[f32]) -> Result<f32, RowError> {
    Ok(survey(logits)?.max)
}

/// The lowest id of the largest logit, and that logit.
///
/// # Errors
/// As [`Normalizer::of`].
pub(crate) fn top(logits: &[f32]) -> Result<(u32, f32), RowError> {
    let Overview { max, start, .. } = survey(logits)?;
    if max == f32::NEG_INFINITY {
        return Err(RowError::EmptySupport);
    }
    let i = logits[start..].iter().position(|&l| l == max).expect("the maximum is an entry");
    Ok(((start + i) as u32, max))
}

fn survey(logits: &[f32]) -> Result<Overview, RowError> {
    let overview = simd::run(Survey(logits));
    if overview.non_finite {
        let id = logits.iter().position(|&l| is_non_finite(l)).expect("the survey met one");
        return Err(RowError::NonFinite { id: id as u32 });
    }
    Ok(overview)
}

/// `1/T`, kept in the range in which it is of use.
pub(crate) fn inverse(temperature: f64) -> f64 {
    (1.0 / temperature).min(MAX_INVERSE)
}

/// The sum of a row's masses, in the order of [`log_total`](crate::log_total); none is above 1.
pub(crate) fn mass_sum(logits: &[f32], scale: Scale) -> f64 {
    simd::run(MassSum { logits, scale })
}

#[inline(always)]
pub(crate) fn is_non_finite(logit: f32) -> bool {
    logit.is_nan() || logit == f32::INFINITY
}

/// What one look at the row tells.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Overview {
    non_finite: bool,
    max: f32,
    /// Where the block begins that first has the maximum.
    start: usize,
}

struct Survey<'a>(&'a [f32]);

impl Kernel for Survey<'_> {
    type Output = Overview;

    #[inline(always)]
    fn run(self) -> Overview {
        const LANES: usize = 32;
        visits::looks(self.0.len());
        let mut bad = [0_u32; LANES];
        let mut overview = Overview { non_finite: false, max: f32::NEG_INFINITY, start: 0 };
        for (start, block) in (0..).step_by(BLOCK).zip(self.0.chunks(BLOCK)) {
            let mut max = [f32::NEG_INFINITY; LANES];
            let (chunks, rest) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    let l = chunk[lane];
                    bad[lane] |= u32::from(is_non_finite(l));
                    max[lane] = if l > max[lane] { l } else { max[lane] };
                }
            }
            for (lane, &l) in rest.iter().enumerate() {
                bad[lane] |= u32::from(is_non_finite(l));
                max[lane] = if l > max[lane] { l } else { max[lane] };
            }
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for lane in 0..width {
                    max[lane] = if max[lane + width] > max[lane] { max[lane + width] } else { max[lane] };
                }
            }
            if max[0] > overview.max {
                overview = Overview { max: max[0], start, ..overview };
            }
        }
        overview.non_finite = bad.iter().any(|&bad| bad != 0);
        overview
    }
}

struct MassSum<'a> {
    logits: &'a [f32],
    scale: Scale,
}

impl Kernel for MassSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut terms = [0.0; BLOCK];
        let mut sum = 0.0;
        for logits in self.logits.chunks(BLOCK) {
            let terms = &mut terms[..logits.len()];
            blocks::logit_masses(logits, self.scale, terms);
            sum += blocks::block_sum(Positions::Run(0), terms);
        }
        sum
    }
}

struct Fill<'a> {
    normalizer: &'a Normalizer,
    logits: &'a [f32],
    out: &'a mut [f64],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (out, &l) in self.out.iter_mut().zip(self.logits) {
            *out = self.normalizer.logw(l);
        }
    }
}

struct Eos<'a> {
    normalizer: &'a Normalizer,
    logits: &'a [f32],
    eos: &'a EosSet,
}

impl Eos<'_> {
    #[inline(always)]
    fn logw(&self, id: u32) -> f64 {
        self.logits.get(id as usize).map_or(f64::NEG_INFINITY, |&l| self.normalizer.logw(l))
    }
}

impl Kernel for Eos<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut max = f64::NEG_INFINITY;
        for &id in self.eos.ids() {
            max = max.max(self.logw(id));
        }
        if max == f64::NEG_INFINITY {
            return max;
        }
        let mut sum = 0.0;
        for &id in self.eos.ids() {
            sum += mass_lane(self.logw(id) - max);
        }
        blocks::log_of(max, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Weights, log_total};
    use crate::rng::{DrawKey, ProblemKey};

    fn logits(len: u32) -> Vec<f32> {
        let key = DrawKey::new(ProblemKey::new(1, 0), 0, 1, 0);
        (0..len).map(|i| (3.0 * key.gumbel(i)) as f32).collect()
    }

    #[test]
    fn weights_are_log_probabilities_at_the_temperature() {
        let logits = logits(2500);
        for temperature in [0.7, 1.0, 3.0] {
            let normalizer = Normalizer::of(&logits, temperature).unwrap();
            let z: f64 = logits.iter().map(|&l| (f64::from(l) / temperature).exp()).sum();
            assert!((normalizer.log_z() - z.ln()).abs() < 1e-12);
            let mut weights = vec![0.0; logits.len()];
            normalizer.fill(&logits, &mut weights);
            for (&l, &w) in logits.iter().zip(&weights) {
                assert_eq!(w.to_bits(), normalizer.logw(l).to_bits());
            }
            assert!(log_total(Weights::dense(&weights)).abs() < 1e-14);
        }
    }

    #[test]
    fn the_end_has_the_summed_mass_of_its_ids() {
        let logits = logits(2500);
        let normalizer = Normalizer::of(&logits, 0.7).unwrap();
        let eos = |ids: &[u32]| normalizer.eos(&logits, &EosSet::new(ids.iter().copied()));
        assert_eq!(eos(&[]), f64::NEG_INFINITY);
        assert_eq!(eos(&[9]).to_bits(), normalizer.logw(logits[9]).to_bits());
        assert_eq!(eos(&[9, 2500, 7000]).to_bits(), normalizer.logw(logits[9]).to_bits());
        let sum: f64 = [9, 10, 2499].iter().map(|&id: &usize| normalizer.logw(logits[id]).exp()).sum();
        assert!((eos(&[2499, 9, 10]) - sum.ln()).abs() < 1e-13);
    }

    #[test]
    fn bad_rows_are_told_by_their_lowest_bad_id() {
        let mut row = logits(100);
        row[50] = f32::NEG_INFINITY;
        assert!(Normalizer::of(&row, 1.0).is_ok());
        row[99] = f32::NAN;
        assert_eq!(Normalizer::of(&row, 1.0), Err(RowError::NonFinite { id: 99 }));
        row[31] = f32::INFINITY;
        assert_eq!(Normalizer::of(&row, 1.0), Err(RowError::NonFinite { id: 31 }));
        assert_eq!(Normalizer::of(&[f32::NEG_INFINITY; 40], 1.0), Err(RowError::EmptySupport));
        assert_eq!(Normalizer::of(&[], 1.0), Err(RowError::EmptySupport));
    }

    #[test]
    fn all_simd_levels_agree_bit_for_bit() {
        for len in [1, 31, 33, 1000, 1024, 5000] {
            let logits = logits(len);
            assert_eq!(simd::run(Survey(&logits)), Survey(&logits).run());
            let kernel = || MassSum { logits: &logits, scale: Scale { inverse: 1.25, shift: 20.0 } };
            assert_eq!(simd::run(kernel()).to_bits(), kernel().run().to_bits());
        }
    }
}
