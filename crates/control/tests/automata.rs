//! Weighted automata, and boolean ones built from them, from options and from each other.
#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::sync::Arc;

use lockstep_control::potential::{BoolFsa, Claims, Coerced, Potential, Row, Run, Wfsa};
use lockstep_control::testkit::{
    Tolerance, assert_batch_consistency, assert_claims, assert_contract, assert_cursor, assert_soundness,
    assert_sparse, assert_tight, words,
};
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_grammar::{RegexErrorKind, RegexOptions, WeightedArc};
use lockstep_sample::{EosSet, TokenId};
use proptest::prelude::*;

const DEAD: f64 = f64::NEG_INFINITY;

/// The symbols of some bytes in the byte vocabulary.
fn bytes(text: &[u8]) -> Vec<TokenId> {
    text.iter().map(|byte| TokenId(u32::from(*byte))).collect()
}

/// `prefix` and `complete` of a whole context, and the row after it.
fn whole(potential: &dyn Potential, context: &[TokenId]) -> (f64, f64, Row) {
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    let _ = cursor.advance(&[0], &[context]);
    let (prefix, complete) = (cursor.score(&[0]).remove(0), cursor.complete(&[0]).remove(0));
    (prefix.unwrap(), complete.unwrap(), cursor.logw_next(&[0]).remove(0).unwrap())
}

fn prefix(potential: &dyn Potential, text: &[u8]) -> f64 {
    whole(potential, &bytes(text)).0
}

fn complete(potential: &dyn Potential, text: &[u8]) -> f64 {
    whole(potential, &bytes(text)).1
}

fn assert_close(actual: f64, expected: f64) {
    assert!(Tolerance::WEIGHTED.close(actual, expected), "{actual} is not {expected}");
}

fn arc(from: u32, byte: u8, to: u32, weight: f64) -> WeightedArc {
    WeightedArc { from, byte, to, log_weight: weight.ln() }
}

/// All laws and claims of a potential, to a depth, and random scripts.
fn check(potential: &dyn Potential, symbols: &[u8], depth: usize, completion: usize, tolerance: Tolerance) {
    let symbols = bytes(symbols);
    assert_contract(potential, &words(&symbols, depth), tolerance);
    assert_sparse(potential, &words(&symbols, depth));
    assert_soundness(potential, &symbols, depth);
    assert_claims(potential, &symbols, depth, completion, tolerance);
    // Also an id that is no member of the byte vocabulary.
    let symbols: Vec<TokenId> = symbols.into_iter().chain([TokenId(300)]).collect();
    for seed in 0..8 {
        assert_cursor(potential, &symbols, 60, seed, tolerance);
    }
}

#[test]
fn potentials_01_wfsa_prefixes_weigh_all_completions() {
    let arcs = [arc(0, b'a', 1, 2.0), arc(1, b'b', 2, 1.0), arc(1, b'c', 2, 1.0), arc(1, b'd', 3, 1.0)];
    let wfsa = Wfsa::from_arcs(&arcs, &[(0, 0.0)], &[(2, 0.0)]).unwrap();
    assert_close(prefix(&wfsa, b"a"), 4.0_f64.ln());
    assert_close(prefix(&wfsa, b"ab"), 2.0_f64.ln());
    assert_close(complete(&wfsa, b"ab"), 2.0_f64.ln());
    assert_eq!(complete(&wfsa, b"a"), DEAD);
    assert_eq!(prefix(&wfsa, b"ad"), DEAD);
    assert_eq!(prefix(&wfsa, b"c"), DEAD);
    check(&wfsa, b"abcd", 3, 2, Tolerance::WEIGHTED);
}

#[test]
fn potentials_02_wfsa_from_regex_splits_evenly_among_options() {
    let wfsa = Wfsa::from_regex("a(b|c)", &RegexOptions::default()).unwrap();
    assert_close(complete(&wfsa, b"ab"), 0.5_f64.ln());
    assert_eq!(prefix(&wfsa, b"a"), 0.0);
    check(&wfsa, b"abc", 3, 2, Tolerance::WEIGHTED);
}

#[test]
fn weighted_automata_keep_the_contract() {
    let claims = Claims { tight: true, mass_exact: true, monotone: true, ..Claims::default() };
    // Several paths for one text, a cycle, two initial and two final states.
    let arcs = [
        arc(0, b'a', 1, 0.5),
        arc(0, b'a', 2, 1.5),
        arc(1, b'b', 1, 0.25),
        arc(1, b'a', 0, 0.5),
        arc(2, b'b', 1, 0.3),
        arc(2, b'b', 2, 0.125),
    ];
    let ambiguous = Wfsa::from_arcs(&arcs, &[(0, 0.3), (2, -1.0)], &[(1, 0.0), (2, -0.5)]).unwrap();
    assert_eq!(ambiguous.claims(), claims);
    check(&ambiguous, b"ab", 5, 2, Tolerance::WEIGHTED);
    // Weights far below the range of f64, and a cycle whose arcs are huge and tiny.
    let far = |from, byte, to, log_weight| WeightedArc { from, byte, to, log_weight };
    let arcs =
        [far(0, b'a', 1, -9e3), far(1, b'b', 0, 8999.0), far(1, b'a', 1, -700.0), far(1, b'c', 2, 5e3)];
    let scaled = Wfsa::from_arcs(&arcs, &[(0, 0.0)], &[(1, -3.0), (2, -4e4)]).unwrap();
    check(&scaled, b"abc", 4, 2, Tolerance::WEIGHTED);
    let charset = RegexOptions { charset: Some("abé—".to_owned()), ..Default::default() };
    check(&Wfsa::from_regex(".{0,2}", &charset).unwrap(), "aé—".as_bytes(), 3, 3, Tolerance::WEIGHTED);
    let pattern = Wfsa::from_regex(r"(?!aa)[ab]*c?", &RegexOptions::default()).unwrap();
    check(&pattern, b"abc", 4, 1, Tolerance::WEIGHTED);
}

#[test]
fn long_texts_do_not_underflow() {
    let wfsa = Wfsa::from_regex("[a-z]*", &RegexOptions::default()).unwrap();
    let text = b"lockstep".repeat(1000);
    let expected = -(text.len() as f64) * 27.0_f64.ln();
    assert_close(prefix(&wfsa, &text), expected);
    assert_close(complete(&wfsa, &text), expected - 27.0_f64.ln());
}

#[test]
fn divergence_is_an_error_that_names_a_state() {
    let arcs = [arc(3, b'a', 3, 1.0)];
    let error = Wfsa::from_arcs(&arcs, &[(3, 0.0)], &[(3, 0.0)]).unwrap_err();
    assert_eq!(error.kind(), RegexErrorKind::Divergent);
    assert!(error.to_string().contains("state 3"), "{error}");
}

#[test]
fn the_support_of_a_wfsa_is_boolean() {
    let wfsa = Wfsa::from_regex("a(b|c)*d?", &RegexOptions::default()).unwrap();
    let support = BoolFsa::from_wfsa(&wfsa).unwrap();
    for context in words(&bytes(b"abcd"), 4) {
        let ((p, c, _), (q, d, _)) = (whole(&wfsa, &context), whole(&support, &context));
        let boolean = |weight: f64| if weight > DEAD { 0.0 } else { DEAD };
        assert_eq!((q, d), (boolean(p), boolean(c)), "{context:?}");
    }
    check(&support, b"abcd", 3, 1, Tolerance::EXACT);
}

#[test]
fn an_intersection_is_tight_where_a_product_is_not() {
    let build = |pattern| BoolFsa::from_regex(pattern).unwrap();
    let (a, b) = (build("x(a|b)c*|z"), build("x(ac|bd)|z"));
    let both = a.intersect(&b).unwrap();
    // After xb the factors live, but have no common completion.
    assert_eq!((prefix(&a, b"xb"), prefix(&b, b"xb"), prefix(&both, b"xb")), (0.0, 0.0, DEAD));
    assert_eq!(complete(&both, b"xac"), 0.0);
    check(&both, b"xabcdz", 3, 3, Tolerance::EXACT);
    assert_tight(&both, &bytes(b"xabcdz"), 3, 3);
    assert_eq!(a.intersect(&build("y")).unwrap_err().kind(), RegexErrorKind::EmptyLanguage);
}

#[test]
fn options_reach_the_automaton() {
    let over = RegexOptions { charset: Some("ab".to_owned()), ..Default::default() };
    let fsa = BoolFsa::from_regex_with(r"\w+", &over).unwrap();
    assert_eq!((complete(&fsa, b"ab"), prefix(&fsa, b"ac")), (0.0, DEAD));
    let bytewise = RegexOptions { unicode: false, ..Default::default() };
    let fsa = BoolFsa::from_regex_with(r"\xff.", &bytewise).unwrap();
    assert_eq!(complete(&fsa, b"\xff\xfe"), 0.0);
}

#[test]
fn look_aheads_keep_the_contract() {
    for pattern in ["(?!ab)[ab]{1,3}", "(?=.*b)[abc]{2}", "a(?=b(?!b))[bc]*", r"[abc]+(?=\b)(-|$)"] {
        check(&BoolFsa::from_regex(pattern).unwrap(), b"abc-", 3, 3, Tolerance::EXACT);
    }
}

/// All bytes, many longer tokens, duplicates, a special token and an end.
fn tokens() -> Arc<Vocabulary> {
    let mut texts: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    let letters: Vec<TokenId> = bytes("abcé ".as_bytes());
    let longer = words(&letters, 4).into_iter().filter(|word| word.len() > 1).take(740);
    texts.extend(longer.map(|word| word.iter().map(|byte| byte.0 as u8).collect()));
    texts.extend([&b"ab"[..], b"ab", b"", b"<s>", b"</s>"].map(<[u8]>::to_vec));
    let n = texts.len();
    let token = |(id, bytes)| TokenEntry { bytes, special: id + 2 >= n };
    let eos = EosSet::new([n as u32 - 1]);
    Vocabulary::new(texts.into_iter().enumerate().map(token).collect(), eos).unwrap()
}

#[test]
fn a_coerced_wfsa_weighs_tokens_by_their_bytes() {
    let vocab = tokens();
    assert!(vocab.len() > 1000);
    let spell = |context: &[TokenId]| -> Vec<TokenId> {
        bytes(&context.iter().flat_map(|token| vocab.bytes_of(*token).to_vec()).collect::<Vec<u8>>())
    };
    let charset = RegexOptions { charset: Some("abcé —".to_owned()), ..Default::default() };
    let arcs = [arc(0, b'a', 0, 0.5), arc(0, b'a', 1, 0.25), arc(1, b'b', 0, 0.75), arc(1, b'c', 1, 0.1)];
    let inner = [
        Wfsa::from_regex("(ab|[^b]c?)*", &charset).unwrap(),
        Wfsa::from_arcs(&arcs, &[(0, 0.0)], &[(1, 0.0)]).unwrap(),
    ];
    for inner in inner {
        let coerced = Coerced::new(Arc::new(inner.clone()), Arc::clone(&vocab)).unwrap();
        let id = |text: &[u8]| vocab.find(text).unwrap();
        let mut live = 0;
        for context in [vec![], vec![id(b"a")], vec![id(b"ab"), id(b"aca")], vec![id(b"b")]] {
            let (before, ended, row) = whole(&coerced, &context);
            let (expected, expected_end, _) = whole(&inner, &spell(&context));
            assert_close(before, expected);
            assert_close(ended, expected_end);
            for token in (0..vocab.len() as u32).map(TokenId).filter(|token| vocab.is_member(*token)) {
                let extended: Vec<TokenId> = context.iter().copied().chain([token]).collect();
                let expected = match whole(&inner, &spell(&extended)).0 {
                    after if vocab.is_special(token) || before == DEAD || after == DEAD => DEAD,
                    after => after - before,
                };
                let actual = row.at(token.index());
                assert!(
                    Tolerance::WEIGHTED.close(actual, expected),
                    "{context:?}, {token}: {actual} {expected}"
                );
                live += usize::from(actual > DEAD);
            }
            let end = if before == DEAD { DEAD } else { expected_end - expected };
            assert_close(row.at(vocab.eos_position()), end);
        }
        assert!(live > 50, "{live}");
        let symbols: Vec<TokenId> = ["a", "ab", "b", "c", "aab"].iter().map(|t| id(t.as_bytes())).collect();
        assert_batch_consistency(&coerced, &words(&symbols, 1));
        assert_cursor(&coerced, &symbols, 40, 5, Tolerance::WEIGHTED);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// At most seven arcs leave a state, with less than half its weight, so everything converges.
    #[test]
    fn random_weighted_automata_keep_the_contract(
        arcs in prop::collection::vec((0..4_u32, prop::sample::select(&b"ab"[..]), 0..4_u32, 0.001..0.06_f64), 2..8),
        finals in prop::collection::vec((0..4_u32, -4.0..1.0_f64), 1..3),
        scale in -300.0..300.0_f64,
    ) {
        let arcs: Vec<WeightedArc> = arcs.iter().map(|&(f, b, t, w)| arc(f, b, t, w)).collect();
        let initial = [(0, scale), (1, scale - 2.0)];
        let wfsa = match Wfsa::from_arcs(&arcs, &initial, &finals) {
            Ok(wfsa) => wfsa,
            Err(error) => {
                prop_assert_eq!(error.kind(), RegexErrorKind::EmptyLanguage, "{}", error);
                return Ok(());
            }
        };
        let symbols = bytes(b"ab");
        assert_contract(&wfsa, &words(&symbols, 3), Tolerance::WEIGHTED);
        assert_sparse(&wfsa, &words(&symbols, 3));
        assert_claims(&wfsa, &symbols, 2, 3, Tolerance::WEIGHTED);
        assert_cursor(&wfsa, &symbols, 40, 1, Tolerance::WEIGHTED);
    }
}
