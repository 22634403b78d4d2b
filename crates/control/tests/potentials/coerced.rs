//! Byte automata, and potentials over bytes read through tokens.

use std::sync::Arc;

use lockstep_control::potential::{BoolFsa, Claims, Coerced, Potential, Run};
use lockstep_control::testkit::{
    Tolerance, WeightedSet, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse,
    words,
};
use lockstep_control::{ErrorKind, Product};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use crate::support::{
    DEAD, and_strangers, assert_equal, byte_set, bytes, function, ids, members, vocabulary,
};

const BOOLEAN: Claims =
    Claims { boolean: true, tight: true, monotone: true, mass_exact: false, terminal_only: false };

/// Several bytes, equal bytes, no bytes, a special token, an end.
fn tokens() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "ab", "ba", "a", "", "bab", "<|a|>", "</s>"], &[7], &[8])
}

/// The bytes of a sequence of ordinary tokens.
fn spell(vocab: &Vocabulary, context: &[TokenId]) -> Option<Vec<u8>> {
    let bytes = |token: &TokenId| (!vocab.is_special(*token)).then(|| vocab.bytes_of(*token));
    Some(context.iter().map(bytes).collect::<Option<Vec<_>>>()?.concat())
}

/// Whether ordinary tokens can spell `text`.
fn spellable(vocab: &Vocabulary, text: &[u8]) -> bool {
    text.is_empty()
        || members(vocab).into_iter().any(|token| {
            let bytes = vocab.bytes_of(token);
            !bytes.is_empty() && text.starts_with(bytes) && spellable(vocab, &text[bytes.len()..])
        })
}

/// The coerced potential of a finite language by definition: live iff tokens can complete it.
fn by_definition(vocab: &Arc<Vocabulary>, language: &'static [&'static str]) -> Arc<dyn Potential> {
    let tables = Arc::clone(vocab);
    function(vocab, BOOLEAN, move |context, ended| {
        let Some(text) = spell(&tables, context) else { return DEAD };
        let completes = |whole: &&str| match whole.as_bytes().strip_prefix(text.as_slice()) {
            Some(rest) => {
                if ended {
                    rest.is_empty()
                } else {
                    spellable(&tables, rest)
                }
            }
            None => false,
        };
        if language.iter().any(completes) { 0.0 } else { DEAD }
    })
}

/// All laws and claims of a potential, to a depth, and random scripts.
fn check(
    potential: &dyn Potential,
    symbols: &[TokenId],
    depth: usize,
    completion: usize,
    tolerance: Tolerance,
) {
    assert_contract(potential, &words(symbols, depth), tolerance);
    assert_sparse(potential, &words(symbols, depth));
    assert_soundness(potential, symbols, depth);
    assert_claims(potential, symbols, depth, completion, tolerance);
    for seed in 0..8 {
        assert_cursor(potential, &and_strangers(symbols, potential.vocab()), 60, seed, tolerance);
    }
}

#[test]
fn byte_automata_keep_the_contract() {
    for (pattern, symbols) in [("a(b|c)*", "abc"), ("é|[ab]{1,2}", "abé"), ("(ab|ba)*", "ab"), ("", "a")] {
        let fsa = BoolFsa::from_regex(pattern).unwrap();
        assert_eq!(fsa.claims(), BOOLEAN);
        check(&fsa, &bytes(symbols), 3, 3, Tolerance::EXACT);
    }
}

#[test]
fn potentials_30_cursors_and_whole_contexts_of_a_finite_language_agree() {
    const LANGUAGE: &[&str] = &["", "abba", "ab", "babab", "bb"];
    let fsa = BoolFsa::from_strings(LANGUAGE).unwrap();
    // One byte a token: the automaton's cursor, the default cursor, whole contexts.
    let over_bytes = by_definition(&Vocabulary::bytes(), LANGUAGE);
    let symbols = bytes("abc");
    assert_equal(&fsa, &*over_bytes, &words(&symbols, 5), Tolerance::EXACT);
    check(&*over_bytes, &symbols, 3, 5, Tolerance::EXACT);
    check(&fsa, &symbols, 3, 5, Tolerance::EXACT);
    // Through tokens: the masked cursor, the walk of the trie, the default cursor.
    let vocab = tokens();
    let symbols = members(&vocab);
    let masked = Coerced::new(Arc::new(fsa), Arc::clone(&vocab)).unwrap();
    let walked = Coerced::new(over_bytes, Arc::clone(&vocab)).unwrap();
    let by_definition = by_definition(&vocab, LANGUAGE);
    for potential in [&masked as &dyn Potential, &walked] {
        assert_equal(potential, &*by_definition, &words(&symbols, 4), Tolerance::EXACT);
        check(potential, &symbols, 2, 5, Tolerance::EXACT);
    }
    check(&*by_definition, &symbols, 2, 5, Tolerance::EXACT);
    assert_eq!(masked.claims(), BOOLEAN);
    assert_eq!(walked.claims(), Claims { tight: false, ..BOOLEAN });
}

#[test]
fn a_state_that_bytes_complete_but_tokens_do_not_is_cut() {
    const LANGUAGE: &[&str] = &["abc", "ad", "dabba"];
    // No token has the byte c, and d occurs only behind an a.
    let vocab = vocabulary(&["a", "b", "ab", "ad", "d<>", "</s>"], &[], &[5]);
    let fsa: Arc<dyn Potential> = Arc::new(BoolFsa::from_strings(LANGUAGE).unwrap());
    let coerced = Coerced::new(Arc::clone(&fsa), Arc::clone(&vocab)).unwrap();
    let mut cursor = coerced.open(2, &Run::default()).unwrap();
    let row = cursor.logw_next(&[0]).remove(0).unwrap();
    let live: Vec<usize> = (0..vocab.row_len()).filter(|at| row.at(*at) == 0.0).collect();
    assert_eq!(live, [3], "only `ad` leads to an accepted text");
    let _ = cursor.advance(&[0, 1], &[&ids(&[3]), &ids(&[0])]);
    assert_eq!(cursor.score(&[0, 1]).into_iter().map(Result::unwrap).collect::<Vec<f64>>(), [0.0, DEAD]);
    assert!(coerced.claims().tight);
    check(&coerced, &members(&vocab), 3, 3, Tolerance::EXACT);
    assert_equal(&coerced, &*by_definition(&vocab, LANGUAGE), &words(&members(&vocab), 3), Tolerance::EXACT);

    let hopeless = Coerced::new(fsa, vocabulary(&["b", "c", "da"], &[], &[])).unwrap_err();
    assert_eq!(hopeless.kind(), ErrorKind::Vocabulary);
}

#[test]
fn a_regex_over_tokens_keeps_the_contract() {
    let vocab = tokens();
    for pattern in ["(ab)*", "(a|b)*abb", ".*", "<|a|>|b+"] {
        let fsa: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex(pattern).unwrap());
        let coerced = Coerced::new(fsa, Arc::clone(&vocab)).unwrap();
        check(&coerced, &members(&vocab), 2, 3, Tolerance::EXACT);
        let mut cursor = coerced.open(1, &Run::default()).unwrap();
        let row = cursor.logw_next(&[0]).remove(0).unwrap();
        assert_eq!(row.at(7), DEAD, "no text is matched by a special token");
        assert_eq!(row.at(0), row.at(4), "equal bytes are both kept");
    }
}

#[test]
fn weights_over_bytes_keep_the_contract_through_tokens() {
    const STRINGS: &[(&str, f64)] = &[("", 0.5), ("abba", 2.0), ("ab", 3.0), ("babab", 0.25), ("bb", 1.0)];
    let inner = byte_set(STRINGS);
    check(&*inner, &bytes("abc"), 3, 5, Tolerance::WEIGHTED);
    let vocab = tokens();
    let coerced = Coerced::new(Arc::clone(&inner), Arc::clone(&vocab)).unwrap();
    check(&coerced, &members(&vocab), 2, 5, Tolerance::WEIGHTED);
    assert_eq!(coerced.claims(), Claims { monotone: true, ..Claims::default() });
    let tables = Arc::clone(&vocab);
    let reference = function(&vocab, Claims::default(), move |context, ended| {
        let Some(text) = spell(&tables, context) else { return DEAD };
        let text = String::from_utf8(text).unwrap();
        let counts = |s: &&(&str, f64)| if ended { s.0 == text } else { s.0.starts_with(&text) };
        STRINGS.iter().filter(counts).map(|(_, weight)| weight).sum::<f64>().ln()
    });
    assert_equal(&coerced, &*reference, &words(&members(&vocab), 3), Tolerance::WEIGHTED);
}

#[test]
fn potentials_23_a_zero_weight_context_has_a_row_of_nothing() {
    const LANGUAGE: &[&str] = &["abba", "ab"];
    let vocab = tokens();
    let masked: Arc<dyn Potential> = Arc::new(
        Coerced::new(Arc::new(BoolFsa::from_strings(LANGUAGE).unwrap()), Arc::clone(&vocab)).unwrap(),
    );
    let walked: Arc<dyn Potential> =
        Arc::new(Coerced::new(byte_set(&[("abba", 2.0), ("ab", 1.0)]), Arc::clone(&vocab)).unwrap());
    let product = Arc::new(Product::new(Arc::clone(&masked), Arc::clone(&walked)).unwrap());
    for potential in [masked, walked, product as Arc<dyn Potential>] {
        let run = Run::default();
        let mut cursor = potential.open(4, &run).unwrap();
        // Dead by its bytes, by a special token, by an end that is none, by release.
        let spans = [ids(&[1]), ids(&[0, 7]), vec![TokenId(0), TokenId::EOS], ids(&[0])];
        let spans: Vec<&[TokenId]> = spans.iter().map(Vec::as_slice).collect();
        let _ = cursor.advance(&[0, 1, 2, 3], &spans);
        cursor.release(&[3]);
        for row in [0, 1, 2, 3] {
            assert_eq!(cursor.score(&[row]).remove(0).unwrap(), DEAD);
            let weights = cursor.logw_next(&[row]).remove(0).unwrap();
            assert!((0..vocab.row_len()).all(|at| weights.at(at) == DEAD), "{row}: {weights:?}");
            let mut all = members(&vocab);
            all.push(TokenId::EOS);
            let probed = cursor.probe(&[row], vec![all]).remove(0).unwrap();
            assert!(probed.iter().all(|weight| *weight == DEAD), "{row}: {probed:?}");
        }
    }
}

#[test]
fn potentials_24_terminal_only_stays_so_under_coercion_and_products() {
    let claims = Claims { terminal_only: true, ..Claims::default() };
    let inner = function(
        &Vocabulary::bytes(),
        claims,
        |context, ended| {
            if ended { -(context.len() as f64) } else { 0.0 }
        },
    );
    let vocab = tokens();
    let coerced: Arc<dyn Potential> = Arc::new(Coerced::new(inner, Arc::clone(&vocab)).unwrap());
    let own = function(&vocab, claims, |context, ended| if ended && context.len() > 1 { DEAD } else { 0.0 });
    let product = Product::new(Arc::clone(&coerced), own).unwrap();
    for potential in [&*coerced, &product] {
        assert_eq!(potential.claims(), claims);
        check(potential, &members(&vocab), 2, 0, Tolerance::WEIGHTED);
    }
    let fsa = Arc::new(BoolFsa::from_regex("(a|b)*").unwrap());
    let masked = Arc::new(Coerced::new(fsa, vocab).unwrap());
    assert!(!Product::new(coerced, masked).unwrap().claims().terminal_only);
}

#[test]
fn a_weighted_set_keeps_the_contract() {
    let set = WeightedSet::new("abc", &[("", 1.0), ("a", 2.0), ("ab", 3.0), ("cc", 0.5)]).potential();
    check(&*set, &members(set.vocab()), 3, 2, Tolerance::WEIGHTED);
    let refused = Coerced::new(set, tokens()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Vocabulary, "its tokens are not the bytes");
}
