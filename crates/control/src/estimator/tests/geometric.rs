//! GAWRS: exact moments, the repeats summed as a series, and rows that ask for every digit.

use super::*;
use crate::testkit::two_loops;

/// Rejections are counted up to here. A rejected mass of .9375 leaves less than 1e-12 beyond.
const TAIL: usize = 700;

/// The choices up to a point of a walk: which candidates were offered, and the probabilities of each
/// total of repeats.
#[derive(Clone)]
struct Path {
    offers: Vec<usize>,
    probability: f64,
    repeats: Vec<f64>,
}

/// Replays a path; all repeats come at the first chance, since only their total counts.
fn replay(
    case: &Case,
    max_accepts: u32,
    max_rejects: Option<u64>,
    path: &[usize],
    repeats: usize,
) -> Outcome {
    let (log_weights, log_z) = row(&case.p());
    let mut walk = GeometricWalk::new(max_accepts, max_rejects, &log_weights, log_z);
    let (mut rejected, mut owed) = (0.0_f64, repeats as f64);
    for &index in path {
        let uniform = || {
            let now = std::mem::take(&mut owed);
            // In the middle of the numbers whose floor is `now`.
            rejected.powf(now + 0.5).max(f64::MIN_POSITIVE)
        };
        if walk.offer(index, case.accept[index], uniform) == Progress::Done {
            break;
        }
        if !case.accept[index] {
            rejected += case.p()[index];
        }
    }
    walk.outcome()
}

/// Visits every path of a walk without a limit of rejects.
fn for_each_path(case: &Case, max_accepts: u32, path: Path, accepts: u32, visit: &mut dyn FnMut(&Path)) {
    if accepts == max_accepts {
        return visit(&path);
    }
    let p = case.p();
    let is_rejected = |i: usize| !case.accept[i] && path.offers.contains(&i);
    let left: f64 = (0..5).filter(|i| !is_rejected(*i)).map(|i| p[i]).sum();
    let mut repeats = path.repeats.clone();
    if left < 1.0 - 1e-9 {
        // A geometric number of repeats is added: c'(n) = left · c(n) + (1 − left) · c'(n − 1).
        let mut before = 0.0;
        for c in &mut repeats {
            before = left * *c + (1.0 - left) * before;
            *c = before;
        }
    }
    for i in (0..5).filter(|i| !is_rejected(*i)) {
        let offers = [path.offers.as_slice(), &[i]].concat();
        let next = Path { offers, probability: path.probability * p[i] / left, repeats: repeats.clone() };
        for_each_path(case, max_accepts, next, accepts + u32::from(case.accept[i]), visit);
    }
}

fn moments(case: &Case, max_accepts: u32) -> Moments {
    let mut repeats = vec![0.0; TAIL];
    repeats[0] = 1.0;
    let start = Path { offers: Vec::new(), probability: 1.0, repeats };
    let mut moments = Moments::default();
    // The weight depends on the number of rejections alone, so one path stands for all with as many:
    // by the token and the candidates rejected.
    let mut known: Vec<((usize, usize), Vec<f64>)> = Vec::new();
    for_each_path(case, max_accepts, start, 0, &mut |path| {
        let token = path.offers.iter().copied().find(|i| case.accept[*i]).unwrap();
        let rejected = path.offers.iter().filter(|i| !case.accept[**i]).count();
        let mut distinct = path.offers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        moments.calls += path.probability * distinct.len() as f64;
        let plain = replay(case, max_accepts, None, &path.offers, 0);
        assert_eq!(plain.index, Some(token));
        let place = known.iter().position(|(key, _)| *key == (token, rejected)).unwrap_or_else(|| {
            // Without a rejection there is nothing to repeat.
            let tail = if path.repeats[1] > 0.0 { TAIL } else { 1 };
            let s = (0..tail).map(|n| replay(case, max_accepts, None, &path.offers, n).log_s.exp());
            known.push(((token, rejected), s.collect()));
            known.len() - 1
        });
        let weights = &known[place].1;
        assert_eq!(plain.log_s.exp(), weights[0]);
        for (s, probability) in weights.iter().zip(&path.repeats) {
            moments.add(token, *s, path.probability * probability);
        }
    });
    moments
}

#[test]
fn samplers_04_moments_of_the_geometric_estimator() {
    let table = [
        (A, [(2, 0.053_025, 3.0), (3, 0.027_150, 3.5), (5, 0.012_978, 4.1)]),
        (B, [(2, 0.084_344, 3.2), (3, 0.047_541, 3.9), (5, 0.024_481, 4.5)]),
        (C, [(2, 0.067_564, 1.4), (3, 0.043_591, 1.6), (5, 0.025_326, 2.0)]),
        (D, [(2, 0.007_646, 4.6), (3, 0.002_887, 4.8), (5, 0.001_154, 5.0)]),
    ];
    for (case, cells) in table {
        for (max_accepts, variance, calls) in cells {
            let moments = moments(&case, max_accepts);
            for i in 0..5 {
                let expected = if case.accept[i] { case.p()[i] } else { 0.0 };
                assert!((moments.mean[i] - expected).abs() < 1e-11, "{i}: {:?}", moments.mean);
            }
            let actual = moments.variance();
            assert!((actual - variance).abs() <= 0.5e-6 + 1e-11, "variance {actual}, table {variance}");
            assert!((moments.calls - calls).abs() <= 0.05 + 1e-9, "{} calls, table {calls}", moments.calls);
        }
    }
}

/// With a limit of rejects, everything is finite: repeats beyond the limit are one outcome.
fn add_limited(
    case: &Case,
    max: u64,
    walk: &GeometricWalk<'_>,
    offered: &[usize],
    probability: f64,
    mean: &mut [f64; 5],
) {
    let p = case.p();
    let is_rejected = |i: usize| !case.accept[i] && offered.contains(&i);
    let rejected: f64 = (0..5).filter(|i| is_rejected(*i)).map(|i| p[i]).sum();
    let candidates: Vec<usize> = (0..5).filter(|i| !is_rejected(*i)).collect();
    if candidates.is_empty() {
        return finish(walk.clone(), case, probability, mean);
    }
    for repeats in 0..=max as i32 {
        let chance = match repeats {
            0 if rejected == 0.0 => 1.0,
            _ if rejected == 0.0 => continue,
            _ if repeats == max as i32 => rejected.powi(repeats),
            _ => rejected.powi(repeats) * (1.0 - rejected),
        };
        for &i in &candidates {
            let mut walk = walk.clone();
            let probability = probability * chance * p[i] / (1.0 - rejected);
            let uniform = || rejected.powf(f64::from(repeats) + 0.5);
            if walk.offer(i, case.accept[i], uniform) == Progress::Done {
                finish(walk, case, probability, mean);
            } else {
                add_limited(case, max, &walk, &[offered, &[i]].concat(), probability, mean);
            }
        }
    }
}

fn finish(walk: GeometricWalk<'_>, case: &Case, probability: f64, mean: &mut [f64; 5]) {
    let outcome = walk.outcome();
    let index = outcome.index.unwrap();
    assert_eq!(outcome.log_s > DEAD, case.accept[index]);
    mean[index] += probability * outcome.log_s.exp();
}

#[test]
fn samplers_04_the_geometric_estimator_is_proper_for_every_limit() {
    let nothing = Case { weights: [3, 1, 1, 1, 1], accept: [false; 5] };
    for case in [A, B, C, D, nothing] {
        for (max_accepts, max_rejects) in [(2, 2), (2, 3), (3, 2), (3, 3), (2, 5)] {
            let (log_weights, log_z) = row(&case.p());
            let walk = GeometricWalk::new(max_accepts, Some(max_rejects), &log_weights, log_z);
            let mut mean = [0.0; 5];
            add_limited(&case, max_rejects, &walk, &[], 1.0, &mut mean);
            for (i, mean) in mean.into_iter().enumerate() {
                let expected = if case.accept[i] { case.p()[i] } else { 0.0 };
                assert!(
                    (mean - expected).abs() < 1e-12,
                    "{max_accepts} {max_rejects} {i}: {mean} {expected}"
                );
            }
        }
    }
}

#[test]
fn samplers_04_moments_of_the_two_loops() {
    for (case, variance) in [(A, 0.053_88), (B, 0.082_333), (C, 0.066_754), (D, 0.009_283)] {
        let mut moments = Moments::default();
        for_each_order(&case.weights, &[0, 1, 2, 3, 4], &mut |first, p| {
            let rejects = first.iter().take_while(|i| !case.accept[**i]).count();
            for_each_order(&case.weights, &first[rejects..], &mut |second, q| {
                let (index, s) = two_loops(&case.weights, first, second, &case.accept).unwrap();
                moments.add(index, s.to_f64(), (p * q).to_f64());
            });
        });
        assert_proper(&case, &moments);
        assert!((moments.variance() - variance).abs() <= 0.5e-5, "{}", moments.variance());
    }
}

/// A walk in orders by key, as a sampler makes it.
fn keyed(log_weights: &[f64], max_accepts: u32, particle: u32, accept: impl Fn(usize) -> bool) -> Outcome {
    let key = |ordinal| DrawKey::new(ProblemKey::new(5, 0), particle, 1, ordinal);
    let mut ordinal = 0..;
    let mut next = || key(ordinal.next().unwrap());
    let mut walk = GeometricWalk::new(max_accepts, None, log_weights, math::log_sum_exp(log_weights));
    loop {
        let order = GumbelOrder::new(Weights::dense(log_weights), &next());
        let mut progress = Progress::Continue;
        for index in order {
            if walk.is_rejected(index) {
                continue;
            }
            progress = walk.offer(index, accept(index), || next().uniform(0));
            if progress != Progress::Continue {
                break;
            }
        }
        if progress != Progress::Restart {
            return walk.outcome();
        }
    }
}

#[test]
fn samplers_06_extreme_log_weights_stay_finite_under_the_geometric_estimator() {
    let rows: [(&[f64], usize); 3] =
        [(&[0.0, -744.4], 1), (&[-35.756, -2.8e-16, DEAD], 0), (&[-0.405, -1.099, -35.756, DEAD], 2)];
    for (log_weights, accepted) in rows {
        for particle in 0..100 {
            let outcome = keyed(log_weights, 2 + particle % 3, particle, |i| i == accepted);
            assert_eq!(outcome.index, Some(accepted));
            assert!(outcome.log_s.is_finite(), "{outcome:?}");
        }
    }
}

/// The rejected mass is `1 - 1e-7`, so A - 1 acceptances among the draws are rare: the mean of `s`
/// is 1e-7, and its spread for A = 200 is `1e-7 / sqrt(198)`. The mean of 400 is within 6 standard
/// errors: a false alarm in 5e8 choices of the keys.
#[test]
fn samplers_07_a_rare_valid_token_has_its_weight_under_the_geometric_estimator() {
    let log_weights = [0.6_f64, 0.3, 0.1 - 1e-7, 1e-7].map(f64::ln);
    let n = 400;
    let mut sum = 0.0;
    for particle in 0..n {
        let outcome = keyed(&log_weights, 200, particle, |i| i == 3);
        assert_eq!(outcome.index, Some(3));
        assert!(outcome.log_s.is_finite());
        sum += outcome.log_s.exp();
    }
    let relative = sum / f64::from(n) / 1e-7 - 1.0;
    assert!(relative.abs() < 6.0 / (f64::from(n) * 198.0).sqrt(), "{relative}");
}

#[test]
fn samplers_08_nothing_accepted_under_the_geometric_estimator() {
    let (log_weights, log_z) = row(&A.p());
    for particle in 0..20 {
        let order: Vec<usize> = keyed_order(&log_weights, particle).collect();
        for (max_rejects, uniform, tried) in [(None, 0.5, 5), (Some(2), 0.999, 2), (Some(3), 1e-300, 2)] {
            let mut walk = GeometricWalk::new(2, max_rejects, &log_weights, log_z);
            let tries = order.iter().take_while(|i| walk.offer(**i, false, || uniform) == Progress::Continue);
            // The offer that ends a walk is a try too.
            assert_eq!(tries.count() + usize::from(max_rejects.is_some()), tried);
            assert_eq!(walk.outcome(), Outcome { index: Some(order[0]), log_s: DEAD });
        }
    }
}
