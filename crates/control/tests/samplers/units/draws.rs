//! Draws of units through their cursors.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use lockstep_control::potential::{FromSequences, Potential, Run, SequencePotential};
use lockstep_control::sampler::{
    Awrs, AwrsOptions, Direct, Estimator, MultiTokenUnitSampler, TokenSampler, TokenSetBoundary,
    eager_token_sampler,
};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{BoolFsa, Coerced, ControlError, ErrorKind, Keyed, Smc};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

use super::support::{counting, fixed, options, run, units};
use crate::support::{DEAD, Table, constrained, keys, numbered, sample};

#[test]
fn samplers_23_the_end_after_nested_units_weighs_as_after_their_tokens() {
    let set = WeightedSet::new("ab", &[("ab", 1.0), ("a", 2.0)]).potential();
    let deep = units(units(Direct::new(set), fixed(1), 5), fixed(1), 5);
    let mut cursor = deep.open(1, &Run::default()).unwrap();
    let mut end = |tokens: &[u32]| {
        tokens.iter().for_each(|token| drop(cursor.advance(&[0], &[TokenId(*token)])));
        cursor.logw_eos(&[0], &mut || {}).remove(0).unwrap()
    };
    assert!((end(&[0]) + 0.405_465_1).abs() < 1e-7);
    assert_eq!(end(&[1]), 0.0);
}

#[test]
fn samplers_24_the_cap_of_subunits_and_errors_of_subunits() {
    let never = TokenSetBoundary::new([b"b"]);
    let subunits = counting(false);
    let sequences = run(units(subunits.clone(), never.clone(), 5), &options(1, 0.5, 4));
    assert_eq!((sequences.log_weights(), subunits.draws.load(Ordering::SeqCst)), (&[DEAD][..], 5));
    assert!(sequences.contexts()[0].is_empty());
    // One that is met in time.
    let sequences = run(units(counting(false), fixed(5), 5), &options(1, 0.5, 2));
    assert!((sequences.log_weights()[0] + 5.0 * 0.25 + 2.0).abs() < 1e-12);

    let failing = Smc::new(Arc::new(units(counting(true), never, 5)), None).unwrap();
    let error = failing.run(&options(2, 0.5, 4)).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Custom, "the third is broken"));

    let error = MultiTokenUnitSampler::new(Arc::new(counting(false)), Arc::new(fixed(2)), 0).unwrap_err();
    assert!(error.kind() == ErrorKind::Argument && error.to_string().starts_with("max_subunits_per_unit"));
}

#[test]
fn subunits_take_up_the_choices_where_the_last_one_left_them() {
    let log_weights = [0.35_f64, 0.3, 0.2, 0.1, 0.05].map(f64::ln);
    let potential = || -> Arc<dyn Potential> {
        // The same after every token.
        struct Same(Arc<Vocabulary>, Vec<f64>);
        impl SequencePotential for Same {
            fn vocab(&self) -> &Arc<Vocabulary> {
                &self.0
            }
            fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
                Ok(context.iter().map(|token| self.1[token.index()]).sum())
            }
            fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
                Ok(self.prefix(context)? + self.1[4])
            }
        }
        Arc::new(FromSequences::new(Same(numbered(4), log_weights.to_vec())))
    };
    let anything = || Arc::new(BoolFsa::from_regex("(<[013]>)*").unwrap());
    let condition = || -> Arc<dyn Potential> { Arc::new(Coerced::new(anything(), numbered(4)).unwrap()) };
    let geometric = AwrsOptions { estimator: Estimator::Geometric, ..AwrsOptions::default() };
    let make = || -> [Arc<dyn TokenSampler>; 4] {
        [
            Arc::new(Direct::new(potential())),
            Arc::new(Awrs::new(potential(), condition(), AwrsOptions::default()).unwrap()),
            Arc::new(Awrs::new(potential(), condition(), geometric.clone()).unwrap()),
            Arc::new(eager_token_sampler(potential(), anything()).unwrap()),
        ]
    };
    let mut several = Vec::new();
    for sampler in make() {
        let pairs = MultiTokenUnitSampler::new(Arc::clone(&sampler), Arc::new(fixed(2)), 9).unwrap();
        let keys = keys(31, 40);
        let mut cursor = pairs.open(40, &Run::default()).unwrap();
        let together = sample(&mut *cursor, &keys, &mut Keyed::default());
        let mut varied = false;
        for (row, key) in keys.iter().enumerate() {
            // By hand: one draw, then another from the next choice on.
            let mut single = sampler.open(1, &Run::default()).unwrap();
            let first = sample(&mut *single, &[*key], &mut Keyed::default()).remove(0);
            let choices = single.choices(0);
            varied |= choices > 1;
            let mut tokens: Vec<TokenId> = first.token.into_iter().filter(|token| !token.is_eos()).collect();
            let mut logw = first.logw;
            if let Some(token) = tokens.first().copied().filter(|_| logw > DEAD) {
                let _ = single.advance(&[0], &[token]);
                let next = DrawKey { ordinal: key.ordinal + choices, ..*key };
                let second = sample(&mut *single, &[next], &mut Keyed::default()).remove(0);
                tokens.extend(second.token.filter(|token| !token.is_eos()));
                logw += second.logw;
                assert_eq!(cursor.choices(row), choices + single.choices(0));
            }
            assert_eq!(together[row].logw.to_bits(), logw.to_bits());
            if logw > DEAD {
                assert_eq!(cursor.unit(row).unwrap().tokens, tokens);
            }
        }
        several.push(varied);
    }
    assert_eq!(several, [false, false, true, true], "only some samplers make one choice a token");
}

#[test]
fn samplers_28_units_draw_alike_together_and_alone() {
    let (_, _, product) = constrained("(ab)*|b+a?", 0.7, None);
    let calls = Mutex::new(0);
    let sampler = units(Direct::new(product), fixed(2), 9);
    let keys = keys(28, 16);
    let mut cursor = sampler.open(16, &Run::default()).unwrap();
    let rows: Vec<usize> = (0..16).collect();
    let together = cursor.sample(&rows, &keys, &mut || *calls.lock().unwrap() += 1, &mut Keyed::default());
    assert_eq!(*calls.lock().unwrap(), 1, "others are asked once, whatever the unit's length");
    for (i, drawn) in together.into_iter().enumerate() {
        let mut alone = sampler.open(1, &Run::default()).unwrap();
        assert_eq!(sample(&mut *alone, &keys[i..=i], &mut Keyed::default()), [drawn.unwrap()]);
        assert_eq!(alone.unit(0), cursor.unit(i));
    }
}

#[test]
fn a_table_of_one_token_makes_units_that_die_midway() {
    // Nothing follows a token, so the second subunit of every unit is dead.
    let potential = Table::new(&numbered(3), &[0.5_f64, 0.3, 0.2, 0.0].map(f64::ln)).potential();
    let sequences = run(units(Direct::new(potential), fixed(2), 9), &options(8, 0.5, 4));
    assert!(sequences.log_weights().iter().all(|w| *w == DEAD));
    assert!(sequences.contexts().iter().all(Vec::is_empty), "{:?}", sequences.contexts());
    assert_eq!(sequences.n_failed(), 0);
}
