//! Keyed random numbers: every number is a function of a key and a position, and of nothing else.
//!
//! Generator: Philox4x32-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011).
//! A draw's numbers are `philox(counter = (particle, step, ordinal, block), key = problem key)`;
//! a block holds two u64, words 0–1 and 2–3, low word first, and position `i` is half `i mod 2` of
//! block `i div 2`. Uniforms are `((x >> 12) + ½) · 2⁻⁵²`: 52 bits and a half-step reach neither
//! 0 nor 1, where 53 bits would round to 1.
//!
//! ```
//! use lockstep_sample::{DrawKey, ProblemKey};
//! let key = DrawKey::new(ProblemKey::new(42, 0), 3, 7, 1);
//! assert_eq!(key.uniform(0), 0.7543641286386696);
//! ```

use crate::math::ln_lane;
use crate::simd::{self, Kernel};

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;
const LOW: u64 = 0xFFFF_FFFF;

/// The particle number of draws that belong to a whole population, such as resampling.
pub const POPULATION: u32 = 0xFFFF_FFFF;

/// The Philox4x32-10 bijection: the four words that `key` gives `counter`.
#[must_use]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_lane(counter.map(u64::from), key).map(|word| (word & LOW) as u32)
}

/// The generator on words held in 64-bit lanes, whose upper halves are arbitrary, in and out. A
/// 64-bit lane is what vector units multiply 32-bit words in, so nothing is ever shuffled.
#[inline(always)]
fn philox_lane(counter: [u64; 4], key: [u32; 2]) -> [u64; 4] {
    let mut c = counter;
    for round in 0..ROUNDS {
        let k0 = u64::from(key[0].wrapping_add(WEYL[0].wrapping_mul(round)));
        let k1 = u64::from(key[1].wrapping_add(WEYL[1].wrapping_mul(round)));
        let p0 = (c[0] & LOW) * MULTIPLIERS[0];
        let p1 = (c[2] & LOW) * MULTIPLIERS[1];
        c = [p1 >> 32 ^ c[1] ^ k0, p1, p0 >> 32 ^ c[3] ^ k1, p0];
    }
    c
}

/// The key of all draws of one problem: one population, or one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProblemKey {
    words: [u32; 2],
    number: u64,
}

impl ProblemKey {
    /// The key of problem number `problem` under `seed`. Replicates share the seed and differ in the
    /// problem.
    #[must_use]
    pub fn new(seed: u64, problem: u64) -> Self {
        let [problem_low, problem_high] = split(problem);
        let words = philox4x32_10([problem_low, problem_high, 0x6C6F_636B, 0x7374_6570], split(seed));
        Self { words: [words[0], words[1]], number: problem }
    }

    /// The same problem number under another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self::new(seed, self.number)
    }
}

fn split(x: u64) -> [u32; 2] {
    [(x & LOW) as u32, (x >> 32) as u32]
}

/// The key of one draw: it fixes all of the draw's noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DrawKey {
    /// The problem the draw belongs to.
    pub problem: ProblemKey,
    /// The slot of the particle, or [`POPULATION`].
    pub particle: u32,
    /// The step, from 1.
    pub step: u32,
    /// The number of the draw within its particle's step, from 0.
    pub ordinal: u32,
}

impl DrawKey {
    /// The key of draw `ordinal` in step `step` of `particle`.
    #[must_use]
    pub fn new(problem: ProblemKey, particle: u32, step: u32, ordinal: u32) -> Self {
        Self { problem, particle, step, ordinal }
    }

    /// The four words of block `block`.
    #[must_use]
    pub fn block(&self, block: u32) -> [u32; 4] {
        philox4x32_10([self.particle, self.step, self.ordinal, block], self.problem.words)
    }

    /// The uniform number at `position`, in [2⁻⁵³, 1 − 2⁻⁵³].
    #[must_use]
    pub fn uniform(&self, position: u32) -> f64 {
        uniform_lane(self.bits_lane(position))
    }

    /// Standard Gumbel noise at `position`: `−ln(−ln u)`, in [−3.604, 36.737].
    #[must_use]
    pub fn gumbel(&self, position: u32) -> f64 {
        simd::run(Gumbel { key: self, position })
    }

    /// Both u64 of block `block`.
    #[inline(always)]
    fn pair_lane(&self, block: u32) -> [u64; 2] {
        let counter = [self.particle, self.step, self.ordinal, block].map(u64::from);
        let c = philox_lane(counter, self.problem.words);
        [c[0] & LOW | c[1] << 32, c[2] & LOW | c[3] << 32]
    }

    /// The u64 at `position`.
    #[inline(always)]
    pub(crate) fn bits_lane(&self, position: u32) -> u64 {
        let [even, odd] = self.pair_lane(position / 2);
        if position.is_multiple_of(2) { even } else { odd }
    }

    /// The u64 at the positions from `start`, which is even, one an element of `out`, whose length
    /// is even.
    #[inline(always)]
    pub(crate) fn fill_bits(&self, start: u32, out: &mut [u64]) {
        debug_assert!(start.is_multiple_of(2) && out.len().is_multiple_of(2));
        for (j, pair) in (start / 2..).zip(out.as_chunks_mut::<2>().0) {
            *pair = self.pair_lane(j);
        }
    }
}

/// The uniform number of 64 random bits.
#[inline(always)]
pub(crate) fn uniform_lane(bits: u64) -> f64 {
    // The difference is exact.
    mantissa_lane(bits) - (1.0 - f64::EPSILON / 2.0)
}

/// A number in [1, 2): 1 + u, less half a step, of [`uniform_lane`].
#[inline(always)]
pub(crate) fn mantissa_lane(bits: u64) -> f64 {
    f64::from_bits(1.0_f64.to_bits() | bits >> 12)
}

/// Gumbel noise of 64 random bits.
#[inline(always)]
pub(crate) fn gumbel_lane(bits: u64) -> f64 {
    -ln_lane(-ln_lane(uniform_lane(bits)))
}

struct Gumbel<'a> {
    key: &'a DrawKey,
    position: u32,
}

impl Kernel for Gumbel<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        gumbel_lane(self.key.bits_lane(self.position))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd;

    #[test]
    fn smc_18_philox_has_its_published_values() {
        let zero = philox4x32_10([0; 4], [0; 2]);
        assert_eq!(zero, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);

        let problem = ProblemKey::new(42, 0);
        assert_eq!(problem.words, [0x0dc2_d0fd, 0x0014_3914]);
        let key = DrawKey::new(problem, 3, 7, 1);
        assert_eq!(key.block(0), [0xc753_d53a, 0xc11e_01ed, 0x115c_14c9, 0xee00_2056]);
        assert_eq!(key.uniform(0), 0.754_364_128_638_669_6);
        assert_eq!(key.uniform(1), 0.929_689_427_387_856_8);
    }

    #[test]
    fn smc_18_uniforms_reach_neither_end() {
        assert_eq!(uniform_lane(u64::MAX), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(uniform_lane(0), f64::EPSILON / 2.0);
    }

    #[test]
    fn b_24_philox_on_all_ones_and_on_digits_of_pi() {
        let ones = philox4x32_10([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits =
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(digits, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn samplers_14_noise_is_finite_at_both_ends() {
        assert!((gumbel_lane(u64::MAX) - 36.736_8).abs() < 1e-4);
        assert!((gumbel_lane(0) - -3.603_8).abs() < 1e-4);
    }

    struct Fill<'a>(&'a DrawKey, u32, &'a mut [u64]);

    impl Kernel for Fill<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            self.0.fill_bits(self.1, self.2);
        }
    }

    proptest! {
        #[test]
        fn smc_18_philox_agrees_with_another_implementation(counter: [u32; 4], key: [u32; 2]) {
            prop_assert_eq!(philox4x32_10(counter, key), rand_philox::philox4x32_10(counter, key));
        }

        #[test]
        fn uniforms_follow_the_formula(seed: u64, particle: u32, step: u32, position: u32) {
            let key = DrawKey::new(ProblemKey::new(seed, 1), particle, step, 0);
            let words = key.block(position / 2);
            let half = 2 * (position % 2) as usize;
            let x = u64::from(words[half]) | u64::from(words[half + 1]) << 32;
            let expected = ((x >> 12) as f64 + 0.5) * (-52.0_f64).exp2();
            prop_assert_eq!(key.uniform(position), expected);
            prop_assert_eq!(mantissa_lane(x) - 1.0 + f64::EPSILON / 2.0, expected);
        }

        #[test]
        fn a_filled_row_holds_the_numbers_of_its_positions(seed: u64, start in 0u32..1_000_000, len in 0usize..70) {
            let key = DrawKey::new(ProblemKey::new(seed, 0), 0, 1, 0);
            let mut wide = vec![0; 2 * len];
            let mut portable = vec![0; 2 * len];
            simd::run(Fill(&key, 2 * start, &mut wide));
            Fill(&key, 2 * start, &mut portable).run();
            prop_assert_eq!(&wide, &portable);
            for (position, bits) in (2 * start..).zip(wide) {
                prop_assert_eq!(bits, key.bits_lane(position));
                prop_assert_eq!(key.gumbel(position).to_bits(), gumbel_lane(bits).to_bits());
            }
        }
    }
}
