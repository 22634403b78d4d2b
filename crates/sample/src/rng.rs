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
    (0..ROUNDS).fold(counter, |c, round| next_round(c, round_key(key, round)))
}

#[inline(always)]
fn next_round(c: [u64; 4], key: [u64; 2]) -> [u64; 4] {
    let [p0, p1] = products(c[0], c[2]);
    [p1 >> 32 ^ (c[1] ^ key[0]), p1, p0 >> 32 ^ (c[3] ^ key[1]), p0]
}

#[inline(always)]
fn products(word0: u64, word2: u64) -> [u64; 2] {
    [(word0 & LOW) * MULTIPLIERS[0], (word2 & LOW) * MULTIPLIERS[1]]
}

#[inline(always)]
fn round_key(key: [u32; 2], round: u32) -> [u64; 2] {
    [0, 1].map(|i| u64::from(key[i].wrapping_add(WEYL[i].wrapping_mul(round))))
}

/// The two u64 of a block's words.
#[inline(always)]
fn halves(c: [u64; 4]) -> [u64; 2] {
    [c[0] & LOW | c[1] << 32, c[2] & LOW | c[3] << 32]
}

/// A draw's generator, with the work done that is the same for all its blocks. A round carries a block's
/// number one word further, so the first few have words that it has not reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// What the number meets in round 1.
    first: u64,
    /// What round 2 adds to word 0, round 3 to words 0 and 2, and round 4 to word 0.
    second: u64,
    third: [u64; 2],
    fourth: u64,
    keys: [[u64; 2]; ROUNDS as usize],
}

impl Stream {
    #[inline(always)]
    fn new(counter: [u32; 3], key: [u32; 2]) -> Self {
        let keys = std::array::from_fn(|round| round_key(key, round as u32));
        let [k1, k2, k3, k4] = [keys[0], keys[1], keys[2], keys[3]];
        let [p0, p1] = products(u64::from(counter[0]), u64::from(counter[2]));
        let (first, word3) = (p0 >> 32 ^ k1[1], p0);
        let (second, [p0, _]) = (p1 ^ k2[0], products(p1 >> 32 ^ u64::from(counter[1]) ^ k1[0], 0));
        let (third2, word2) = (p0 ^ k3[1], p0 >> 32 ^ word3 ^ k2[1]);
        let [_, p1] = products(0, word2);
        Self { first, second, third: [p1 >> 32 ^ k3[0], third2], fourth: p1 ^ k4[0], keys }
    }

    /// The words of block `block` before the last round.
    #[inline(always)]
    fn late(&self, block: u32) -> [u64; 4] {
        let [_, p1] = products(0, u64::from(block) ^ self.first);
        let [p0, _] = products(p1 >> 32 ^ self.second, 0);
        let [q0, q1] = products(p1 ^ self.third[0], p0 >> 32 ^ self.third[1]);
        let mut c = [q1 >> 32 ^ self.fourth, q1, q0 >> 32 ^ p0 ^ self.keys[3][1], q0];
        for key in &self.keys[4..self.keys.len() - 1] {
            c = next_round(c, *key);
        }
        c
    }

    /// Both u64 of block `block`.
    #[inline(always)]
    fn pair(&self, block: u32) -> [u64; 2] {
        halves(next_round(self.late(block), self.keys[self.keys.len() - 1]))
    }

    /// The upper word of the larger u64 of block `block`.
    #[inline(always)]
    fn top(&self, block: u32) -> u32 {
        let [c0, _, c2, _] = self.late(block);
        let [p0, p1] = products(c0, c2);
        (p0 as u32).max(p1 as u32)
    }

    /// The u64 at the positions from `start`, which is even, one an element of `out`, whose length
    /// is even.
    #[inline(always)]
    pub(crate) fn fill_bits(&self, start: u32, out: &mut [u64]) {
        debug_assert!(start.is_multiple_of(2) && out.len().is_multiple_of(2));
        for (block, pair) in (start / 2..).zip(out.as_chunks_mut::<2>().0) {
            *pair = self.pair(block);
        }
    }

    /// The upper word of the larger u64 of every two positions from `start`, which is even.
    #[inline(always)]
    pub(crate) fn fill_tops(&self, start: u32, out: &mut [u32]) {
        debug_assert!(start.is_multiple_of(2));
        for (block, top) in (start / 2..).zip(out) {
            *top = self.top(block);
        }
    }
}

/// The largest bits with this upper word.
#[inline(always)]
pub(crate) fn bits_below(top: u32) -> u64 {
    u64::from(top) << 32 | LOW
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

    /// The generator of the draw's numbers, many at a time.
    #[inline(always)]
    pub(crate) fn stream(&self) -> Stream {
        Stream::new([self.particle, self.step, self.ordinal], self.problem.words)
    }

    /// The u64 at `position`.
    #[inline(always)]
    pub(crate) fn bits_lane(&self, position: u32) -> u64 {
        let counter = [self.particle, self.step, self.ordinal, position / 2].map(u64::from);
        let [even, odd] = halves(philox_lane(counter, self.problem.words));
        if position.is_multiple_of(2) { even } else { odd }
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
            self.0.stream().fill_bits(self.1, self.2);
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
        fn a_filled_row_holds_the_numbers_of_its_positions(seed: u64, particle: u32, step: u32, start in 0u32..1_000_000, len in 0usize..70) {
            let key = DrawKey::new(ProblemKey::new(seed, 0), particle, step, particle ^ step);
            let mut wide = vec![0; 2 * len];
            let mut portable = vec![0; 2 * len];
            simd::run(Fill(&key, 2 * start, &mut wide));
            Fill(&key, 2 * start, &mut portable).run();
            prop_assert_eq!(&wide, &portable);
            let mut tops = vec![0; len];
            key.stream().fill_tops(2 * start, &mut tops);
            for (pair, top) in wide.chunks(2).zip(tops) {
                prop_assert_eq!(pair[0].max(pair[1]) >> 32, u64::from(top));
                prop_assert!(pair[0].max(pair[1]) <= bits_below(top));
            }
            for (position, bits) in (2 * start..).zip(wide) {
                prop_assert_eq!(bits, key.bits_lane(position));
                prop_assert_eq!(key.gumbel(position).to_bits(), gumbel_lane(bits).to_bits());
            }
        }
    }
}
