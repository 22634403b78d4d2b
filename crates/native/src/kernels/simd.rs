//! Sixteen lanes at a time: the operations that kernels are written in.
//!
//! A kernel is one generic body over [`Simd`]; [`Isa::run`](super::Isa::run) instantiates it for an
//! instruction set. Each operation is exact or rounds once, as IEEE 754 says, so every
//! instantiation computes the same bits. Nothing here adds lanes up in an order of its own.

/// Sixteen f32 values: one lane each of a panel of 16 outputs, or of 16 positions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct F32x16(pub(crate) [f32; 16]);

/// Sixteen 32-bit words, one for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct U32x16(pub(crate) [u32; 16]);

impl F32x16 {
    pub(crate) const ZERO: Self = Self([0.0; 16]);

    /// The sum of the lanes, halves first: lane i joins lane i + 8, then + 4, + 2, + 1.
    pub(crate) fn sum(self) -> f32 {
        let mut lanes = self.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }
}

impl U32x16 {
    pub(crate) const ZERO: Self = Self([0; 16]);
}

/// An instruction set, as a value that exists only where the processor has it.
///
/// `F` and `U` are 16 lanes in registers.
pub(crate) trait Simd: Copy {
    type F: Copy;
    type U: Copy;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, from: &F32x16) -> Self::F;
    fn store(self, x: Self::F, to: &mut F32x16);
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where it is greater, else `b`: a NaN in `b` stays.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where it is less, else `b`: a NaN in `b` stays.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;

    /// Asks for the memory of `from` ahead of its use; only a hint.
    fn prefetch<T>(self, from: &T);

    fn splat_u(self, x: u32) -> Self::U;
    fn load_u(self, from: &U32x16) -> Self::U;
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn or(self, a: Self::U, b: Self::U) -> Self::U;
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn shl<const N: i32>(self, x: Self::U) -> Self::U;
    /// Shifts zeros in from above.
    fn shr<const N: i32>(self, x: Self::U) -> Self::U;
    /// Shifts copies of the sign bit in from above.
    fn sar<const N: i32>(self, x: Self::U) -> Self::U;
    /// The words as signed integers, converted.
    fn to_f32(self, x: Self::U) -> Self::F;
    fn bits(self, x: Self::F) -> Self::U;
    fn float(self, x: Self::U) -> Self::F;
}

/// Plain Rust, for every processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

/// Applies an expression to every lane.
macro_rules! lanes {
    ($i:ident => $e:expr) => {{
        let mut out = [Default::default(); 16];
        for $i in 0..16 {
            out[$i] = $e;
        }
        out
    }};
}

impl Simd for Portable {
    type F = [f32; 16];
    type U = [u32; 16];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, from: &F32x16) -> Self::F {
        from.0
    }
    #[inline(always)]
    fn store(self, x: Self::F, to: &mut F32x16) {
        to.0 = x;
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        lanes!(i => a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] / b[i])
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn prefetch<T>(self, _from: &T) {}
    #[inline(always)]
    fn splat_u(self, x: u32) -> Self::U {
        [x; 16]
    }
    #[inline(always)]
    fn load_u(self, from: &U32x16) -> Self::U {
        from.0
    }
    #[inline(always)]
    fn and(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i] & b[i])
    }
    #[inline(always)]
    fn or(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i] | b[i])
    }
    #[inline(always)]
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn shl<const N: i32>(self, x: Self::U) -> Self::U {
        lanes!(i => x[i] << N)
    }
    #[inline(always)]
    fn shr<const N: i32>(self, x: Self::U) -> Self::U {
        lanes!(i => x[i] >> N)
    }
    #[inline(always)]
    fn sar<const N: i32>(self, x: Self::U) -> Self::U {
        lanes!(i => (x[i].cast_signed() >> N).cast_unsigned())
    }
    #[inline(always)]
    fn to_f32(self, x: Self::U) -> Self::F {
        lanes!(i => x[i].cast_signed() as f32)
    }
    #[inline(always)]
    fn bits(self, x: Self::F) -> Self::U {
        lanes!(i => x[i].to_bits())
    }
    #[inline(always)]
    fn float(self, x: Self::U) -> Self::F {
        lanes!(i => f32::from_bits(x[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::Avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256,
        _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cvtepi32_ps, _mm256_div_ps, _mm256_fmadd_ps,
        _mm256_load_ps, _mm256_load_si256, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_si256,
        _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srai_epi32, _mm256_srli_epi32,
        _mm256_store_ps, _mm256_sub_ps,
    };

    use super::{F32x16, Simd, U32x16};

    /// AVX2 with fused multiply-add; two registers hold the 16 lanes.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// The token, if this processor has the instructions.
        pub(crate) fn detect() -> Option<Self> {
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
        }
    }

    /// Applies an intrinsic to both halves.
    macro_rules! both {
        ($f:ident($($x:expr),+)) => {
            // SAFETY: a value of `Avx2` exists only where the processor has AVX2 and FMA.
            unsafe { [$f($($x[0]),+), $f($($x[1]),+)] }
        };
        ($f:ident::<$n:ident>($x:expr)) => {
            // SAFETY: as above.
            unsafe { [$f::<$n>($x[0]), $f::<$n>($x[1])] }
        };
    }

    impl Simd for Avx2 {
        type F = [__m256; 2];
        type U = [__m256i; 2];

        #[inline(always)]
        fn splat(self, x: f32) -> Self::F {
            // SAFETY: the token proves the instructions.
            unsafe { [_mm256_set1_ps(x); 2] }
        }
        #[inline(always)]
        fn load(self, from: &F32x16) -> Self::F {
            let from = from.0.as_ptr();
            // SAFETY: the token proves the instructions; the 16 values are readable and 64-byte aligned.
            unsafe { [_mm256_load_ps(from), _mm256_load_ps(from.add(8))] }
        }
        #[inline(always)]
        fn store(self, x: Self::F, to: &mut F32x16) {
            let to = to.0.as_mut_ptr();
            // SAFETY: the token proves the instructions; the 16 values are writable and 64-byte aligned.
            unsafe {
                _mm256_store_ps(to, x[0]);
                _mm256_store_ps(to.add(8), x[1]);
            }
        }
        #[inline(always)]
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
            both!(_mm256_fmadd_ps(a, b, c))
        }
        #[inline(always)]
        fn add(self, a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_add_ps(a, b))
        }
        #[inline(always)]
        fn sub(self, a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_sub_ps(a, b))
        }
        #[inline(always)]
        fn mul(self, a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_mul_ps(a, b))
        }
        #[inline(always)]
        fn div(self, a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_div_ps(a, b))
        }
        #[inline(always)]
        fn max(self, a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_max_ps(a, b))
        }
        #[inline(always)]
        fn min(self, a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_min_ps(a, b))
        }
        #[inline(always)]
        fn prefetch<T>(self, from: &T) {
            // SAFETY: the instruction is part of x86-64, and changes nothing but what is cached.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()) }
        }
        #[inline(always)]
        fn splat_u(self, x: u32) -> Self::U {
            // SAFETY: the token proves the instructions.
            unsafe { [_mm256_set1_epi32(x.cast_signed()); 2] }
        }
        #[inline(always)]
        fn load_u(self, from: &U32x16) -> Self::U {
            let from = from.0.as_ptr().cast::<__m256i>();
            // SAFETY: the token proves the instructions; the 16 words are readable and 64-byte aligned.
            unsafe { [_mm256_load_si256(from), _mm256_load_si256(from.add(1))] }
        }
        #[inline(always)]
        fn and(self, a: Self::U, b: Self::U) -> Self::U {
            both!(_mm256_and_si256(a, b))
        }
        #[inline(always)]
        fn or(self, a: Self::U, b: Self::U) -> Self::U {
            both!(_mm256_or_si256(a, b))
        }
        #[inline(always)]
        fn add_u(self, a: Self::U, b: Self::U) -> Self::U {
            both!(_mm256_add_epi32(a, b))
        }
        #[inline(always)]
        fn shl<const N: i32>(self, x: Self::U) -> Self::U {
            both!(_mm256_slli_epi32::<N>(x))
        }
        #[inline(always)]
        fn shr<const N: i32>(self, x: Self::U) -> Self::U {
            both!(_mm256_srli_epi32::<N>(x))
        }
        #[inline(always)]
        fn sar<const N: i32>(self, x: Self::U) -> Self::U {
            both!(_mm256_srai_epi32::<N>(x))
        }
        #[inline(always)]
        fn to_f32(self, x: Self::U) -> Self::F {
            both!(_mm256_cvtepi32_ps(x))
        }
        #[inline(always)]
        fn bits(self, x: Self::F) -> Self::U {
            both!(_mm256_castps_si256(x))
        }
        #[inline(always)]
        fn float(self, x: Self::U) -> Self::F {
            both!(_mm256_castsi256_ps(x))
        }
    }
}
