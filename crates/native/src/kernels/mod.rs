//! The kernels, and the one place where an instruction set is chosen.
//!
//! A kernel is a struct of its arguments with a generic body ([`Kernel::run`]); [`Isa::run`] picks
//! the instantiation. All of them give the same bits: every output element is one chain of fused
//! multiply-adds in ascending order of the summed index,
//!
//! ```text
//! acc <- fma(x[k], w[k], acc),   k = 0, 1, 2, ...
//! ```
//!
//! and lanes are never added to each other except by [`F32x16::sum`]. So a result depends neither on
//! the instruction set, nor on tile shapes, nor on what else is computed beside it.
#![allow(unsafe_code)]

mod attention;
mod columns;
mod elementwise;
mod matmul;
mod simd;
#[cfg(test)]
mod tests;

pub(crate) use attention::{Attend, Query};
pub(crate) use columns::ColumnsMut;
pub(crate) use elementwise::{AddInto, NormScale, NormSquares, SiluMul};
pub(crate) use matmul::{Matmul, PANELS, Store};
#[cfg(target_arch = "x86_64")]
use simd::Avx2;
pub(crate) use simd::{F32x16, Portable, Simd, U32x16};

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isa {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// A computation with a body for any instruction set.
pub(crate) trait Kernel {
    type Output;

    /// The body. Mark it, and what it calls, `#[inline(always)]`: only then is it compiled for the
    /// instruction set of `s`. It must use no closures around `s`, which would be compiled apart.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

impl Isa {
    /// The widest instruction set that this processor has and that there are kernels for.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Portable(Portable)
    }

    /// Runs `kernel`, compiled for this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Portable(s) => kernel.run(s),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves that the processor has the instructions.
            Self::Avx2(s) => unsafe { run_avx2(kernel, s) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K, s: Avx2) -> K::Output {
    kernel.run(s)
}
