//! Adaptive weighted rejection sampling.

use std::sync::Arc;

use lockstep_control::potential::{BoolFsa, Claims, FromSequences, Potential, Run, SequencePotential};
use lockstep_control::sampler::{Awrs, AwrsOptions, ESTIMATORS, Estimator, TokenSampler};
use lockstep_control::testkit::for_each_order;
use lockstep_control::{
    ControlError, ErrorKind, GeometricWalk, Keyed, Outcome, Progress, RecursiveWalk, Smc, SmcOptions,
};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, GumbelOrder, TokenId, Weights, math};

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
    for estimator in [Estimator::Recursive, Estimator::Geometric] {
        let options = AwrsOptions { estimator, ..AwrsOptions::default() };
        let sampler = awrs(&log_weights, &[3], &options);
        for drawn in sample_start(&sampler, &keys(7, 200)) {
            assert_eq!(drawn.token, Some(TokenId(3)));
            assert!(drawn.logw.is_finite());
            let is_exact = (drawn.logw - log_weights[3]).abs() < 1e-9;
            assert!(is_exact || estimator == Estimator::Geometric, "{drawn:?}");
        }
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
    let other: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex("a").unwrap());
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

/// What is fetched ahead is bounded by what the walk may still want.
#[test]
fn after_an_acceptance_no_more_is_probed_than_the_weight_takes() {
    let vocab = numbered(9);
    let potential = Table::new(&vocab, &[-2.0; 10]).potential();
    let all: Vec<usize> = (0..10).collect();
    for max_accepts in 2..=5 {
        let condition = Table::accepting(&vocab, &all);
        let asked = Arc::clone(&condition.asked);
        let options = AwrsOptions { max_accepts, ..AwrsOptions::default() };
        let sampler = Awrs::new(Arc::clone(&potential), condition.potential(), options).unwrap();
        sample_start(&sampler, &keys(14, 20));
        // The first, and K = max_accepts − 1 further ones.
        assert_eq!(asked.lock().unwrap().len(), 20 * max_accepts as usize);
    }
}

/// Rejects token 0, accepts token 1, and raises (or lies) about all others.
struct Choosy {
    vocab: Arc<Vocabulary>,
    lies: bool,
}

impl SequencePotential for Choosy {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn claims(&self) -> Claims {
        Claims { boolean: true, ..Claims::default() }
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        match context {
            [] | [TokenId(1)] => Ok(0.0),
            [TokenId(0)] => Ok(DEAD),
            _ if self.lies => Ok(-1.0),
            _ => Err(ControlError::new(ErrorKind::Custom, "only the first two")),
        }
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        self.prefix(&[context, &[TokenId(2)]].concat())
    }
}

#[test]
fn an_error_counts_once_the_walk_needs_its_answer() {
    let vocab = numbered(4);
    let log_weights = [0.3_f64, 0.3, 0.2, 0.1, 0.1].map(f64::ln);
    let recursive = AwrsOptions { max_rejects: Some(2), ..AwrsOptions::default() };
    for (options, lies) in
        [(improper(None), false), (improper(None), true), (recursive.clone(), false), (recursive, true)]
    {
        let condition = Arc::new(FromSequences::new(Choosy { vocab: Arc::clone(&vocab), lies }));
        let potential = Table::new(&vocab, &log_weights).potential();
        let sampler = Awrs::new(potential, condition, options.clone()).unwrap();
        let (mut ahead, keys) = (0, keys(13, 80));
        let mut cursor = sampler.open(80, &Run::default()).unwrap();
        let rows: Vec<usize> = (0..80).collect();
        let drawn = cursor.sample(&rows, &keys, &mut || {}, &mut Keyed::default());
        for (drawn, key) in drawn.into_iter().zip(&keys) {
            let order: Vec<usize> = GumbelOrder::new(Weights::dense(&log_weights), key).take(2).collect();
            // The second rejection, or the probe after the first acceptance, ends the recursive walk.
            let is_enough = order == [0, 1] || (order[0] == 1 && (!options.proper_weights || order[1] == 0));
            match drawn {
                Ok(drawn) => assert!(is_enough && drawn.token == Some(TokenId(1)), "{order:?} {drawn:?}"),
                Err(error) => {
                    let message = if lies { "condition must be Boolean" } else { "only the first two" };
                    assert!(!is_enough && error.to_string() == message, "{order:?} {error}");
                }
            }
            // After a rejection two answers are fetched together, of which the second is not needed.
            ahead += usize::from(order == [0, 1]);
        }
        assert!(ahead > 0);
    }
}

#[test]
fn samplers_11_the_expected_weight_is_the_accepted_mass() {
    let log_weights = [0.4_f64, 0.3, 0.1, 0.1, 0.1].map(f64::ln);
    let potential = Table::new(&numbered(4), &log_weights).potential();
    for prune_logws in [true, false] {
        let mut row = log_weights;
        let mut among = vec![0, 1, 2, 3, 4];
        if prune_logws {
            // The condition reads the first three symbols and the end.
            row[3] = DEAD;
            among.remove(3);
        }
        let log_z = math::log_sum_exp(&row);
        let walk = |order: &mut dyn Iterator<Item = usize>| {
            let mut walk = RecursiveWalk::new(2, None, &row, log_z);
            for index in order {
                if walk.offer(index, index < 2) == Progress::Done {
                    break;
                }
            }
            walk.outcome()
        };
        let mut mean = [0.0; 5];
        for_each_order(&[4, 3, 1, 1, 1], &among, &mut |order, probability| {
            let outcome = walk(&mut order.iter().copied());
            mean[outcome.index.unwrap()] += probability.to_f64() * (outcome.log_s + log_z).exp();
        });
        for (position, expected) in [0.4, 0.3, 0.0, 0.0, 0.0].into_iter().enumerate() {
            assert!((mean[position] - expected).abs() < 1e-12, "{mean:?}");
        }
        assert!((mean.iter().sum::<f64>() - 0.7).abs() < 1e-12);

        // The sampler is that walk, on the order of its key.
        let condition = Table::accepting(&numbered(3), &[0, 1]);
        let asked = Arc::clone(&condition.asked);
        let options = AwrsOptions { prune_logws, ..AwrsOptions::default() };
        let sampler = Awrs::new(Arc::clone(&potential), condition.potential(), options).unwrap();
        let (mut foreign, keys) = (0, keys(11, 500));
        for (drawn, key) in sample_start(&sampler, &keys).into_iter().zip(&keys) {
            let order: Vec<usize> = GumbelOrder::new(Weights::dense(&row), key).collect();
            let outcome = walk(&mut order.iter().copied());
            assert_eq!(drawn.token, outcome.index.map(|index| sampler.vocab().token_at(index)));
            assert_eq!(drawn.logw.to_bits(), (outcome.log_s + log_z).to_bits());
            foreign += usize::from(order[0] == 3);
        }
        assert_eq!(foreign > 0, !prune_logws);
        // In its own numbering, which ends with the third symbol.
        assert!(asked.lock().unwrap().iter().all(|token| token.is_eos() || token.0 < 3));
    }
}

/// The geometric walk as it is written down, with ordinals in program order.
fn geometric(log_weights: &[f64], accepted: &[usize], options: &AwrsOptions, key: &DrawKey) -> Outcome {
    let log_z = math::log_sum_exp(log_weights);
    let mut walk = GeometricWalk::new(options.max_accepts, options.max_rejects, log_weights, log_z);
    let mut ordinals = 0..;
    let mut next = || DrawKey { ordinal: ordinals.next().unwrap(), ..*key };
    loop {
        let order = GumbelOrder::new(Weights::dense(log_weights), &next());
        let mut progress = Progress::Done;
        for index in order {
            if !walk.is_rejected(index) {
                progress = walk.offer(index, accepted.contains(&index), || next().uniform(0));
                if progress != Progress::Continue {
                    break;
                }
            }
        }
        if progress != Progress::Restart {
            return walk.outcome();
        }
    }
}

#[test]
fn the_geometric_sampler_is_its_walk_and_asks_nothing_twice() {
    let log_weights = [0.3_f64, 0.2, 0.2, 0.1, 0.1, 0.1].map(f64::ln);
    let vocab = numbered(5);
    let potential = Table::new(&vocab, &log_weights).potential();
    for accepted in [&[1, 4][..], &[3], &[]] {
        for (max_accepts, max_rejects) in [(2, None), (4, None), (2, Some(2)), (3, Some(9))] {
            let condition = Table::accepting(&vocab, accepted);
            let asked = Arc::clone(&condition.asked);
            let options = AwrsOptions {
                max_accepts,
                max_rejects,
                estimator: Estimator::Geometric,
                ..AwrsOptions::default()
            };
            let sampler = Awrs::new(Arc::clone(&potential), condition.potential(), options.clone()).unwrap();
            for key in keys(12, 100) {
                asked.lock().unwrap().clear();
                let drawn = sample_start(&sampler, std::slice::from_ref(&key)).remove(0);
                let expected = geometric(&log_weights, accepted, &options, &key);
                assert_eq!(drawn.token, expected.index.map(|index| vocab.token_at(index)));
                let log_z = math::log_sum_exp(&log_weights);
                assert_eq!(drawn.logw.to_bits(), (expected.log_s + log_z).to_bits());
                let mut asked = asked.lock().unwrap().clone();
                let n = asked.len();
                asked.sort_unstable();
                asked.dedup();
                assert_eq!(asked.len(), n);
            }
        }
    }
}

#[test]
fn samplers_06_extreme_log_weights_stay_finite_under_the_geometric_estimator() {
    let rows: [(&[f64], usize); 3] =
        [(&[0.0, -744.4, DEAD], 1), (&[-35.756, -2.8e-16, DEAD], 0), (&[-0.405, -1.099, -35.756, DEAD], 2)];
    for (log_weights, accepted) in rows {
        let options = AwrsOptions { estimator: Estimator::Geometric, ..AwrsOptions::default() };
        let sampler = awrs(log_weights, &[accepted], &options);
        for drawn in sample_start(&sampler, &keys(6, 100)) {
            assert_eq!(drawn.token, Some(TokenId(accepted as u32)));
            assert!(drawn.logw.is_finite(), "{drawn:?}");
        }
    }
}

#[test]
fn the_automatic_estimator_is_one_of_the_two() {
    let draw = |log_weights: &[f64], max_accepts, estimator| {
        let options = AwrsOptions { max_accepts, estimator, ..AwrsOptions::default() };
        sample_start(&awrs(log_weights, &[0, 2], &options), &keys(13, 50))
    };
    let (even, steep) = ([0.4_f64, 0.3, 0.3].map(f64::ln), [0.7_f64, 0.2, 0.1].map(f64::ln));
    for (log_weights, max_accepts, choice) in [
        (even, 2, Estimator::Recursive),
        (even, 3, Estimator::Geometric),
        (steep, 2, Estimator::Geometric),
        (steep, 4, Estimator::Geometric),
    ] {
        let chosen = draw(&log_weights, max_accepts, Estimator::Auto);
        assert_eq!(chosen, draw(&log_weights, max_accepts, choice));
        let other = if choice == Estimator::Recursive { Estimator::Geometric } else { Estimator::Recursive };
        assert_ne!(chosen, draw(&log_weights, max_accepts, other));
    }
    for (name, estimator) in ESTIMATORS.iter().zip([Estimator::Recursive, Estimator::Geometric]) {
        assert_eq!(name.parse::<Estimator>().unwrap(), estimator);
    }
    assert!("best".parse::<Estimator>().unwrap_err().to_string().contains("recursive, geometric, auto"));
}

#[test]
fn samplers_15_seeds_fix_everything() {
    let log_weights = [0.4_f64, 0.3, 0.15, 0.1, 0.05].map(f64::ln);
    for estimator in [Estimator::Recursive, Estimator::Geometric] {
        let run = |sampler_seed, run_seed| {
            let options = AwrsOptions { estimator, seed: sampler_seed, ..AwrsOptions::default() };
            let smc = Smc::new(Arc::new(awrs(&log_weights, &[1, 3, 4], &options)), None).unwrap();
            let options = SmcOptions {
                n_particles: 64,
                ess_threshold: 0.0,
                max_tokens: 3,
                seed: run_seed,
                ..SmcOptions::default()
            };
            let sequences = smc.run(&options).unwrap();
            let weights: Vec<u64> = sequences.log_weights().iter().map(|w| w.to_bits()).collect();
            (sequences.contexts().to_vec(), weights)
        };
        assert_ne!(run(None, None), run(None, None));
        assert_eq!(run(Some(7), None), run(Some(7), None));
        assert_eq!(run(None, Some(7)), run(None, Some(7)));
        assert_ne!(run(None, Some(7)), run(None, Some(8)));
    }
}
