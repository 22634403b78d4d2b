//! One body, several instruction sets.
//!
//! A [`Kernel`] is plain Rust whose loops the compiler vectorises. [`run`] executes it compiled for
//! the best instruction set of the machine. The body states every fused multiply-add itself and
//! fixes the order of every sum, and the compiler may change neither, so all levels agree bit for
//! bit.

/// A hot loop with its arguments.
pub(crate) trait Kernel {
    /// What the loop computes.
    type Output;

    /// The body. Implementations are `#[inline(always)]`, as is all they call in their loops: it
    /// takes on the instruction set of whoever inlines it.
    fn run(self) -> Self::Output;
}

/// Runs `kernel` at the best level this machine has.
#[inline]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        #[allow(unsafe_code, reason = "a function compiled for more than the baseline is unsafe to call")]
        // SAFETY: the machine has both features that `run_avx2` is compiled for.
        return unsafe { run_avx2(kernel) };
    }
    run_portable(kernel)
}

/// Runs `kernel` compiled for the target's baseline.
pub(crate) fn run_portable<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
