//! Units of several tokens, in samplers and in runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockstep_control::potential::{Demands, FromSequences, Potential, RowResult, Run, Status};
use lockstep_control::sampler::{
    Awrs, AwrsOptions, Boundary, CfgBoundary, CfgBoundaryOptions, CriticBoundary, DecodeErrors, Direct,
    Estimator, FixedLengthBoundary, MultiTokenUnitSampler, Sampled, SamplerCursor, Sign, SurpriseBoundary,
    TokenSampler, TokenSetBoundary, UnitLength, UnitSoFar, eager_token_sampler, topk_token_sampler,
};
use lockstep_control::testkit::{Enumerator, WeightedSet};
use lockstep_control::{
    BoolFsa, Chooser, ControlError, ErrorKind, Keyed, Nested, Retained, Sequences, Smc, SmcOptions, Unit,
    UnitEnds, flatten_units,
};
use lockstep_engine::testkit::vocabulary;
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::{DrawKey, EosSet, TokenId};

use crate::support::{DEAD, Table, constrained, keys, numbered, sample};

fn units(
    subunits: impl TokenSampler + 'static,
    boundary: impl Boundary + 'static,
    cap: usize,
) -> MultiTokenUnitSampler {
    MultiTokenUnitSampler::new(Arc::new(subunits), Arc::new(boundary), cap).unwrap()
}

fn fixed(n: usize) -> FixedLengthBoundary {
    FixedLengthBoundary::new(n).unwrap()
}

fn options(n: usize, ess_threshold: f64, max_tokens: usize) -> SmcOptions {
    SmcOptions { n_particles: n, ess_threshold, max_tokens, seed: Some(1), ..SmcOptions::default() }
}

fn run(sampler: impl TokenSampler + 'static, options: &SmcOptions) -> Sequences {
    Smc::new(Arc::new(sampler), None).unwrap().run(options).unwrap()
}

/// A buffer of tokens as a boundary sees it, the last subunit being the last `last` tokens.
fn so_far<'a>(buffer: &'a Unit, last: usize, logw: f64, vocab: &'a Vocabulary) -> UnitSoFar<'a> {
    static NONE: std::sync::OnceLock<UnitEnds> = std::sync::OnceLock::new();
    let context: (&[TokenId], &UnitEnds) = (&[], NONE.get_or_init(UnitEnds::none));
    let last = &buffer.tokens[buffer.tokens.len() - last..];
    UnitSoFar { context, buffer, last, logw, critic: 0.0, vocab }
}

fn buffer(ids: &[u32]) -> Unit {
    let token = |id: &u32| if *id == 99 { TokenId::EOS } else { TokenId(*id) };
    Unit { tokens: ids.iter().map(token).collect(), inner: UnitEnds::none() }
}

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

/// The lengths of a nested context's units, the end left out.
fn lengths(context: &[Nested]) -> Vec<usize> {
    let length = |item: &Nested| match item {
        Nested::Unit(items) => Some(items.len()),
        Nested::Token(token) => {
            assert!(token.is_eos());
            None
        }
    };
    context.iter().filter_map(length).collect()
}

fn letters(n: usize) -> WeightedSet {
    let strings: Vec<(String, f64)> = (0..1_u32 << n)
        .flat_map(|bits| (0..=n).map(move |len| (bits, len)))
        .filter(|(bits, len)| bits >> len == 0)
        .map(|(bits, len)| {
            (
                (0..len).map(|i| if bits >> i & 1 == 1 { 'b' } else { 'a' }).collect(),
                1.0 + f64::from(bits % 5),
            )
        })
        .collect();
    let strings: Vec<(&str, f64)> = strings.iter().map(|(text, w)| (text.as_str(), *w)).collect();
    WeightedSet::new("ab", &strings)
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

/// Draws token 0 with log-weight -0.25, and counts its draws; the third one fails if it is to.
#[derive(Clone)]
struct Counting {
    vocab: Arc<Vocabulary>,
    draws: Arc<AtomicUsize>,
    fails: bool,
}

struct CountingCursor(Counting);

impl TokenSampler for Counting {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn open(&self, _n: usize, _run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(CountingCursor(self.clone())))
    }
    fn demand(&self, _n: usize, _max_tokens: usize, _demands: &mut Demands) -> Result<(), ControlError> {
        Ok(())
    }
}

impl SamplerCursor for CountingCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        Ok(0.0)
    }
    fn sample(
        &mut self,
        rows: &[usize],
        _keys: &[DrawKey],
        others: &mut dyn FnMut(),
        _chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        others();
        let draw = self.0.draws.fetch_add(1, Ordering::SeqCst) + 1;
        let drawn = if self.0.fails && draw == 3 {
            Err(ControlError::new(ErrorKind::Custom, "the third is broken"))
        } else {
            Ok(Sampled { token: Some(TokenId(0)), logw: -0.25, logp: Some(-1.0) })
        };
        vec![drawn; rows.len()]
    }
    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        others();
        vec![Ok(-2.0); rows.len()]
    }
    fn advance(&mut self, rows: &[usize], _tokens: &[TokenId]) -> Vec<Status> {
        rows.iter().map(|_| Status::Live).collect()
    }
    fn select(&mut self, _ancestors: &[usize]) {}
    fn release(&mut self, _rows: &[usize]) {}
}

fn counting(fails: bool) -> Counting {
    Counting { vocab: vocabulary(&["a", "b"], &[]), draws: Arc::default(), fails }
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
fn a_boundary_that_panics_is_an_error_of_the_run() {
    struct Broken;
    impl Boundary for Broken {
        fn is_met(&self, _: &UnitSoFar<'_>) -> RowResult<bool> {
            panic!("lost")
        }
    }
    let smc = Smc::new(Arc::new(units(counting(false), Broken, 5)), None).unwrap();
    let error = smc.run(&options(2, 0.5, 4)).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Custom, "the boundary panicked: lost")
    );
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
    impl lockstep_control::potential::SequencePotential for Fading {
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

/// `E[exp(log_ml)]` over every choice of a run.
fn mean_evidence(smc: &Smc, options: &SmcOptions) -> (f64, bool) {
    let enumerator = Enumerator::default();
    let (mut mean, mut total, mut resampled) = (0.0, 0.0, false);
    loop {
        let mut run = smc.start_with(options, Box::new(enumerator.start())).unwrap();
        run.by_ref().for_each(|step| assert!(step.is_ok()));
        let p = enumerator.log_probability().exp();
        mean += p * run.sequences().log_ml().exp();
        total += p;
        resampled |= run.sequences().n_resamples() > 0;
        if !enumerator.next_leaf() {
            assert!((total - 1.0).abs() < 1e-12);
            return (mean, resampled);
        }
    }
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
        let enumerator = Enumerator::default();
        let mut mean = 0.0;
        loop {
            let mut plain = smc.start_with(&options(1, 0.0, 6), Box::new(enumerator.start())).unwrap();
            plain.by_ref().for_each(|step| assert!(step.is_ok()));
            let sequences = plain.sequences();
            let weight = enumerator.log_probability() + sequences.log_weights()[0];
            let path = sequences.retained(0).unwrap();
            let inner = Enumerator::default();
            loop {
                let start = smc.conditional_with(&path, &options(2, 1.0, 6), Box::new(inner.start()));
                let mut run = start.unwrap();
                run.by_ref().for_each(|step| assert!(step.is_ok()));
                let sequences = run.sequences();
                assert_eq!(sequences.contexts()[0], path.tokens());
                mean += (weight + inner.log_probability() - sequences.log_ml()).exp();
                if !inner.next_leaf() {
                    break;
                }
            }
            if !enumerator.next_leaf() {
                break;
            }
        }
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

#[test]
fn subunits_take_up_the_choices_where_the_last_one_left_them() {
    let log_weights = [0.35_f64, 0.3, 0.2, 0.1, 0.05].map(f64::ln);
    let potential = || -> Arc<dyn Potential> {
        // The same after every token.
        struct Same(Arc<Vocabulary>, Vec<f64>);
        impl lockstep_control::potential::SequencePotential for Same {
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
    let condition = || -> Arc<dyn Potential> {
        Arc::new(lockstep_control::Coerced::new(anything(), numbered(4)).unwrap())
    };
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
