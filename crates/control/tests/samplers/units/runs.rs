//! Runs over units: evidence by enumeration, limits, posteriors.

use std::sync::Arc;

use lockstep_control::potential::{Potential, Run};
use lockstep_control::sampler::{
    Boundary, Direct, FixedLengthBoundary, MultiTokenUnitSampler, TokenSampler, TokenSetBoundary,
    eager_token_sampler, topk_token_sampler,
};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{Nested, Retained, Sequences, Smc, SmcOptions, flatten_units};
use lockstep_sample::TokenId;

use super::support::{fixed, lengths, letters, options, run, units};
use crate::leaves::leaves;

/// `E[exp(log_ml)]` over every choice of a run, and whether one of them resampled.
fn mean_evidence(smc: &Smc, options: &SmcOptions) -> (f64, bool) {
    let (mut mean, mut resampled) = (0.0, false);
    leaves(
        |chooser| smc.start_with(options, chooser).unwrap(),
        |run, p| {
            mean += p * run.sequences().log_ml().exp();
            resampled |= run.sequences().n_resamples() > 0;
        },
    );
    (mean, resampled)
}

#[test]
fn runs_over_units_are_unbiased_by_enumeration() {
    let set = || WeightedSet::new("ab", &[("a", 3.0), ("ab", 2.0), ("b", 1.0), ("abb", 0.5)]).potential();
    let critic = || WeightedSet::new("ab", &[("a", 1.0), ("ab", 2.0), ("b", 3.0), ("abb", 4.0)]).potential();
    let boundaries: [Arc<dyn Boundary>; 3] =
        [Arc::new(fixed(1)), Arc::new(fixed(2)), Arc::new(TokenSetBoundary::new([b"b"]))];
    for boundary in boundaries {
        let proposed = Direct::with_proposal(set(), critic()).unwrap();
        for subunits in [Direct::new(set()), proposed] {
            let sampler = MultiTokenUnitSampler::new(Arc::new(subunits), Arc::clone(&boundary), 9).unwrap();
            let smc = Smc::new(Arc::new(sampler), Some(critic())).unwrap();
            for (ess_threshold, expected) in [(0.0, false), (1.0, true)] {
                let (mean, resampled) = mean_evidence(&smc, &options(2, ess_threshold, 6));
                assert!((mean - 12.0).abs() < 1e-11, "{mean}");
                assert!(resampled <= expected);
            }
        }
    }
}

#[test]
fn runs_over_sets_and_units_of_them_are_unbiased_by_enumeration() {
    let iter = || WeightedSet::new("ab", &[("a", 3.0), ("ab", 2.0), ("b", 1.0), ("abb", 0.5)]).potential();
    let item = || WeightedSet::new("ab", &[("a", 1.0), ("ab", 2.0), ("b", 3.0), ("abb", 4.0)]).potential();
    let eager = || -> Arc<dyn TokenSampler> { Arc::new(eager_token_sampler(iter(), item()).unwrap()) };
    let topk = || -> Arc<dyn TokenSampler> { Arc::new(topk_token_sampler(iter(), item(), Some(1)).unwrap()) };
    let pairs = |subunits| -> Arc<dyn TokenSampler> {
        Arc::new(MultiTokenUnitSampler::new(subunits, Arc::new(fixed(2)), 9).unwrap())
    };
    for sampler in [eager(), topk(), pairs(eager()), pairs(topk())] {
        let smc = Smc::new(sampler, None).unwrap();
        for (n, ess_threshold) in [(1, 0.0), (2, 0.0), (2, 1.0)] {
            let (mean, _) = mean_evidence(&smc, &options(n, ess_threshold, 6));
            assert!((mean - 12.0).abs() < 1e-11, "{n} {ess_threshold}: {mean}");
        }
    }
}

/// With a path drawn from the target, the mean of 1/Ẑ over everything is 1/Z.
#[test]
fn a_conditional_run_retains_units_by_enumeration() {
    let set = || WeightedSet::new("ab", &[("a", 3.0), ("ab", 2.0), ("b", 1.0), ("abb", 0.5)]).potential();
    let critic = || WeightedSet::new("ab", &[("a", 1.0), ("ab", 2.0), ("b", 3.0), ("abb", 4.0)]).potential();
    let boundaries: [Arc<dyn Boundary>; 2] = [Arc::new(fixed(2)), Arc::new(TokenSetBoundary::new([b"b"]))];
    for boundary in boundaries {
        let pairs =
            MultiTokenUnitSampler::new(Arc::new(Direct::new(set())), Arc::clone(&boundary), 9).unwrap();
        let smc = Smc::new(Arc::new(pairs.clone()), Some(critic())).unwrap();
        let mut mean = 0.0;
        leaves(
            |chooser| smc.start_with(&options(1, 0.0, 6), chooser).unwrap(),
            |plain, p| {
                let drawn = plain.sequences();
                let weight = p * drawn.log_weights()[0].exp();
                let path = drawn.retained(0).unwrap();
                leaves(
                    |chooser| smc.conditional_with(&path, &options(2, 1.0, 6), chooser).unwrap(),
                    |run, q| {
                        let sequences = run.sequences();
                        assert_eq!(sequences.contexts()[0], path.tokens());
                        mean += weight * q * (-sequences.log_ml()).exp();
                    },
                );
            },
        );
        // The sum weighs each path by Z times its probability.
        assert!((mean - 1.0).abs() < 1e-11, "{mean}");

        let tokens = vec![TokenId(0), TokenId::EOS];
        let error = smc.conditional(&Retained::new(tokens), &options(2, 1.0, 6)).unwrap_err();
        assert!(error.to_string().contains("this sampler draws units"), "{error}");
        let deep = MultiTokenUnitSampler::new(Arc::new(pairs), Arc::new(fixed(1)), 9).unwrap();
        let path = run(deep.clone(), &options(1, 0.0, 6)).retained(0).unwrap();
        let error =
            Smc::new(Arc::new(deep), None).unwrap().conditional(&path, &options(2, 1.0, 6)).unwrap_err();
        assert!(error.to_string().contains("units of units"), "{error}");
    }
}

#[test]
fn smc_29_a_limit_counts_units_and_the_end_is_split_off() {
    let set = letters(8);
    let flat = run(Direct::new(set.clone().potential()), &options(40, 0.0, 7));
    let one = run(units(Direct::new(set.clone().potential()), fixed(1), 3), &options(40, 0.0, 7));
    assert_eq!(one.contexts(), flat.contexts());
    assert_eq!(one.log_weights(), flat.log_weights(), "a unit of one is a token");

    let three = run(units(Direct::new(letters(8).potential()), fixed(2), 3), &options(200, 0.0, 3));
    for i in 0..three.len() {
        let nested = three.nested(i);
        assert!(nested.len() <= 3 && three.contexts()[i].last().unwrap().is_eos());
        // A unit that ends with the end is the unit without it, then the end; never an empty unit.
        assert!(lengths(&nested).iter().all(|n| *n >= 1), "{nested:?}");
    }
    assert!(three.contexts().iter().any(|context| context.len() == 5), "two units of two, and the end");
    let short = run(units(Direct::new(letters(2).potential()), fixed(2), 3), &options(200, 0.0, 3));
    let alone = short.contexts().iter().position(|context| context.len() == 1).unwrap();
    assert_eq!(short.nested(alone), [Nested::Token(TokenId::EOS)]);

    // The forced end inside nested units weighs as after the flat tokens.
    let deep = run(
        units(units(Direct::new(letters(8).potential()), fixed(2), 9), fixed(2), 9),
        &options(60, 0.0, 2),
    );
    let mut oracle = letters(8).potential().open(1, &Run::default()).unwrap();
    let mut forced = 0;
    for (i, context) in deep.contexts().iter().enumerate() {
        let nested = deep.nested(i);
        assert_eq!(flatten_units(&nested), *context);
        if context.len() == 5 {
            forced += 1;
            assert!(matches!(&nested[..], [Nested::Unit(inner), Nested::Token(_)] if inner.len() == 2
                && inner.iter().all(|unit| matches!(unit, Nested::Unit(tokens) if tokens.len() == 2))));
            // Direct weights telescope to that of the tokens and their end.
            let mut cursor = oracle.fork(&[0]);
            let _ = cursor.advance(&[0], &[&context[..4]]);
            let start = oracle.score(&[0]).remove(0).unwrap();
            let row = cursor.complete(&[0]).remove(0).unwrap() - cursor.score(&[0]).remove(0).unwrap();
            assert!((deep.log_weights()[i] - (start + row)).abs() < 1e-12);
        }
    }
    assert!(forced > 5);
}

#[test]
fn smc_24_posteriors_of_nested_contexts() {
    // Texts a b, with a unit each, and ab as one unit: the same text in two groupings.
    let set = WeightedSet::new("ab", &[("ab", 1.0)]);
    let both = |boundary: FixedLengthBoundary| {
        run(units(Direct::new(set.clone().potential()), boundary, 9), &options(4, 0.0, 9))
    };
    let (single, double) = (both(fixed(1)), both(fixed(2)));
    assert_eq!(single.posterior(), double.posterior());
    let token = |id| Nested::Token(TokenId(id));
    let end = Nested::Token(TokenId::EOS);
    let nested = |sequences: &Sequences| sequences.nested_posterior().remove(0);
    assert_eq!(
        nested(&single),
        (vec![Nested::Unit(vec![token(0)]), Nested::Unit(vec![token(1)]), end.clone()], 1.0)
    );
    assert_eq!(nested(&double), (vec![Nested::Unit(vec![token(0), token(1)]), end], 1.0));
    for sequences in [&single, &double] {
        let bytes = |token: TokenId| -> &[u8] { if token.0 == 0 { b"a" } else { b"b" } };
        assert_eq!(sequences.decoded_posterior(bytes), [("ab".to_owned(), 1.0)]);
    }
    // Without units it is the posterior.
    let flat = run(Direct::new(letters(3).potential()), &options(30, 0.0, 9));
    let nested: Vec<_> =
        flat.nested_posterior().into_iter().map(|(items, p)| (flatten_units(&items), p)).collect();
    assert_eq!(nested, flat.posterior());
}
