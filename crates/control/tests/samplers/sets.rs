//! Set samplers over a trie.

use std::sync::Arc;

use lockstep_control::potential::{
    Claims, CoerceOptions, Coerced, FromSequences, Potential, Run, SequencePotential, SymbolMap,
};
use lockstep_control::sampler::{TokenSampler, eager_token_sampler, topk_token_sampler};
use lockstep_control::testkit::{Enumerator, Tolerance, WeightedSet, assert_properly_weighted};
use lockstep_control::{BoolFsa, ControlError, ErrorKind, Keyed, Product, Smc, SmcOptions};
use lockstep_engine::testkit::vocabulary;
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::{EosSet, TokenId};

use crate::support::{DEAD, Table, constrained, keys, sample, sample_start};

fn fsa(pattern: &str) -> Arc<dyn Potential> {
    Arc::new(BoolFsa::from_regex(pattern).unwrap())
}

/// Tokens with these probabilities, the end's last.
fn table(texts: &[&str], p: &[f64]) -> Arc<dyn Potential> {
    let log_weights: Vec<f64> = p.iter().map(|p| p.ln()).collect();
    Table::new(&vocabulary(texts, &[]), &log_weights).potential()
}

/// Every outcome of the first draw: position, log-weight and probability.
fn outcomes(sampler: &dyn TokenSampler) -> Vec<(Option<usize>, f64, f64)> {
    let enumerator = Enumerator::default();
    let mut outcomes = Vec::new();
    loop {
        let mut cursor = sampler.open(1, &Run::default()).unwrap();
        let drawn = sample(&mut *cursor, &keys(1, 1), &mut enumerator.start()).remove(0);
        let position = drawn.token.map(|token| sampler.vocab().position_of(token));
        outcomes.push((position, drawn.logw, enumerator.log_probability().exp()));
        if !enumerator.next_leaf() {
            return outcomes;
        }
    }
}

fn assert_outcomes(actual: &[(Option<usize>, f64, f64)], expected: &[(usize, f64, f64)]) {
    assert_eq!(actual.len(), expected.len(), "{actual:?}");
    for ((position, logw, p), expected) in actual.iter().zip(expected) {
        assert_eq!(*position, Some(expected.0), "{actual:?}");
        assert!((logw - expected.1).abs() < 1e-12 && (p - expected.2).abs() < 1e-12, "{actual:?}");
    }
}

/// The target that the set samplers have.
fn target(iter: &Arc<dyn Potential>, item: &Arc<dyn Potential>) -> Product {
    let vocab = Arc::clone(iter.vocab());
    let coerced =
        Coerced::with_map(Arc::clone(item), vocab, SymbolMap::Bytes, CoerceOptions::default()).unwrap();
    Product::new(Arc::clone(iter), Arc::new(coerced)).unwrap()
}

fn assert_both_proper(iter: &Arc<dyn Potential>, item: &Arc<dyn Potential>, contexts: &[Vec<TokenId>]) {
    let target = target(iter, item);
    let eager = eager_token_sampler(Arc::clone(iter), Arc::clone(item)).unwrap();
    assert_properly_weighted(&eager, &target, contexts, Tolerance::WEIGHTED);
    for k in [None, Some(1), Some(2), Some(3), Some(5), Some(50)] {
        let topk = topk_token_sampler(Arc::clone(iter), Arc::clone(item), k).unwrap();
        assert_properly_weighted(&topk, &target, contexts, Tolerance::WEIGHTED);
    }
}

fn contexts(ids: &[&[u32]]) -> Vec<Vec<TokenId>> {
    ids.iter().map(|context| context.iter().map(|id| TokenId(*id)).collect()).collect()
}

#[test]
fn samplers_16_eager_lists_both_of_two_ids_with_equal_bytes() {
    let iter = table(&["a", "a", "b"], &[0.3, 0.2, 0.4, 0.1]);
    let half = 0.5_f64.ln();
    let eager = eager_token_sampler(iter, fsa("a")).unwrap();
    assert_outcomes(&outcomes(&eager), &[(0, half, 0.6), (1, half, 0.4)]);
}

#[test]
fn samplers_17_topk_lists_both_of_two_ids_with_equal_bytes_and_the_end() {
    let iter = table(&["a", "a", "b"], &[0.3, 0.2, 0.4, 0.1]);
    let all = topk_token_sampler(Arc::clone(&iter), fsa("a*"), None).unwrap();
    let log_mass = 0.6_f64.ln();
    assert_outcomes(
        &outcomes(&all),
        &[(0, log_mass, 0.5), (1, log_mass, 1.0 / 3.0), (3, log_mass, 1.0 / 6.0)],
    );
    // The two best are both; what is left is the impossible b and the end.
    let two = topk_token_sampler(iter, fsa("a*"), Some(2)).unwrap();
    let with_end = 1.0_f64.ln();
    assert_outcomes(
        &outcomes(&two),
        &[
            (0, 0.5_f64.ln(), 0.8 * 0.6),
            (1, 0.5_f64.ln(), 0.8 * 0.4),
            (0, with_end, 0.2 * 0.3),
            (1, with_end, 0.2 * 0.2),
            (3, with_end, 0.2 * 0.5),
        ],
    );
    let heavy_end = table(&["a", "a", "b"], &[0.2, 0.1, 0.1, 0.6]);
    let one = topk_token_sampler(heavy_end, fsa("a*"), Some(1)).unwrap();
    assert!(outcomes(&one).iter().any(|(position, ..)| *position == Some(3)));
    assert!(outcomes(&one).iter().all(|(_, logw, _)| *logw >= 0.6_f64.ln() - 1e-12));
}

#[test]
fn samplers_18_topk_of_one_and_a_wildcard() {
    let iter = table(&["a", "b", "c"], &[0.5, 0.3, 0.1, 0.1]);
    let sampler = topk_token_sampler(iter, fsa("[ac]*"), Some(1)).unwrap();
    let (mut at_one, mut at_half, mut mean) = (0.0, 0.0, 0.0);
    for (_, logw, p) in outcomes(&sampler) {
        mean += p * logw.exp();
        if logw.abs() < 1e-12 {
            at_one += p;
        } else {
            assert!((logw - 0.5_f64.ln()).abs() < 1e-12);
            at_half += p;
        }
    }
    assert!((at_one - 0.4).abs() < 1e-12 && (at_half - 0.6).abs() < 1e-12 && (mean - 0.7).abs() < 1e-12);
}

#[test]
fn samplers_19_branches_of_any_size_are_visited_and_match_the_target() {
    let texts = ["a", "ab", "abc", "b", "bb", "ba", "c", ""];
    let p = [1e-5, 1e-50, 1e-5, 1e-50, 0.3, 1e-5, 1e-120, 0.2, 1e-5];
    let iter = table(&texts, &p);
    for item in [fsa("a.*|bb|c?"), fsa("(abc|b)*")] {
        assert_both_proper(&iter, &item, &contexts(&[&[]]));
    }
}

#[test]
fn sets_are_proper_for_models_under_weighted_items() {
    for temperature in [1.0, 0.7] {
        let (llm, _, _) = constrained("(ab)*|b+a?", temperature, None);
        let set =
            WeightedSet::new("abc", &[("ab", 1.0), ("abba", 2.5), ("bab", 0.5), ("", 0.25), ("c", 4.0)]);
        let set: Arc<dyn Potential> = set.potential();
        for item in [fsa("(ab)*|b+a?"), fsa("(?s:.)*"), set] {
            assert_both_proper(&llm, &item, &contexts(&[&[], &[0], &[2], &[2, 4], &[1, 2], &[6]]));
        }
    }
}

#[test]
fn special_and_empty_tokens_are_in_no_branch_and_at_the_root() {
    let entry = |bytes: &str, special| TokenEntry { bytes: bytes.as_bytes().to_vec(), special };
    let tokens =
        vec![entry("a", false), entry("a", true), entry("", false), entry("ab", false), entry("b", false)];
    let vocab = Vocabulary::new(tokens, EosSet::new([])).unwrap();
    let iter = Table::new(&vocab, &[0.3, 0.2, 0.2, 0.15, 0.05, 0.1].map(f64::ln)).potential();
    for item in [fsa("(ab)*"), fsa("a?")] {
        assert_both_proper(&iter, &item, &contexts(&[&[]]));
    }
    let listed = outcomes(&topk_token_sampler(iter, fsa("a*"), Some(3)).unwrap());
    assert!(listed.iter().all(|(position, ..)| *position != Some(1)));
}

/// Weighs a byte string by a function.
struct Weighed(fn(&[u8]) -> f64);

impl SequencePotential for Weighed {
    fn vocab(&self) -> &Arc<Vocabulary> {
        static BYTES: std::sync::OnceLock<Arc<Vocabulary>> = std::sync::OnceLock::new();
        BYTES.get_or_init(Vocabulary::bytes)
    }
    fn claims(&self) -> Claims {
        Claims::default()
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok((self.0)(&context.iter().map(|byte| byte.0 as u8).collect::<Vec<u8>>()))
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(self.prefix(context)? - 4.0)
    }
}

#[test]
fn samplers_20_an_item_that_rises_along_a_token_is_an_error_of_its_run() {
    let iter: Arc<dyn Potential> = constrained("", 1.0, None).0;
    let rising: Arc<dyn Potential> = Arc::new(FromSequences::new(Weighed(|text| match text {
        b"ca" => -9.0,
        b"cab" => -1.0,
        _ => -(text.len() as f64),
    })));
    let sampler = topk_token_sampler(iter, Arc::clone(&rising), None).unwrap();
    let mut cursor = sampler.open(2, &Run::default()).unwrap();
    // After c, the token ab falls to -9 and rises to -1.
    let _ = cursor.advance(&[1], &[TokenId(6)]);
    let drawn = cursor.sample(&[0, 1], &keys(20, 2), &mut || {}, &mut Keyed::default());
    assert!(drawn[0].as_ref().unwrap().logw.is_finite());
    let error = drawn[1].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contract);
    assert_eq!(error.to_string(), "item log-weights must not increase along a token");
    assert!(!error.is_recoverable());

    let options = SmcOptions { n_particles: 64, max_tokens: 4, seed: Some(1), ..SmcOptions::default() };
    let error = Smc::new(Arc::new(sampler), None).unwrap().run(&options).unwrap_err();
    assert_eq!(error.to_string(), "item log-weights must not increase along a token");
}

#[test]
fn arguments_that_make_no_set_sampler_are_refused() {
    let iter = || table(&["a", "b"], &[0.5, 0.3, 0.2]);
    let error = topk_token_sampler(iter(), fsa("a*"), Some(0)).unwrap_err();
    assert!(error.kind() == ErrorKind::Argument && error.to_string().starts_with("k: "), "{error}");
    let words: Arc<dyn Potential> = table(&["aa", "b"], &[0.5, 0.3, 0.2]);
    let error = eager_token_sampler(iter(), words).unwrap_err();
    assert!(error.kind() == ErrorKind::Vocabulary && error.to_string().contains("single bytes"), "{error}");
    let foreign: Arc<dyn Potential> = table(&["x", "y"], &[0.5, 0.3, 0.2]);
    assert_eq!(eager_token_sampler(iter(), foreign).unwrap_err().kind(), ErrorKind::Vocabulary);
}

#[test]
fn ties_go_to_the_lower_id() {
    let iter = table(&["b", "a", "ab", "a"], &[0.2; 5]);
    for (k, expected) in [(1, &[0][..]), (2, &[0, 1]), (3, &[0, 1, 2]), (4, &[0, 1, 2, 3])] {
        let sampler = topk_token_sampler(Arc::clone(&iter), fsa("(?s:.)*"), Some(k)).unwrap();
        // What is always listed comes with every wildcard.
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for (position, ..) in outcomes(&sampler) {
            let position = position.unwrap();
            match seen.iter_mut().find(|(known, _)| *known == position) {
                Some((_, n)) => *n += 1,
                None => seen.push((position, 1)),
            }
        }
        let most = seen.iter().map(|(_, n)| *n).max().unwrap();
        let mut always: Vec<usize> = seen.iter().filter(|(_, n)| *n == most).map(|(at, _)| *at).collect();
        always.sort_unstable();
        if 5 - k > 1 {
            assert_eq!(always, expected);
        }
    }
}

#[test]
fn a_dead_item_leaves_no_token_even_without_bytes() {
    let iter = table(&["a", ""], &[0.5, 0.3, 0.2]);
    let samplers =
        [eager_token_sampler(Arc::clone(&iter), fsa("b")), topk_token_sampler(iter, fsa("b"), Some(1))];
    for sampler in samplers.map(Result::unwrap) {
        let mut cursor = sampler.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[TokenId(0)]);
        let drawn = sample(&mut *cursor, &keys(1, 1), &mut Keyed::default()).remove(0);
        assert_eq!((drawn.token, drawn.logw), (None, DEAD));
        assert!(
            sample_start(&sampler, &keys(1, 20))
                .iter()
                .all(|d| d.token != Some(TokenId(0)) || d.logw == DEAD)
        );
    }
}
