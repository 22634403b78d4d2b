//! Arithmetic on the log-weights of a population, and the one way a weight changes.
//!
//! Log-weights are natural logs in f64. `-inf` is an impossible particle; NaN and `+inf` never
//! enter a population: [`add`] turns the first into `-inf` and refuses the second. Everything is
//! computed from weights shifted by their maximum, in index order, so log-weights of any size work
//! and a result depends on nothing but the weights.

use lockstep_sample::math;

/// What [`should_resample`] takes off its threshold, so that rounding in a nearly even population
/// never starts a resampling.
const SLACK: f64 = 1e-9;

/// A weight became `+inf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a potential returned +inf, which violates the potential contract")]
pub struct InfiniteWeight;

/// `weight + increment`: the only way a log-weight changes. A NaN increment or sum gives `-inf`.
///
/// # Errors
/// If the increment, or the sum, is `+inf`.
pub fn add(weight: f64, increment: f64) -> Result<f64, InfiniteWeight> {
    let sum = weight + increment;
    if increment == f64::INFINITY || sum == f64::INFINITY {
        return Err(InfiniteWeight);
    }
    Ok(if sum.is_nan() { f64::NEG_INFINITY } else { sum })
}

/// The largest log-weight; `-inf` if there is none.
fn maximum(log_weights: &[f64]) -> f64 {
    log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The weights on the linear scale, divided by the largest: `u_i = exp(w_i − max w)`; all 0 if
/// every log-weight is `-inf`. This is what the resamplers take.
#[must_use]
pub fn shifted(log_weights: &[f64]) -> Vec<f64> {
    let max = maximum(log_weights);
    if max == f64::NEG_INFINITY {
        return vec![0.0; log_weights.len()];
    }
    log_weights.iter().map(|w| math::exp(w - max)).collect()
}

/// The effective sample size `(Σu)² / Σu²`, between 1 and N; 0 if every log-weight is `-inf`, or
/// there is none. Equal weights give exactly N (Kong, Liu and Wong, 1994).
#[must_use]
pub fn ess(log_weights: &[f64]) -> f64 {
    let u = shifted(log_weights);
    let total: f64 = u.iter().sum();
    if total == 0.0 {
        return 0.0;
    }
    total * total / u.iter().map(|u| u * u).sum::<f64>()
}

/// Whether a population of `n` with this effective sample size resamples: `ess` is below
/// `threshold · n`, by more than rounding. A threshold of 0 never resamples.
#[must_use]
pub fn should_resample(ess: f64, threshold: f64, n: usize) -> bool {
    ess < threshold * n as f64 * (1.0 - SLACK)
}

/// `ln Σ exp(w_i)`, in nats; `-inf` if every log-weight is `-inf`, or there is none.
#[must_use]
pub fn log_total(log_weights: &[f64]) -> f64 {
    math::log_sum_exp(log_weights)
}

/// `ln((1/N)·Σ exp(w_i))`, in nats: the log-marginal estimate of a population. `-inf` if every
/// log-weight is `-inf`, or there is none.
#[must_use]
pub fn log_mean(log_weights: &[f64]) -> f64 {
    if log_weights.is_empty() {
        return f64::NEG_INFINITY;
    }
    log_total(log_weights) - math::ln(log_weights.len() as f64)
}

/// The weights on the linear scale, summing to 1; all 0 if every log-weight is `-inf`.
#[must_use]
pub fn normalized(log_weights: &[f64]) -> Vec<f64> {
    let mut weights = shifted(log_weights);
    let total: f64 = weights.iter().sum();
    if total > 0.0 {
        weights.iter_mut().for_each(|w| *w /= total);
    }
    weights
}

/// The logs of the normalised weights, in nats; all `-inf` if every log-weight is `-inf`.
#[must_use]
pub fn log_normalized(log_weights: &[f64]) -> Vec<f64> {
    let max = maximum(log_weights);
    if max == f64::NEG_INFINITY {
        return vec![f64::NEG_INFINITY; log_weights.len()];
    }
    // The shift comes off before the sum is taken off: weights of 1e15 would otherwise swallow it.
    let log_sum = math::ln(shifted(log_weights).iter().sum());
    log_weights.iter().map(|w| (w - max) - log_sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: f64 = f64::NEG_INFINITY;

    #[test]
    fn smc_10_effective_sample_size_and_threshold() {
        let size = ess(&[0.0, -1.0, -2.0, -3.0]);
        assert!((size - 2.086_110_8).abs() < 5e-8, "{size}");
        assert!(!should_resample(size, 0.5, 4));
        assert!(should_resample(size, 0.6, 4));

        let size = ess(&[0.0, 0.0, -20.0, -20.0]);
        assert!((size - 2.000_000_008_2).abs() < 5e-11, "{size}");
        assert!(!should_resample(size, 0.5, 4));
    }

    #[test]
    fn smc_11_equal_weights_never_resample() {
        for weight in [-1.3, -100.7] {
            for n in 1..=4096 {
                let size = ess(&vec![weight; n]);
                assert_eq!(size, n as f64);
                assert!(!should_resample(size, 1.0, n));
            }
        }
    }

    #[test]
    fn threshold_zero_never_resamples() {
        assert!(!should_resample(0.0, 0.0, 8));
        assert!(!should_resample(1.0, 0.0, 8));
        // Above the slack, a difference of one part in 10^8 counts.
        assert!(should_resample(8.0 * (1.0 - 1e-8), 1.0, 8));
        assert!(!should_resample(8.0 * (1.0 - 1e-10), 1.0, 8));
    }

    #[test]
    fn dead_and_empty_populations_have_no_nan() {
        for weights in [&[][..], &[DEAD; 3]] {
            assert_eq!(ess(weights), 0.0);
            assert_eq!(log_total(weights), DEAD);
            assert_eq!(log_mean(weights), DEAD);
            assert_eq!(normalized(weights), vec![0.0; weights.len()]);
            assert_eq!(shifted(weights), vec![0.0; weights.len()]);
            assert_eq!(log_normalized(weights), vec![DEAD; weights.len()]);
        }
        assert_eq!(ess(&[DEAD, -5.0, DEAD]), 1.0);
        assert_eq!(normalized(&[DEAD, -5.0]), [0.0, 1.0]);
    }

    #[test]
    fn log_weights_of_any_size_work() {
        for offset in [0.0, -1e6, 1e6, -1e15] {
            let weights = [offset, offset - 1.0, DEAD];
            let [a, b, c] = normalized(&weights)[..] else { unreachable!() };
            assert!((a - 0.731_058_578_630_004_9).abs() < 1e-15 && c == 0.0);
            assert!((a + b - 1.0).abs() < 1e-15);
            let logs = log_normalized(&weights);
            assert!((logs[0] - a.ln()).abs() < 1e-14 && (logs[1] - b.ln()).abs() < 1e-14);
            assert_eq!(logs[2], DEAD);
        }
        assert!((log_mean(&[-1000.0, -1000.0]) + 1000.0).abs() < 1e-12);
    }

    #[test]
    fn weight_discipline() {
        assert_eq!(add(-1.0, -0.5), Ok(-1.5));
        assert_eq!(add(-1.0, DEAD), Ok(DEAD));
        assert_eq!(add(DEAD, 3.0), Ok(DEAD));
        assert_eq!(add(-1.0, f64::NAN), Ok(DEAD));
        assert_eq!(add(f64::NAN, 0.0), Ok(DEAD));
        for weight in [-1.0, DEAD] {
            let error = add(weight, f64::INFINITY).unwrap_err();
            assert_eq!(error.to_string(), "a potential returned +inf, which violates the potential contract");
        }
        assert_eq!(add(f64::MAX, f64::MAX), Err(InfiniteWeight));
    }
}
