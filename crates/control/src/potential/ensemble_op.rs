//! The operations of an ensemble, on two log-weights.

use std::str::FromStr;

use lockstep_sample::math;

use crate::error::ControlError;

/// How an [`Ensemble`](super::Ensemble) joins two weights `x` and `y` at a share `a` in (0, 1).
///
/// Small `a` leans to the second weight in [`EnsembleOp::Power`], but to the first in
/// [`EnsembleOp::Min`] and [`EnsembleOp::Max`]: these interpolate between one weight and the
/// extreme of both, which they reach at `a = ½`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EnsembleOp {
    /// The weighted power mean `(a·x^p + (1 - a)·y^p)^(1/p)` at this exponent p; at 0 its limit
    /// `x^a · y^(1 - a)`. If p ≤ 0 and one of the weights is 0, so is the mean.
    Power(f64),
    /// In logs `(1 - 2a)·x + 2a·min(x, y)` up to a = ½, from there `(2a - 1)·y + 2(1 - a)·min(x, y)`.
    Min,
    /// As [`EnsembleOp::Min`], with the maximum.
    Max,
}

impl EnsembleOp {
    /// The weighted arithmetic mean.
    pub const SUM: Self = Self::Power(1.0);
    /// The weighted geometric mean.
    pub const PROD: Self = Self::Power(0.0);
    /// The weighted harmonic mean.
    pub const HARMONIC: Self = Self::Power(-1.0);

    /// The joint log-weight, `-inf` or finite if both are.
    pub(super) fn join(self, x: f64, y: f64, a: f64) -> f64 {
        match self {
            Self::Power(0.0) => times(a, x) + times(1.0 - a, y),
            Self::Power(p) => power_mean(p, x, y, a),
            Self::Min => towards(x, y, x.min(y), a),
            Self::Max => towards(x, y, x.max(y), a),
        }
    }
}

impl FromStr for EnsembleOp {
    type Err = ControlError;

    /// A number, the exponent of a power mean, or one of `sum`, `prod`, `harmonic`, `min`, `max`.
    fn from_str(text: &str) -> Result<Self, ControlError> {
        Ok(match text {
            "sum" => Self::SUM,
            "prod" => Self::PROD,
            "harmonic" => Self::HARMONIC,
            "min" => Self::Min,
            "max" => Self::Max,
            _ => match text.parse() {
                Ok(p) if f64::is_finite(p) => Self::Power(p),
                _ => {
                    return Err(ControlError::argument(format!(
                        "op: {text:?} must be sum, prod, harmonic, min, max or a finite number"
                    )));
                }
            },
        })
    }
}

/// `ln (a·e^{px} + (1 - a)·e^{py})^{1/p}`, p ≠ 0.
///
/// With m the one of x and y that dominates, and b the share of the other, this is
/// `m + ln(1 + b·(e^z - 1)) / p` for `z = p·(other - m) ≤ 0`, so nothing overflows. Small p cancel
/// nothing either: `e^z - 1` and `ln(1 + …)` are computed as such.
fn power_mean(p: f64, x: f64, y: f64, a: f64) -> f64 {
    let x_dominates = if p > 0.0 { x >= y } else { x <= y };
    let (m, other, b) = if x_dominates { (x, y, 1.0 - a) } else { (y, x, a) };
    if m == f64::NEG_INFINITY {
        return m;
    }
    let z = p * (other - m);
    let log_mean = if z == f64::NEG_INFINITY { math::ln(1.0 - b) } else { (b * z.exp_m1()).ln_1p() };
    m + log_mean / p
}

/// From one weight (`y` above a = ½, else `x`) to the extreme of both.
fn towards(x: f64, y: f64, extreme: f64, a: f64) -> f64 {
    if a <= 0.5 {
        times(1.0 - 2.0 * a, x) + times(2.0 * a, extreme)
    } else {
        times(2.0 * a - 1.0, y) + times(2.0 * (1.0 - a), extreme)
    }
}

/// A log-weight times a factor of at least 0, where 0 · (-inf) = 0.
fn times(factor: f64, log_weight: f64) -> f64 {
    if factor == 0.0 { 0.0 } else { factor * log_weight }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEAD: f64 = f64::NEG_INFINITY;

    #[test]
    fn names_and_numbers_are_operations() {
        let read = |text: &str| text.parse::<EnsembleOp>().unwrap();
        assert_eq!(["sum", "prod", "harmonic"].map(read), [1.0, 0.0, -1.0].map(EnsembleOp::Power));
        assert_eq!((read("min"), read("max")), (EnsembleOp::Min, EnsembleOp::Max));
        assert_eq!(read("2.5"), EnsembleOp::Power(2.5));
        for wrong in ["mean", "", "inf", "NaN"] {
            let message = wrong.parse::<EnsembleOp>().unwrap_err().to_string();
            assert!(message.starts_with("op: "), "{message}");
        }
    }

    #[test]
    fn zero_weights_follow_their_rules() {
        assert_eq!(EnsembleOp::Max.join(DEAD, -1.0, 0.5), -1.0);
        assert_eq!(EnsembleOp::Max.join(DEAD, -1.0, 0.3), DEAD);
        assert_eq!(EnsembleOp::Max.join(DEAD, -1.0, 0.7), -1.0);
        assert_eq!(EnsembleOp::Min.join(DEAD, -1.0, 0.5), DEAD);
        for p in [-2.0, -1.0, -1e-9, 0.0] {
            assert_eq!(EnsembleOp::Power(p).join(DEAD, -1.0, 0.3), DEAD);
            assert_eq!(EnsembleOp::Power(p).join(-1.0, DEAD, 0.3), DEAD);
        }
        assert!((EnsembleOp::SUM.join(DEAD, -1.0, 0.3) - (0.7_f64.ln() - 1.0)).abs() < 1e-15);
        for op in [EnsembleOp::SUM, EnsembleOp::PROD, EnsembleOp::HARMONIC, EnsembleOp::Min, EnsembleOp::Max]
        {
            for a in [0.2, 0.5, 0.8] {
                assert_eq!(op.join(DEAD, DEAD, a), DEAD, "{op:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_mean_lies_between_its_weights(
            x in -800.0_f64..50.0,
            y in -800.0_f64..50.0,
            a in 0.01_f64..0.99,
            p in prop_oneof![-400.0_f64..400.0, -1e-6_f64..1e-6, Just(1e-300), Just(1e300), Just(-1e300)],
        ) {
            let mean = EnsembleOp::Power(p).join(x, y, a);
            prop_assert!(mean >= x.min(y) - 1e-9 && mean <= x.max(y) + 1e-9, "{mean}");
            // The limit at 0 is the geometric mean, which is off by p·(x - y)²/8 at most.
            if p.abs() < 1e-6 {
                let error = (mean - EnsembleOp::PROD.join(x, y, a)).abs();
                prop_assert!(error <= p.abs() * (x - y) * (x - y) / 7.0 + 1e-9, "{error}");
            }
            let powers = a * (p * x).exp() + (1.0 - a) * (p * y).exp();
            if p.abs() > 1e-3 && powers.is_normal() {
                prop_assert!((mean - powers.ln() / p).abs() < 1e-9);
            }
        }
    }
}
