//! Masks on a row of logits, and the mass that they leave.

use crate::bitset::Bitset;
use crate::blocks::{self, BLOCK, SOUND, WORD, WORDS};
use crate::math;
use crate::normalizer::{self, Normalizer, RowError, Scale};
use crate::simd::{self, Kernel};

/// Puts what `allowed` lacks of a row at `-inf`, and returns the log of the mass that this leaves, at
/// temperature 1.
///
/// # Errors
/// As [`Normalizer::of`]; [`RowError::EmptySupport`] also if nothing is left.
pub(crate) fn apply(logits: &mut [f32], allowed: &Bitset) -> Result<f64, RowError> {
    let (_, max) = normalizer::top(logits)?;
    let scale = Scale { inverse: 1.0, shift: f64::from(max) };
    let [all, left] = simd::run(Mask { logits, allowed, scale });
    if left > SOUND {
        return Ok(math::ln(left) - math::ln(all));
    }
    // So far below the row's largest that the masses underflow, or nothing at all.
    Ok(Normalizer::of(logits, 1.0)?.log_z() - (scale.shift + math::ln(all)))
}

/// Masks a row; the sums of its masses before and after.
struct Mask<'a> {
    logits: &'a mut [f32],
    allowed: &'a Bitset,
    scale: Scale,
}

impl Kernel for Mask<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run(self) -> [f64; 2] {
        let (mut terms, mut most, mut masked) = ([0.0; BLOCK], [0.0; WORDS], [0.0; BLOCK]);
        let mut sums = [0.0; 2];
        let mut words = self.allowed.words().iter().copied();
        for logits in self.logits.chunks_mut(BLOCK) {
            let terms = &mut terms[..logits.len()];
            blocks::logit_masses(logits, self.scale, terms);
            let words: [u64; WORDS] = std::array::from_fn(|_| words.next().unwrap_or(0));
            let [all, allowed] = blocks::weigh(terms, &words, &mut most);
            sums[0] += all;
            sums[1] += allowed;
            // Not in place: the compiler would make that masked stores, which are slow on many machines.
            let masked = &mut masked[..logits.len()];
            for ((logits, masked), word) in logits.chunks(WORD).zip(masked.chunks_mut(WORD)).zip(words) {
                for (i, (l, masked)) in logits.iter().zip(masked).enumerate() {
                    *masked = if word >> i & 1 == 1 { *l } else { f32::NEG_INFINITY };
                }
            }
            logits.copy_from_slice(masked);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{DrawKey, ProblemKey};

    fn logits(len: u32) -> Vec<f32> {
        let key = DrawKey::new(ProblemKey::new(1, 0), 0, 1, 0);
        (0..len).map(|i| (3.0 * key.gumbel(i)) as f32).collect()
    }

    #[test]
    fn a_masked_row_has_the_log_mass_of_what_is_left() {
        for (lift, rarely) in [(0.0, 2), (0.0, 70), (900.0, 2), (1e5, 2)] {
            let mut row = logits(2500);
            // All of the lifted ids are masked.
            let allowed = Bitset::from_ids(2500, (0..2500).filter(|id| id % rarely == 1));
            row[0] += lift;
            let log_z = |row: &[f32]| Normalizer::of(row, 1.0).unwrap().log_z();
            let all = log_z(&row);
            let log_mass = apply(&mut row, &allowed).unwrap();
            assert!((log_mass - (log_z(&row) - all)).abs() < 1e-10, "{log_mass}");
            assert!((0..2500).all(|id| allowed.contains(id) == (row[id] > f32::NEG_INFINITY)));
        }
        assert_eq!(apply(&mut logits(70), &Bitset::new(70)), Err(RowError::EmptySupport));
    }

    #[test]
    fn all_simd_levels_agree_bit_for_bit() {
        for len in [1, 31, 33, 1000, 1024, 5000] {
            let allowed = Bitset::from_ids(len as usize, (0..len).filter(|id| id % 3 == 0));
            let masked = |wide: bool| {
                let mut row = logits(len);
                let kernel =
                    Mask { logits: &mut row, allowed: &allowed, scale: Scale { inverse: 1.0, shift: 9.0 } };
                let sums = if wide { simd::run(kernel) } else { kernel.run() };
                (sums.map(f64::to_bits), row)
            };
            assert_eq!(masked(true), masked(false));
        }
    }
}
