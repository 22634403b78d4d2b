//! Sums of weights given as natural logarithms.

/// `ln (e^a + e^b)`. Neither is NaN or `+inf`.
pub(crate) fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// `ln Σ e^w`, summed in the order given; `-inf` for none.
pub(crate) fn log_sum(weights: impl Iterator<Item = f64> + Clone) -> f64 {
    let high = weights.clone().fold(f64::NEG_INFINITY, f64::max);
    if high == f64::NEG_INFINITY {
        return high;
    }
    high + weights.map(|weight| (weight - high).exp()).sum::<f64>().ln()
}

/// `ln (1 - e^a)` for negative `a`.
pub(crate) fn log_one_minus(a: f64) -> f64 {
    if a > -std::f64::consts::LN_2 { (-a.exp_m1()).ln() } else { (-a.exp()).ln_1p() }
}
