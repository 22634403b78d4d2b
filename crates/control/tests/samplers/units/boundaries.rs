//! Where units end.

use std::sync::Arc;

use lockstep_control::potential::{FromSequences, Potential, RowResult, SequencePotential};
use lockstep_control::sampler::{
    Boundary, CfgBoundary, CfgBoundaryOptions, CriticBoundary, DecodeErrors, Direct, FixedLengthBoundary,
    MultiTokenUnitSampler, Sign, SurpriseBoundary, TokenSetBoundary, UnitLength, UnitSoFar,
};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{ControlError, ErrorKind, Nested, Smc, Unit, flatten_units};
use lockstep_engine::testkit::vocabulary;
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::{EosSet, TokenId};

use super::support::{buffer, counting, fixed, lengths, letters, options, run, so_far, units};
use crate::support::numbered;

#[test]
fn samplers_21_a_token_set_fires_on_bytes_and_on_eos_only_when_listed() {
    let vocab = vocabulary(&[" ", "a", " ", "a "], &[]);
    let met = |boundary: &TokenSetBoundary, ids: &[u32]| {
        boundary.is_met(&so_far(&buffer(ids), 1, 0.0, &vocab)).unwrap()
    };
    for boundary in [TokenSetBoundary::new([b" "]), TokenSetBoundary::of_tokens(&vocab, &[TokenId(0)])] {
        // Both ids have those bytes; a token that only ends with them has others.
        assert_eq!([0, 1, 2, 3].map(|id| met(&boundary, &[1, id])), [true, false, true, false]);
        assert!(!met(&boundary, &[1, 99]));
        assert!(met(&boundary.with_eos(), &[1, 99]));
    }
    assert!(met(&TokenSetBoundary::of_tokens(&vocab, &[TokenId::EOS]), &[99]));
    assert!(!met(&TokenSetBoundary::of_tokens(&vocab, &[TokenId::EOS]), &[0]));
}

#[test]
fn samplers_22_units_of_three_have_three_subunits_unless_eos_ends_them() {
    let sequences = run(units(Direct::new(letters(8).potential()), fixed(3), 100), &options(200, 0.0, 10));
    let mut ended_early = 0;
    for i in 0..sequences.len() {
        let nested = sequences.nested(i);
        assert_eq!(flatten_units(&nested), sequences.contexts()[i]);
        assert_eq!(nested.last(), Some(&Nested::Token(TokenId::EOS)));
        let lengths = lengths(&nested);
        let (last, full) = lengths.split_last().map_or((3, &[][..]), |(last, full)| (*last, full));
        assert!(full.iter().all(|n| *n == 3) && last <= 3, "{nested:?}");
        ended_early += usize::from(last < 3);
    }
    assert!(ended_early > 10);
    assert_eq!(FixedLengthBoundary::new(0).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn surprise_is_met_by_how_far_the_weight_has_moved() {
    let vocab = vocabulary(&["a"], &[]);
    let length = UnitLength { min: 2, max: 4 };
    let met = |sign, n: usize, logw| {
        let boundary = SurpriseBoundary::new(SurpriseBoundary::THRESHOLD, length, sign).unwrap();
        boundary.is_met(&so_far(&buffer(&vec![0; n]), 1, logw, &vocab)).unwrap()
    };
    for (sign, expected) in [
        (Sign::Abs, [true, false, true]),
        (Sign::Down, [true, false, false]),
        (Sign::Up, [false, false, true]),
    ] {
        assert_eq!([-1.5, 1.49, 1.5].map(|logw| met(sign, 2, logw)), expected);
        assert!(!met(sign, 1, -9.0) && !met(sign, 1, 9.0) && met(sign, 4, 0.0));
    }
    for (threshold, length) in [(-1.0, UnitLength::default()), (1.0, UnitLength { min: 3, max: 2 })] {
        assert_eq!(
            SurpriseBoundary::new(threshold, length, Sign::Abs).unwrap_err().kind(),
            ErrorKind::Argument
        );
    }
    // In a run: -0.25 a token adds up to -1.5 after six.
    let boundary = SurpriseBoundary::new(1.5, UnitLength::default(), Sign::Down).unwrap();
    let sequences = run(units(counting(false), boundary, 100), &options(1, 0.5, 3));
    assert_eq!(lengths(&sequences.nested(0)), [6, 6]);
}

#[test]
fn samplers_25_a_grammar_is_met_by_what_it_derives() {
    let vocab = vocabulary(&["x", "xx", "y", "\u{e9}"], &[]);
    let boundary = |grammar: &str, min_length| {
        CfgBoundary::new(grammar, CfgBoundaryOptions { min_length, ..CfgBoundaryOptions::default() }).unwrap()
    };
    let met = |boundary: &CfgBoundary, ids: &[u32]| {
        let buffer = buffer(ids);
        boundary.is_met(&so_far(&buffer, ids.len().min(1), 0.0, &vocab)).unwrap()
    };
    let one = boundary("start: \"x\"+", 1);
    assert!(met(&one, &[0, 99]) && met(&one, &[0]) && met(&one, &[0, 1]));
    assert!(!met(&one, &[99]) && !met(&one, &[]) && !met(&one, &[2]));
    let three = boundary("start: \"x\"+", 3);
    assert!(!met(&three, &[0, 0]) && !met(&three, &[0, 0, 99]) && met(&three, &[0, 0, 1]));
    let default = CfgBoundary::new("start: \"x\"+", CfgBoundaryOptions::default()).unwrap();
    assert!(!met(&default, &[1]) && met(&default, &[0, 0]));
}

#[test]
fn samplers_25_roots_decoding_and_bad_grammars() {
    let grammar = "?start: word | pair\nword: \"x\"+\npair: \"y\" word";
    let rules = |rules: &[&str]| Some(rules.iter().map(|rule| (*rule).to_owned()).collect());
    let options = |complete_rules, decode_errors| CfgBoundaryOptions {
        complete_rules,
        decode_errors,
        min_length: 1,
        ..CfgBoundaryOptions::default()
    };
    // A text cut inside a character: bytes that are no UTF-8.
    let tokens = [&b"x"[..], b"y", b"\xc3"].map(|bytes| TokenEntry { bytes: bytes.to_vec(), special: false });
    let vocab = Vocabulary::new(tokens.to_vec(), EosSet::new([])).unwrap();
    let met =
        |boundary: &CfgBoundary, ids: &[u32]| boundary.is_met(&so_far(&buffer(ids), 1, 0.0, &vocab)).unwrap();
    let pairs = CfgBoundary::new(grammar, options(rules(&["pair"]), DecodeErrors::Ignore)).unwrap();
    assert!(met(&pairs, &[1, 0]) && !met(&pairs, &[0]) && !met(&pairs, &[1]));
    assert!(met(&pairs, &[1, 0, 2]));
    for errors in [DecodeErrors::Replace, DecodeErrors::Strict] {
        let boundary = CfgBoundary::new(grammar, options(None, errors)).unwrap();
        assert!(met(&boundary, &[1, 0]) && !met(&boundary, &[1, 0, 2]));
    }
    assert_eq!(pairs.parse_tree("yxx").unwrap().rule, "pair");
    assert!(pairs.parse_tree("y").is_none());

    for (grammar, complete, message) in [
        ("start: (", None, "grammar: line 1: "),
        ("begin: \"x\"", None, "no rule `start`"),
        (grammar, rules(&["pairs"]), "complete_rules: `pairs`"),
    ] {
        let error = CfgBoundary::new(grammar, options(complete, DecodeErrors::Ignore)).unwrap_err();
        assert!(error.kind() == ErrorKind::Argument && error.to_string().contains(message), "{error}");
    }
    // In a run: units of a's with a b behind.
    let options = CfgBoundaryOptions { min_length: 1, ..CfgBoundaryOptions::default() };
    let boundary = CfgBoundary::new("start: \"a\"* \"b\"", options).unwrap();
    let sequences = run(units(Direct::new(letters(6).potential()), boundary, 9), &self::options(60, 0.0, 9));
    let mut seen = 0;
    for i in 0..sequences.len() {
        let nested = sequences.nested(i);
        for (at, item) in nested.iter().enumerate() {
            let Nested::Unit(items) = item else { continue };
            let is_b: Vec<bool> = items.iter().map(|item| *item == Nested::Token(TokenId(1))).collect();
            let (last, before) = is_b.split_last().unwrap();
            assert!(before.iter().all(|b| !b) && (*last || at + 2 == nested.len()), "{nested:?}");
            seen += usize::from(*last);
        }
    }
    assert!(seen > 30);
}

#[test]
fn a_critic_boundary_sees_the_change_over_each_unit() {
    // The critic loses 1 nat with each a, 0.5 with each b.
    struct Fading(Arc<Vocabulary>);
    impl SequencePotential for Fading {
        fn vocab(&self) -> &Arc<Vocabulary> {
            &self.0
        }
        fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
            Ok(context.iter().map(|token| if token.0 == 0 { -1.0 } else { -0.5 }).sum())
        }
        fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
            self.prefix(context)
        }
    }
    let set = letters(8);
    let vocab = numbered(2);
    let critic = |vocab: &Arc<Vocabulary>| -> Arc<dyn Potential> {
        Arc::new(FromSequences::new(Fading(Arc::clone(vocab))))
    };
    let potential = set.potential();
    let boundary =
        CriticBoundary::new(critic(potential.vocab()), |change| change <= -2.0, UnitLength::default())
            .unwrap();
    let sequences = run(units(Direct::new(potential.clone()), boundary, 100), &options(60, 0.9, 10));
    let mut seen = 0;
    for i in 0..sequences.len() {
        let nested = sequences.nested(i);
        for (at, item) in nested.iter().enumerate() {
            let Nested::Unit(items) = item else { continue };
            let weigh = |item: &Nested| match item {
                Nested::Token(TokenId(0)) => -1.0,
                _ => -0.5,
            };
            let change: f64 = items.iter().map(weigh).sum();
            let before: f64 = items.split_last().map_or(0.0, |(_, rest)| rest.iter().map(weigh).sum());
            assert!(before > -2.0, "{nested:?}");
            // Only the end cuts a unit short.
            assert!(change <= -2.0 || at + 2 == nested.len(), "{nested:?}");
            seen += usize::from(at > 0 && change <= -2.0);
        }
    }
    assert!(seen > 10, "units after the first are met too");

    let foreign = CriticBoundary::new(critic(&vocab), |_| true, UnitLength::default()).unwrap();
    let error =
        MultiTokenUnitSampler::new(Arc::new(Direct::new(potential)), Arc::new(foreign), 9).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Vocabulary);
}

#[test]
fn a_boundary_that_panics_is_an_error_of_the_run() {
    struct Broken {
        late: bool,
    }
    impl Boundary for Broken {
        fn is_met(&self, _: &UnitSoFar<'_>) -> RowResult<bool> {
            assert!(self.late, "lost");
            Ok(true)
        }
        fn finalize_unit(&self, _: Unit) -> Unit {
            panic!("lost")
        }
    }
    for late in [false, true] {
        let smc = Smc::new(Arc::new(units(counting(false), Broken { late }, 5)), None).unwrap();
        let error = smc.run(&options(2, 0.5, 4)).unwrap_err();
        let expected = (ErrorKind::Custom, "the boundary panicked: lost");
        assert_eq!((error.kind(), error.to_string().as_str()), expected);
    }
}

#[test]
fn a_finalized_unit_may_drop_what_the_target_has_weighed() {
    struct WithoutLast;
    impl Boundary for WithoutLast {
        fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool> {
            Ok(so_far.buffer.len() == 2)
        }
        fn finalize_unit(&self, mut unit: Unit) -> Unit {
            unit.tokens.pop();
            unit
        }
    }
    let set = WeightedSet::new("ab", &[("abab", 2.0)]);
    let sequences = run(units(Direct::new(set.potential()), WithoutLast, 9), &options(2, 0.0, 9));
    let a = TokenId(0);
    assert_eq!(sequences.contexts()[0], [a, a, TokenId::EOS]);
    assert!((sequences.log_weights()[0] - 2_f64.ln()).abs() < 1e-12);
}
