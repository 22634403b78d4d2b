//! What this machine could do at best, to measure a model against.

use std::hint::black_box;
use std::time::Instant;

use crate::kernels::{Isa, Kernel, Simd};

/// Fused multiply-adds of a lane in one round.
const STEPS: usize = 1 << 20;

/// Independent chains of a round, 16 lanes each: enough to hide the latency of every instruction set.
const CHAINS: usize = 6;

/// The f32 fused multiply-add peak of `threads` threads, in GFLOPS (a multiply-add is two): the
/// best of several rounds in registers, with the instruction set that the model's kernels use.
///
/// Takes a few hundredths of a second. Divide by two for multiply-adds a second, the unit of
/// [`multiply_adds_per_token`](crate::NativeModel::multiply_adds_per_token).
#[must_use]
pub fn f32_peak_gflops(threads: usize) -> f64 {
    const ROUNDS: usize = 5;
    let isa = Isa::detect();
    let threads = threads.max(1);
    let round = || {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| black_box(isa.run(Peak { steps: black_box(STEPS) })));
            }
        });
        begin.elapsed().as_secs_f64()
    };
    let seconds = (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min);
    (2 * 16 * CHAINS * STEPS * threads) as f64 / seconds / 1e9
}

/// Chains of fused multiply-adds that never leave the registers.
struct Peak {
    steps: usize,
}

impl Kernel for Peak {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
        let mut chains = [s.splat(0.5); CHAINS];
        for _ in 0..self.steps {
            for chain in &mut chains {
                *chain = s.fma(*chain, a, b);
            }
        }
        let mut total = crate::kernels::F32x16::ZERO;
        for chain in chains {
            let sum = s.add(s.load(&total), chain);
            s.store(sum, &mut total);
        }
        total.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chains_approach_their_fixed_point() {
        // x <- 0.999 x + 0.001 tends to 1 in every lane of every chain.
        let sum = Isa::detect().run(Peak { steps: 20_000 });
        assert!((sum - (16 * CHAINS) as f32).abs() < 0.1, "{sum}");
    }

    #[test]
    fn the_peak_is_a_speed() {
        let peak = f32_peak_gflops(1);
        assert!(peak.is_finite() && peak > 0.0, "{peak}");
    }
}
