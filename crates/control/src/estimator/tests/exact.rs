//! Laws of the walks in fractions, on any few candidates.

use super::*;
use crate::testkit::Ratio;
use proptest::prelude::*;

/// RAWRS-K as it is written down, in fractions: the token and its `s`.
fn recursive(weights: &[u32], order: &[usize], accept: &[bool], k: u32, max: Option<u64>) -> (usize, Ratio) {
    let total: u32 = weights.iter().sum();
    let p = |t: usize| Ratio::new(weights[t].into(), total.into());
    let (mut u, mut s, mut token, mut rejects, mut left) = (Ratio::ONE, Ratio::ZERO, None, 0, None);
    for (i, &t) in order.iter().enumerate() {
        let is_final = i + 1 == order.len() || max == Some(rejects + 1) || left == Some(1);
        let mut count = left;
        if accept[t] {
            s = s + if is_final { u } else { p(t) };
            if token.is_none() {
                token = Some(t);
                left = Some(k);
            }
        } else {
            rejects += 1;
        }
        if is_final {
            return (token.unwrap_or(t), s);
        }
        u = u - p(t);
        count = count.map(|count: u32| count - 1);
        left = count.or(left);
    }
    unreachable!("the last candidate is final")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn samplers_04_the_recursive_estimator_is_proper_in_fractions(
        candidates in prop::collection::vec((1_u32..8, prop::bool::ANY), 1..6),
        k in 1_u32..4,
        max_rejects in prop::option::of(1_u64..5),
    ) {
        let (weights, accept): (Vec<u32>, Vec<bool>) = candidates.into_iter().unzip();
        let total: u32 = weights.iter().sum();
        let p: Vec<f64> = weights.iter().map(|w| f64::from(*w) / f64::from(total)).collect();
        let (log_weights, log_z) = row(&p);
        let among: Vec<usize> = (0..weights.len()).collect();
        let mut mean = vec![Ratio::ZERO; weights.len()];
        let mut failure = None;
        for_each_order(&weights, &among, &mut |order, probability| {
            let (token, s) = recursive(&weights, order, &accept, k, max_rejects);
            mean[token] = mean[token] + probability * s;
            let start = RecursiveWalk::new(k + 1, max_rejects, &log_weights, log_z);
            let (outcome, _) = walk(start, order.iter().copied(), |i| accept[i]);
            let s = s.to_f64();
            // A token violates the condition iff its weight is 0; without a limit one that does not
            // is found if there is one; and if there is only one, it always has its own mass.
            let found = outcome.index == Some(token)
                && (outcome.log_s > DEAD) == accept[token]
                && (outcome.log_s.exp() - s).abs() <= 1e-13
                && (max_rejects.is_some() || accept[token] || !accept.contains(&true));
            let alone = max_rejects.is_none() && accept.iter().filter(|a| **a).count() == 1;
            let own = !alone || (outcome.log_s - p[token].ln()).abs() < 1e-12;
            if !(found && own) {
                failure = Some((order.to_vec(), outcome));
            }
        });
        prop_assert!(failure.is_none(), "{:?}", failure);
        for t in 0..weights.len() {
            let own = Ratio::new(weights[t].into(), total.into());
            prop_assert_eq!(mean[t], if accept[t] { own } else { Ratio::ZERO });
        }
    }

    #[test]
    fn samplers_04_a_weight_is_0_iff_the_token_is_rejected(
        candidates in prop::collection::vec((-40.0_f64..0.0, prop::bool::ANY), 1..40),
        max_accepts in 2_u32..6,
        max_rejects in prop::option::of(2_u64..50),
        particle: u32,
    ) {
        let (log_weights, accept): (Vec<f64>, Vec<bool>) = candidates.into_iter().unzip();
        let log_z = math::log_sum_exp(&log_weights);
        let mut ordinal = 0;
        let mut key = || {
            ordinal += 1;
            DrawKey::new(ProblemKey::new(17, 0), particle, 1, ordinal)
        };
        let mut geometric = GeometricWalk::new(max_accepts, max_rejects, &log_weights, log_z);
        let mut recursive = RecursiveWalk::new(max_accepts, max_rejects, &log_weights, log_z);
        for index in GumbelOrder::new(Weights::dense(&log_weights), &key()) {
            if recursive.offer(index, accept[index]) == Progress::Done {
                break;
            }
        }
        loop {
            let mut order = GumbelOrder::new(Weights::dense(&log_weights), &key());
            let progress = loop {
                let Some(index) = order.find(|i| !geometric.is_rejected(*i)) else { break Progress::Done };
                let progress = geometric.offer(index, accept[index], || key().uniform(0));
                if progress != Progress::Continue {
                    break progress;
                }
            };
            if progress == Progress::Done {
                break;
            }
        }
        for outcome in [recursive.outcome(), geometric.outcome()] {
            let index = outcome.index.unwrap();
            prop_assert_eq!(outcome.log_s > DEAD, accept[index], "{:?}", outcome);
            // One token is properly weighted by its own mass at most that of all.
            prop_assert!(outcome.log_s <= 1e-12, "{:?}", outcome);
            prop_assert!(max_rejects.is_some() || accept[index] || !accept.contains(&true));
        }
    }
}
