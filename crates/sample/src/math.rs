//! Exponential and logarithm in f64, the same bits at every SIMD level.
//!
//! The standard library's versions are not specified to the bit and do not vectorise. These are
//! branch-free, so that a loop over them does, and they fuse exactly the multiply-adds that are
//! written as such. Both stay within 1.1 units in the last place, subnormal numbers included.
//!
//! - `exp x = 2^n · (1 + r + r² q(r))` with `n = round(x / ln 2)`, `r = x − n ln 2`, and `q` of
//!   degree 9 with the smallest error relative to `e^r` over `|r| ≤ ½ ln 2`.
//! - `ln x = k ln 2 + f − s (f − R)` with `x = 2^k (1 + f)`, `√½ ≤ 1 + f < √2`, `s = f / (2 + f)`,
//!   and `R = 2 s²/3 + 2 s⁴/5 + …`, the tail of `2 atanh(s)/s`, as a polynomial of degree 7 in `s²`
//!   through Chebyshev nodes.

use crate::blocks;
use crate::draw::Weights;
use crate::simd::{self, Kernel};

/// `e^x`. Below about −745.13 it is 0, above about 709.78 infinite; NaN stays NaN.
#[must_use]
pub fn exp(x: f64) -> f64 {
    simd::run(Exp(x))
}

/// The natural logarithm of `x`: `-inf` at 0, NaN below.
#[must_use]
pub fn ln(x: f64) -> f64 {
    simd::run(Ln(x))
}

/// `ln Σ exp w`, shifted by the maximum; `-inf` if `w` is empty or all `-inf`, never NaN.
///
/// Entries are finite or `-inf`. The order of the sum is that of [`log_total`](crate::log_total).
#[must_use]
pub fn log_sum_exp(w: &[f64]) -> f64 {
    blocks::log_total(&Weights::dense(w))
}

/// `exp(w − shift)` of every entry: [`exp`], many at a time.
#[must_use]
pub fn exp_shifted(w: &[f64], shift: f64) -> Vec<f64> {
    simd::run(ExpShifted { w, shift })
}

struct ExpShifted<'a> {
    w: &'a [f64],
    shift: f64,
}

impl Kernel for ExpShifted<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let mut masses = vec![0.0; self.w.len()];
        for (mass, &w) in masses.iter_mut().zip(self.w) {
            *mass = exp_lane(w - self.shift);
        }
        masses
    }
}

struct Exp(f64);

impl Kernel for Exp {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        exp_lane(self.0)
    }
}

struct Ln(f64);

impl Kernel for Ln {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        ln_lane(self.0)
    }
}

/// The high 33 bits of ln 2: its product with any exponent is exact.
const LN_2_HIGH: f64 = 0.693_147_180_485_539_1;
/// ln 2 − [`LN_2_HIGH`].
const LN_2_LOW: f64 = 7.440_617_110_012_397e-11;
const EXPONENT: u32 = 52;
const MANTISSA: u64 = (1 << EXPONENT) - 1;

/// Adding it rounds to an integer and leaves that integer in the low bits.
pub(crate) const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52
/// ln 2^−1075: below it the exponential rounds to 0.
const EXP_ZERO: f64 = -745.133_219_101_941_1;
/// Far enough above ln 2^1024 to overflow, near enough for the exponent arithmetic.
const EXP_OVERFLOW: f64 = 710.0;
/// Above it 2^n is a normal number, and so is its product with [`exp_parts`]'s `y`.
pub(crate) const MASS_ZERO: f64 = -708.0;
const EXP_Q: [f64; 10] = [
    0.5,
    0.166_666_666_666_664_33,
    0.041_666_666_666_603_9,
    0.008_333_333_333_500_182,
    0.001_388_888_892_681_907_4,
    0.000_198_412_694_659_707_57,
    2.480_150_865_452_707e-5,
    2.755_764_103_226_595_6e-6,
    2.762_519_785_516_622_7e-7,
    2.497_834_355_986_683_5e-8,
];

/// Each `x` as `2^n · y` with `√½ ≤ y ≤ √2` up to rounding: `y`, and a number whose low bits are `n` in
/// two's complement.
///
/// A number's steps wait for each other. Those of several stand side by side, so that one's waits are
/// filled with another's work.
#[inline(always)]
fn exp_parts<const N: usize>(x: [f64; N]) -> ([f64; N], [u64; N]) {
    use std::array::from_fn as each;
    let shifted: [f64; N] = each(|i| x[i].mul_add(std::f64::consts::LOG2_E, ROUND));
    let n: [f64; N] = each(|i| shifted[i] - ROUND);
    let r: [f64; N] = each(|i| n[i].mul_add(-LN_2_HIGH, x[i]));
    let r: [f64; N] = each(|i| n[i].mul_add(-LN_2_LOW, r[i]));

    let r2: [f64; N] = each(|i| r[i] * r[i]);
    let (mut even, mut odd) = ([EXP_Q[8]; N], [EXP_Q[9]; N]);
    for k in [6, 4, 2, 0] {
        even = each(|i| even[i].mul_add(r2[i], EXP_Q[k]));
        odd = each(|i| odd[i].mul_add(r2[i], EXP_Q[k + 1]));
    }
    let q: [f64; N] = each(|i| odd[i].mul_add(r[i], even[i]));
    (each(|i| 1.0 + q[i].mul_add(r2[i], r[i])), shifted.map(f64::to_bits))
}

/// [`exp`] for use inside kernels.
#[inline(always)]
pub(crate) fn exp_lane(x: f64) -> f64 {
    let clamped = x.clamp(EXP_ZERO, EXP_OVERFLOW);
    let ([y], [n]) = exp_parts([clamped]);
    // Two factors, the first product exact: with one, subnormal results and the topmost exponent
    // would be out of reach.
    let n = n.wrapping_sub(ROUND.to_bits()).wrapping_add(2048);
    let half = n >> 1;
    let first = y * f64::from_bits(half.wrapping_sub(1) << EXPONENT);
    let y = first * f64::from_bits(n.wrapping_sub(half).wrapping_sub(1) << EXPONENT);
    if x < EXP_ZERO { 0.0 } else { y }
}

/// The mass `e^x` of an entry `−x ≥ 0` nats below the largest of its row: [`exp`], but 0 where that is
/// below about 2⁻¹⁰²¹, which no sum that is at least 1 can feel.
#[inline(always)]
pub(crate) fn mass_lane(x: f64) -> f64 {
    let [mass] = mass_lanes([x]);
    mass
}

/// [`mass_lane`] of several numbers, side by side.
#[inline(always)]
pub(crate) fn mass_lanes<const N: usize>(x: [f64; N]) -> [f64; N] {
    let (y, n) = exp_parts(x);
    std::array::from_fn(|i| {
        let y = f64::from_bits(y[i].to_bits().wrapping_add(n[i] << EXPONENT));
        if x[i] < MASS_ZERO { 0.0 } else { y }
    })
}

const ONE_BITS: u64 = 0x3FF0_0000_0000_0000;
const SQRT_HALF_BITS: u64 = 0x3FE6_A09E_667F_3BCD;
const TWO_52: f64 = 4_503_599_627_370_496.0;
const TWO_54: f64 = 18_014_398_509_481_984.0;
const LN_R: [f64; 7] = [
    0.666_666_666_666_667,
    0.399_999_999_998_992_4,
    0.285_714_286_260_958_9,
    0.222_222_111_151_441_6,
    0.181_828_905_566_956_02,
    0.153_316_740_301_678_6,
    0.146_170_375_487_916_5,
];

/// [`ln`] for use inside kernels.
#[inline(always)]
pub(crate) fn ln_lane(x: f64) -> f64 {
    let subnormal = x < f64::MIN_POSITIVE;
    let scaled = if subnormal { x * TWO_54 } else { x };
    let bias = if subnormal { TWO_52 + 1023.0 + 54.0 } else { TWO_52 + 1023.0 };

    // Counting from √½ instead of from 1 makes the exponent field that of the nearest power of two.
    let bits = scaled.to_bits().wrapping_add(ONE_BITS - SQRT_HALF_BITS);
    let k = f64::from_bits(TWO_52.to_bits() | bits >> EXPONENT) - bias;
    let f = f64::from_bits((bits & MANTISSA) + SQRT_HALF_BITS) - 1.0;

    let s = f / (2.0 + f);
    let z = s * s;
    let c = LN_R;
    let z2 = z * z;
    let low = c[3].mul_add(z, c[2]).mul_add(z2, c[1].mul_add(z, c[0]));
    let high = c[6].mul_add(z2, c[5].mul_add(z, c[4]));
    let r = z * high.mul_add(z2 * z2, low);

    // The exact sum k ln 2 (high part) + f as value and rounding error: |k ln 2| ≥ |f| unless k = 0.
    let k_ln_2 = k * LN_2_HIGH;
    let sum = k_ln_2 + f;
    let lost = (k_ln_2 - sum) + f;
    let y = sum + (lost + s.mul_add(r - f, k * LN_2_LOW));

    let y = if x < f64::INFINITY { y } else { x };
    let y = if x > 0.0 { y } else { f64::NAN };
    if x == 0.0 { f64::NEG_INFINITY } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{DrawKey, ProblemKey};

    /// Uniform numbers in `low..high`.
    fn samples(n: u32, low: f64, high: f64) -> impl Iterator<Item = f64> {
        let key = DrawKey::new(ProblemKey::new(7, 7), 0, 1, 0);
        (0..n).map(move |i| low + (high - low) * key.uniform(i))
    }

    /// Units in the last place between two numbers of one sign.
    fn ulps(a: f64, b: f64) -> u64 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn exp_is_within_an_ulp_of_the_standard_library() {
        for (low, high) in [(-745.2, 709.79), (-745.2, -708.0), (-1.0, 1.0), (-1e-9, 1e-9), (-40.0, 0.0)] {
            for x in samples(100_000, low, high) {
                assert!(ulps(exp(x), x.exp()) <= 1, "exp({x}) = {} not {}", exp(x), x.exp());
            }
        }
    }

    #[test]
    fn exp_at_its_edges() {
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e300), 0.0);
        assert_eq!(exp(-745.14), 0.0);
        assert_eq!(exp(-745.13), f64::from_bits(1));
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(709.78), 709.78_f64.exp());
        assert_eq!(exp(709.79), f64::INFINITY);
        assert_eq!(exp(f64::INFINITY), f64::INFINITY);
        assert!(exp(f64::NAN).is_nan());
    }

    #[test]
    fn masses_are_exponentials_down_to_the_normal_range() {
        for x in samples(100_000, -708.0, 0.0) {
            assert_eq!(mass_lane(x).to_bits(), exp(x).to_bits());
        }
        for x in [-708.1, -745.0, -1e5, f64::MIN, f64::NEG_INFINITY] {
            assert_eq!(mass_lane(x).to_bits(), 0);
        }
    }

    #[test]
    fn many_exponentials_are_each_the_one() {
        let w: Vec<f64> = samples(1000, -800.0, 1.0).chain([f64::NEG_INFINITY, -0.0]).collect();
        for (mass, w) in exp_shifted(&w, 0.75).into_iter().zip(&w) {
            assert_eq!(mass.to_bits(), exp(w - 0.75).to_bits());
        }
    }

    #[test]
    fn ln_is_within_an_ulp_of_the_standard_library() {
        for (low, high) in [(0.0, 1.0), (0.5, 2.0), (0.99, 1.01), (0.0, 1e-300), (0.0, 1e-310), (1.0, 1e300)]
        {
            for x in samples(100_000, low, high) {
                let (ours, theirs) = (ln(x), x.ln());
                assert!(ulps(ours, theirs) <= 1, "ln({x:e}) = {ours} not {theirs}");
            }
        }
    }

    #[test]
    fn ln_at_its_edges() {
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert_eq!(ln(-0.0), f64::NEG_INFINITY);
        assert_eq!(ln(1.0).to_bits(), 0);
        assert_eq!(ln(f64::INFINITY), f64::INFINITY);
        assert!(ulps(ln(f64::from_bits(1)), f64::from_bits(1).ln()) <= 1);
        assert!(ulps(ln(f64::MAX), f64::MAX.ln()) <= 1);
        assert!(ln(-1.0).is_nan() && ln(f64::NEG_INFINITY).is_nan() && ln(f64::NAN).is_nan());
    }

    struct Both<'a>(&'a [f64], &'a mut [[f64; 3]]);

    impl Kernel for Both<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            for (&x, out) in self.0.iter().zip(self.1) {
                *out = [exp_lane(x), mass_lane(-x.abs()), ln_lane(x)];
            }
        }
    }

    #[test]
    fn all_simd_levels_agree_bit_for_bit() {
        let x: Vec<f64> = samples(10_001, -750.0, 750.0).chain(samples(10_000, 0.0, 2.0)).collect();
        let mut wide = vec![[0.0; 3]; x.len()];
        let mut portable = wide.clone();
        simd::run(Both(&x, &mut wide));
        Both(&x, &mut portable).run();
        for ((x, wide), portable) in x.iter().zip(wide).zip(portable) {
            // NaN has more than one pattern.
            let bits = |y: f64| if y.is_nan() { u64::MAX } else { y.to_bits() };
            assert_eq!(wide.map(bits), portable.map(bits), "at {x}");
        }
    }

    #[test]
    fn log_sum_exp_is_shifted_and_never_nan() {
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[f64::NEG_INFINITY; 5]), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[-1e6]), -1e6);
        assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2.0_f64.ln())).abs() < 1e-12);
        assert!((log_sum_exp(&[0.2_f64.ln(), 0.3_f64.ln(), f64::NEG_INFINITY]) - 0.5_f64.ln()).abs() < 1e-15);
    }
}
