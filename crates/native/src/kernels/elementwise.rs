//! Norms, activations and the exponential.
//!
//! The exponential is `2^n * p(r)` with `n = round(x / ln 2)`, `r = x - n ln 2` and the Taylor
//! polynomial of degree 7, whose error on |r| <= ln 2 / 2 is below 1e-8: about one unit in the last
//! place of f32, and exactly 1 at 0.

use super::{F32x16, Kernel, Simd};

/// `exp(x)`, with x held within -87 ..= 88 so that the result is a normal number; NaN stays NaN.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub(super) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    /// 1.5 * 2^23: adding it rounds to an integer, which then sits in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = s.min(s.splat(88.0), s.max(s.splat(-87.0), x));
    let shifted = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    // ln 2 in two parts, the first short enough that n times it is exact.
    let r = s.fma(n, s.splat(-0.693_359_375), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    let power = s.add_u(s.shl::<23>(s.bits(shifted)), s.splat_u(0x3f80_0000));
    s.mul(p, s.float(power))
}

/// Adds the squares of every row's lanes: the first half of a root-mean-square norm.
pub(crate) struct NormSquares<'a> {
    /// `[panels][rows]`.
    pub(crate) x: &'a [F32x16],
    /// A line for each row; lane i sums the squares of the elements with index i modulo 16.
    pub(crate) squares: &'a mut [F32x16],
}

impl Kernel for NormSquares<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.squares.fill(F32x16::ZERO);
        for panel in self.x.chunks_exact(self.squares.len()) {
            for (x, sum) in panel.iter().zip(&mut *self.squares) {
                let x = s.load(x);
                s.store(s.fma(x, x, s.load(sum)), sum);
            }
        }
    }
}

/// `out = x * scale * weight` for one panel: the second half of a norm.
pub(crate) struct NormScale<'a> {
    pub(crate) x: &'a [F32x16],
    /// One factor for each row.
    pub(crate) scales: &'a [f32],
    pub(crate) weight: &'a F32x16,
    pub(crate) out: &'a mut [F32x16],
}

impl Kernel for NormScale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let weight = s.load(self.weight);
        for ((x, scale), out) in self.x.iter().zip(self.scales).zip(self.out) {
            s.store(s.mul(s.mul(s.load(x), s.splat(*scale)), weight), out);
        }
    }
}

/// `x += y`.
pub(crate) struct AddInto<'a> {
    pub(crate) x: &'a mut [F32x16],
    pub(crate) y: &'a [F32x16],
}

impl Kernel for AddInto<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.iter_mut().zip(self.y) {
            s.store(s.add(s.load(x), s.load(y)), x);
        }
    }
}

/// `gate <- gate / (1 + exp(-gate)) * up`: the gated unit of a feed-forward layer.
pub(crate) struct SiluMul<'a> {
    pub(crate) gate: &'a mut [F32x16],
    pub(crate) up: &'a [F32x16],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            let x = s.load(gate);
            let silu = s.div(x, s.add(one, exp(s, s.sub(zero, x))));
            s.store(s.mul(silu, s.load(up)), gate);
        }
    }
}
