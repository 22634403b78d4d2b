//! Exact enumeration over the orders of tiny rows, and rows that ask for every digit.

use super::*;
use crate::testkit::for_each_order;
use lockstep_sample::{DrawKey, GumbelOrder, ProblemKey, Weights, math};

mod exact;
mod geometric;

const DEAD: f64 = f64::NEG_INFINITY;

/// Five weights, in proportion to the candidates' probabilities, and which the condition accepts.
struct Case {
    weights: [u32; 5],
    accept: [bool; 5],
}

impl Case {
    fn p(&self) -> [f64; 5] {
        let total: u32 = self.weights.iter().sum();
        self.weights.map(|weight| f64::from(weight) / f64::from(total))
    }
}

const A: Case = Case { weights: [12, 4, 2, 1, 1], accept: [false, true, false, true, false] };
const B: Case = Case { weights: [1; 5], accept: [true, false, true, false, false] };
const C: Case = Case { weights: [32, 4, 2, 1, 1], accept: [true, false, false, true, false] };
const D: Case = Case { weights: [8, 4, 2, 1, 1], accept: [false, false, false, false, true] };

/// Moments of an estimator over all its choices.
#[derive(Default)]
struct Moments {
    /// `E[s · 1{tok = t}]` for each t.
    mean: [f64; 5],
    square: f64,
    calls: f64,
}

impl Moments {
    fn add(&mut self, index: usize, s: f64, probability: f64) {
        self.mean[index] += probability * s;
        self.square += probability * s * s;
    }

    fn variance(&self) -> f64 {
        let mean: f64 = self.mean.iter().sum();
        self.square - mean * mean
    }
}

/// Walks `order` until the walk is done or the order ends; the outcome, and the calls taken.
fn walk(
    mut walk: RecursiveWalk<'_>,
    order: impl IntoIterator<Item = usize>,
    accept: impl Fn(usize) -> bool,
) -> (Outcome, u32) {
    let mut calls = 0;
    for index in order {
        calls += 1;
        if walk.offer(index, accept(index)) == Progress::Done {
            return (walk.outcome(), calls);
        }
    }
    panic!("the last live candidate ends the walk");
}

fn keyed_order(log_weights: &[f64], particle: u32) -> GumbelOrder {
    GumbelOrder::new(Weights::dense(log_weights), &DrawKey::new(ProblemKey::new(5, 0), particle, 1, 0))
}

/// The row of a case: unnormalised log-weights and their log-sum-exp.
fn row(p: &[f64]) -> (Vec<f64>, f64) {
    let log_weights: Vec<f64> = p.iter().map(|p| p.ln() - 2.5).collect();
    let log_z = math::log_sum_exp(&log_weights);
    (log_weights, log_z)
}

fn moments(case: &Case, further_probes: u32, max_rejects: Option<u64>) -> Moments {
    let (log_weights, log_z) = row(&case.p());
    let mut moments = Moments::default();
    for_each_order(&case.weights, &[0, 1, 2, 3, 4], &mut |order, probability| {
        let start = RecursiveWalk::new(further_probes + 1, max_rejects, &log_weights, log_z);
        let (outcome, calls) = walk(start, order.iter().copied(), |i| case.accept[i]);
        let (index, s, probability) = (outcome.index.unwrap(), outcome.log_s.exp(), probability.to_f64());
        assert_eq!(s > 0.0, case.accept[index], "{order:?}");
        moments.add(index, s, probability);
        moments.calls += probability * f64::from(calls);
    });
    moments
}

/// `E[s · 1{tok = t}] = p_t` for accepted t, 0 for the others.
fn assert_proper(case: &Case, moments: &Moments) {
    for i in 0..5 {
        let expected = if case.accept[i] { case.p()[i] } else { 0.0 };
        assert!((moments.mean[i] - expected).abs() < 1e-12, "{i}: {:?}", moments.mean);
    }
}

/// Checks one cell of the table of moments, to the digits printed there.
fn assert_cell(
    case: &Case,
    further_probes: u32,
    max_rejects: Option<u64>,
    variance: f64,
    calls: Option<f64>,
) {
    let moments = moments(case, further_probes, max_rejects);
    assert_proper(case, &moments);
    let actual = moments.variance();
    assert!((actual - variance).abs() <= 0.5e-6 + 1e-12, "variance {actual}, table {variance}");
    if let Some(calls) = calls {
        assert!((moments.calls - calls).abs() <= 0.5e-4 + 1e-12, "{} calls, table {calls}", moments.calls);
    }
}

#[test]
fn samplers_04_moments_of_case_a() {
    assert_cell(&A, 1, None, 0.023_165, Some(3.1583));
    assert_cell(&A, 2, None, 0.005_882, Some(4.0841));
    assert_cell(&A, 3, None, 0.000_907, Some(4.75));
    assert_cell(&A, 1, Some(3), 0.028_677, None);
    assert_cell(&A, 1, Some(2), 0.0625, None);
    assert_cell(&A, 2, Some(3), 0.012_877, None);
}

#[test]
fn samplers_04_moments_of_case_b() {
    assert_cell(&B, 1, None, 0.08, Some(3.0));
    assert_cell(&B, 2, None, 0.032, Some(3.9));
    assert_cell(&B, 3, None, 0.008, Some(4.6));
    assert_cell(&B, 1, Some(3), 0.096, None);
    assert_cell(&B, 1, Some(2), 0.144, None);
    assert_cell(&B, 2, Some(3), 0.056, None);
}

#[test]
fn samplers_04_moments_of_case_c() {
    assert_cell(&C, 1, None, 0.007_787, Some(2.1947));
    assert_cell(&C, 2, None, 0.002_246, Some(3.1938));
    assert_cell(&C, 3, None, 0.000_576, Some(4.175));
    assert_cell(&C, 1, Some(3), 0.008_408, None);
    assert_cell(&C, 1, Some(2), 0.021_438, None);
    assert_cell(&C, 2, Some(3), 0.002_904, None);
}

#[test]
fn samplers_04_moments_of_case_d() {
    assert_cell(&D, 1, None, 0.0, Some(4.4566));
    assert_cell(&D, 2, None, 0.0, Some(4.7786));
    assert_cell(&D, 3, None, 0.0, Some(4.9375));
    assert_cell(&D, 1, Some(3), 0.015_960, None);
    assert_cell(&D, 1, Some(2), 0.034_180, None);
    assert_cell(&D, 2, Some(3), 0.015_960, None);
}

#[test]
fn samplers_04_proper_for_every_k_and_max_rejects() {
    for case in [A, B, C, D] {
        for further_probes in 1..=5 {
            for max_rejects in [Some(1), Some(2), Some(3), Some(4), Some(5), None] {
                assert_proper(&case, &moments(&case, further_probes, max_rejects));
            }
        }
    }
}

#[test]
fn samplers_05_one_accepted_among_182() {
    let log_weights = vec![(1.0_f64 / 182.0).ln(); 182];
    let log_z = math::log_sum_exp(&log_weights);
    for particle in 0..182 {
        let accepted = particle as usize * 7 % 182;
        for max_accepts in 2..=4 {
            let start = RecursiveWalk::new(max_accepts, None, &log_weights, log_z);
            let (outcome, _) = walk(start, keyed_order(&log_weights, particle), |i| i == accepted);
            assert_eq!(outcome.index, Some(accepted));
            assert_eq!(outcome.log_s, log_weights[accepted] - log_z);
            assert!((outcome.log_s + log_z + 5.204_006_687_1).abs() < 5e-11);
        }
    }
}

#[test]
fn samplers_06_extreme_log_weights() {
    let rows: [(&[f64], usize, f64); 3] = [
        (&[0.0, -744.4], 1, -744.4),
        (&[-35.756, -2.8e-16, DEAD], 0, -35.756),
        (&[-0.405, -1.099, -35.756, DEAD], 2, -35.756),
    ];
    for (log_weights, accepted, expected) in rows {
        let log_z = math::log_sum_exp(log_weights);
        let live = log_weights.iter().filter(|&&w| w > DEAD).count();
        let check = |order: Vec<usize>, max_accepts| {
            let start = RecursiveWalk::new(max_accepts, None, log_weights, log_z);
            let (outcome, _) = walk(start, order, |i| i == accepted);
            assert_eq!(outcome.index, Some(accepted));
            assert!((outcome.log_s + log_z - expected).abs() < 1e-9, "{outcome:?}");
        };
        for max_accepts in 2..=4 {
            for particle in 0..50 {
                check(keyed_order(log_weights, particle).collect(), max_accepts);
            }
            check((0..live).collect(), max_accepts);
            check((0..live).rev().collect(), max_accepts);
        }
    }
}

#[test]
fn samplers_07_a_rare_valid_token_keeps_its_weight() {
    let (log_weights, log_z) = row(&[0.9, 0.1 - 2e-8, 1e-8, 1e-8]);
    for (last_accepted, mass) in [(false, 1e-8), (true, 2e-8)] {
        let start = RecursiveWalk::new(2, None, &log_weights, log_z);
        let (outcome, calls) = walk(start, 0..4, |i| i == 2 || i == 3 && last_accepted);
        assert_eq!((outcome.index, calls), (Some(2), 4));
        assert!((outcome.log_s.exp() / mass - 1.0).abs() < 1e-12, "{outcome:?}");
    }
    // As the final probe of a walk out of rejects, it stands for all that was not probed.
    let start = RecursiveWalk::new(2, Some(3), &log_weights, log_z);
    let (outcome, calls) = walk(start, 0..4, |i| i == 2);
    assert_eq!((outcome.index, calls), (Some(2), 3));
    assert!((outcome.log_s.exp() / 2e-8 - 1.0).abs() < 1e-12, "{outcome:?}");
}

#[test]
fn samplers_08_nothing_accepted() {
    for (max_rejects, tried) in [(None, 5), (Some(2), 2), (Some(3), 3), (Some(9), 5)] {
        let (log_weights, log_z) = row(&A.p());
        for particle in 0..20 {
            let order: Vec<usize> = keyed_order(&log_weights, particle).collect();
            let start = RecursiveWalk::new(2, max_rejects, &log_weights, log_z);
            let (outcome, calls) = walk(start, order.iter().copied(), |_| false);
            assert_eq!(calls, tried);
            assert_eq!(outcome, Outcome { index: Some(order[tried as usize - 1]), log_s: DEAD });

            let mut improper = FirstAccepted::new(max_rejects);
            let calls = order.iter().take_while(|&&i| improper.offer(i, false) == Progress::Continue);
            let calls = calls.count() + usize::from(max_rejects.is_some_and(|max| max <= 5));
            assert_eq!(calls, tried as usize);
            assert_eq!(improper.outcome(), outcome);
        }
    }
}

#[test]
fn a_row_without_candidates_has_no_token() {
    let none = Outcome { index: None, log_s: DEAD };
    assert_eq!(RecursiveWalk::new(2, None, &[DEAD; 3], DEAD).outcome(), none);
    assert_eq!(FirstAccepted::new(None).outcome(), none);
}

#[test]
fn samplers_10_the_improper_walk_takes_the_first_accepted() {
    let mut walk = FirstAccepted::new(None);
    assert_eq!(walk.offer(3, false), Progress::Continue);
    assert_eq!(walk.offer(1, true), Progress::Done);
    assert_eq!(walk.outcome(), Outcome { index: Some(1), log_s: 0.0 });

    let mut walk = FirstAccepted::new(Some(1));
    assert_eq!(walk.offer(3, false), Progress::Done);
    assert_eq!(walk.outcome(), Outcome { index: Some(3), log_s: DEAD });
}

#[test]
fn unprobed_mass_keeps_its_digits_down_a_steep_row() {
    // Halving masses: before candidate i, 2^-i is left.
    let log_weights: Vec<f64> = (1..=60).map(|i| f64::from(-i.min(59)) * std::f64::consts::LN_2).collect();
    let log_z = math::log_sum_exp(&log_weights);
    for i in 0..58 {
        let start = RecursiveWalk::new(2, None, &log_weights, log_z);
        let (outcome, _) = walk(start, 0..60, |j| j >= i);
        let expected = 0.5_f64.powi(i as i32);
        assert!((outcome.log_s.exp() / expected - 1.0).abs() < 1e-12, "{i}: {outcome:?}");
    }
}

#[test]
fn unprobed_mass_keeps_its_digits_over_thousands_of_probes() {
    for n in [3000, 3001, 4999] {
        let log_weights = vec![-9.75; n];
        let log_z = math::log_sum_exp(&log_weights);
        let start = RecursiveWalk::new(2, None, &log_weights, log_z);
        let (outcome, calls) = walk(start, 0..n, |j| j >= n - 10);
        assert_eq!(calls as usize, n - 8);
        assert!((outcome.log_s.exp() * n as f64 / 10.0 - 1.0).abs() < 1e-12, "{outcome:?}");
    }
}
