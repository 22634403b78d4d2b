//! Adaptive weighted rejection sampling.

use std::sync::Arc;

use lockstep_control::potential::{Claims, Run};
use lockstep_control::sampler::{Awrs, AwrsOptions, TokenSampler};
use lockstep_control::{ErrorKind, Keyed, Progress, RecursiveWalk};
use lockstep_sample::{GumbelOrder, TokenId, Weights, math};

use crate::support::{DEAD, Table, keys, numbered, sample_start};

/// AWRS over log-weights (the end's last) that accepts some positions.
fn awrs(log_weights: &[f64], accepted: &[usize], options: &AwrsOptions) -> Awrs {
    let vocab = numbered(log_weights.len() - 1);
    let condition = Table::accepting(&vocab, accepted).potential();
    Awrs::new(Table::new(&vocab, log_weights).potential(), condition, options.clone()).unwrap()
}

fn improper(max_rejects: Option<u64>) -> AwrsOptions {
    AwrsOptions { proper_weights: false, max_rejects, ..AwrsOptions::default() }
}

#[test]
fn samplers_05_one_accepted_token_among_182_always_weighs_its_own() {
    let vocab = numbered(182);
    let mut log_weights = vec![(1.0_f64 / 182.0).ln(); 182];
    log_weights.push(DEAD);
    let potential = Table::new(&vocab, &log_weights).potential();
    for accepted in [0, 77, 181] {
        for max_accepts in 2..=4 {
            let condition = Table::accepting(&vocab, &[accepted]).potential();
            let options = AwrsOptions { max_accepts, ..AwrsOptions::default() };
            let sampler = Awrs::new(Arc::clone(&potential), condition, options).unwrap();
            for drawn in sample_start(&sampler, &keys(accepted as u64, 50)) {
                assert_eq!(drawn.token, Some(TokenId(accepted as u32)));
                assert!((drawn.logw + 5.204_006_687_1).abs() < 5e-11, "{drawn:?}");
            }
        }
    }
}

#[test]
fn samplers_06_extreme_log_weights_keep_their_digits() {
    let rows: [(&[f64], usize, f64); 4] = [
        (&[0.0, -744.4, DEAD], 1, -744.4),
        // The second is the end.
        (&[0.0, -744.4], 1, -744.4),
        (&[-35.756, -2.8e-16, DEAD], 0, -35.756),
        (&[-0.405, -1.099, -35.756, DEAD], 2, -35.756),
    ];
    for (log_weights, accepted, expected) in rows {
        for max_accepts in 2..=4 {
            let options = AwrsOptions { max_accepts, ..AwrsOptions::default() };
            let sampler = awrs(log_weights, &[accepted], &options);
            let token = sampler.vocab().token_at(accepted);
            for drawn in sample_start(&sampler, &keys(6, 100)) {
                assert_eq!(drawn.token, Some(token));
                assert!((drawn.logw - expected).abs() < 1e-9, "{drawn:?}");
            }
        }
    }
}

#[test]
fn samplers_07_a_rare_valid_token_is_found_with_its_weight() {
    let log_weights = [0.6_f64, 0.3, 0.1 - 1e-7, 1e-7, 0.0].map(f64::ln);
    let sampler = awrs(&log_weights, &[3], &AwrsOptions::default());
    for drawn in sample_start(&sampler, &keys(7, 200)) {
        assert_eq!(drawn.token, Some(TokenId(3)));
        assert!((drawn.logw - log_weights[3]).abs() < 1e-9, "{drawn:?}");
    }
}

#[test]
fn samplers_08_nothing_accepted_gives_a_tried_token_of_weight_zero() {
    // The end has so little mass that no walk cut short ever gets to it.
    let log_weights = [0.4_f64.ln(), 0.3_f64.ln(), 0.2_f64.ln(), 0.1_f64.ln(), -500.0];
    for max_rejects in [Some(2), Some(3), None] {
        let proper = AwrsOptions { max_rejects, ..AwrsOptions::default() };
        for options in [proper, improper(max_rejects)] {
            let sampler = awrs(&log_weights, &[], &options);
            for (drawn, key) in sample_start(&sampler, &keys(8, 60)).iter().zip(keys(8, 60)) {
                let order: Vec<usize> = GumbelOrder::new(Weights::dense(&log_weights), &key).collect();
                let last = order[max_rejects.map_or(order.len(), |max| max as usize) - 1];
                assert_eq!(drawn.token, Some(sampler.vocab().token_at(last)));
                assert_eq!(drawn.token.unwrap().is_eos(), max_rejects.is_none());
                assert_eq!((drawn.logw, drawn.logp), (DEAD, None));
            }
        }
    }
}

#[test]
fn samplers_08_a_token_is_probed_before_it_is_returned() {
    let vocab = numbered(4);
    let potential =
        Table::new(&vocab, &[0.4_f64.ln(), 0.3_f64.ln(), 0.2_f64.ln(), 0.05_f64.ln(), 0.05_f64.ln()]);
    let potential = potential.potential();
    for options in [AwrsOptions { max_rejects: Some(2), ..AwrsOptions::default() }, improper(Some(2))] {
        let condition = Table::accepting(&vocab, &[]);
        let asked = Arc::clone(&condition.asked);
        let sampler = Awrs::new(Arc::clone(&potential), condition.potential(), options).unwrap();
        for key in keys(80, 60) {
            asked.lock().unwrap().clear();
            let drawn = sample_start(&sampler, &[key]).remove(0);
            assert!(asked.lock().unwrap().contains(&drawn.token.unwrap()), "{drawn:?}");
        }
    }
}

#[test]
fn samplers_10_options_have_their_ranges() {
    assert_eq!(AwrsOptions::default().max_rejects, None);
    let vocab = numbered(2);
    let potential = || Table::new(&vocab, &[-1.0, -1.0, -1.0]).potential();
    let condition = || Table::accepting(&vocab, &[1]).potential();
    let proper = AwrsOptions::default();
    for (options, field) in [
        (AwrsOptions { max_accepts: 1, ..proper.clone() }, "max_accepts"),
        (AwrsOptions { max_rejects: Some(1), ..proper.clone() }, "max_rejects"),
        (improper(Some(0)), "max_rejects"),
    ] {
        let error = Awrs::new(potential(), condition(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().starts_with(field), "{error}");
    }
    let refused = Awrs::new(potential(), potential(), proper.clone()).unwrap_err();
    assert_eq!(refused.to_string(), "condition must be Boolean");
    let other = Table::accepting(&numbered(3), &[1]).potential();
    assert_eq!(Awrs::new(potential(), other, proper).unwrap_err().kind(), ErrorKind::Vocabulary);

    let sampler = awrs(&[-1.0, -1.0, -1.0], &[1], &improper(Some(1)));
    let drawn = sample_start(&sampler, &keys(10, 60));
    for drawn in &drawn {
        assert_eq!(drawn.logw, if drawn.token == Some(TokenId(1)) { 0.0 } else { DEAD });
    }
    assert!(drawn.iter().any(|drawn| drawn.logw == 0.0) && drawn.iter().any(|drawn| drawn.logw == DEAD));
}

#[test]
fn samplers_10_no_limit_is_as_good_as_one_out_of_reach() {
    let log_weights = [0.5_f64, 0.3, 0.1, 0.1].map(f64::ln);
    let unlimited = sample_start(&awrs(&log_weights, &[2], &AwrsOptions::default()), &keys(11, 60));
    let limited = AwrsOptions { max_rejects: Some(u64::MAX), ..AwrsOptions::default() };
    assert_eq!(unlimited, sample_start(&awrs(&log_weights, &[2], &limited), &keys(11, 60)));
}

#[test]
fn a_condition_that_lies_about_being_boolean_is_an_error_of_the_row() {
    let vocab = numbered(2);
    let lying = Table {
        claims: Claims { boolean: true, ..Claims::default() },
        ..Table::new(&vocab, &[-0.5, -0.5, -0.5])
    };
    let sampler =
        Awrs::new(Table::new(&vocab, &[-1.0; 3]).potential(), lying.potential(), AwrsOptions::default());
    let mut cursor = sampler.unwrap().open(1, &Run::default()).unwrap();
    let error = cursor.sample(&[0], &keys(12, 1), &mut || {}, &mut Keyed::default()).remove(0).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Contract, "condition must be Boolean")
    );
}

/// The five positions of case 11: four symbols, the end.
const CASE_11: [f64; 5] = [0.4, 0.3, 0.1, 0.1, 0.1];

/// Calls `visit` with every order of the positions `left` after `order`, and its probability.
fn for_each_order(
    order: &mut Vec<usize>,
    left: &[usize],
    probability: f64,
    visit: &mut dyn FnMut(&[usize], f64),
) {
    if left.is_empty() {
        return visit(order, probability);
    }
    let mass: f64 = left.iter().map(|i| CASE_11[*i]).sum();
    for i in left {
        let rest: Vec<usize> = left.iter().copied().filter(|j| j != i).collect();
        order.push(*i);
        for_each_order(order, &rest, probability * CASE_11[*i] / mass, visit);
        order.pop();
    }
}

#[test]
fn samplers_11_the_expected_weight_is_the_accepted_mass() {
    let log_weights = CASE_11.map(f64::ln);
    let log_z = math::log_sum_exp(&log_weights);
    let walk = |order: &mut dyn Iterator<Item = usize>| {
        let mut walk = RecursiveWalk::new(2, None, &log_weights, log_z);
        for index in order {
            if walk.offer(index, index < 2) == Progress::Done {
                break;
            }
        }
        walk.outcome()
    };
    // Exactly, over all orders.
    let (mut mean, mut square) = ([0.0; 5], [0.0; 5]);
    for_each_order(&mut Vec::new(), &[0, 1, 2, 3, 4], 1.0, &mut |order, probability| {
        let outcome = walk(&mut order.iter().copied());
        let (index, s) = (outcome.index.unwrap(), outcome.log_s.exp());
        mean[index] += probability * s;
        square[index] += probability * s * s;
    });
    for (position, expected) in [0.4, 0.3, 0.0, 0.0, 0.0].into_iter().enumerate() {
        assert!((mean[position] - expected).abs() < 1e-12, "{mean:?}");
    }
    assert!((mean.iter().sum::<f64>() - 0.7).abs() < 1e-12);

    // The sampler is that walk, on the order of its key. Over 24 seeds of 500 rows the mean of each
    // token is within 5 standard errors: about one false alarm in 10⁶ choices of these seeds.
    let sampler = awrs(&log_weights, &[0, 1], &AwrsOptions::default());
    let (mut sums, mut n) = ([0.0; 5], 0.0);
    for seed in 0..24 {
        let keys = keys(seed, 500);
        for (drawn, key) in sample_start(&sampler, &keys).into_iter().zip(&keys) {
            let outcome = walk(&mut GumbelOrder::new(Weights::dense(&log_weights), key));
            assert_eq!(drawn.token, outcome.index.map(|index| sampler.vocab().token_at(index)));
            assert_eq!(drawn.logw.to_bits(), (outcome.log_s + log_z).to_bits());
            sums[sampler.vocab().position_of(drawn.token.unwrap())] += drawn.logw.exp();
            n += 1.0;
        }
    }
    for position in 0..5 {
        let deviation: f64 = (square[position] - mean[position] * mean[position]).max(0.0);
        let error = sums[position] / n - mean[position];
        assert!(error.abs() <= 5.0 * (deviation / n).sqrt(), "position {position}: {error}");
    }
}
