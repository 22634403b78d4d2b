//! Acceptance cases of the potentials that need only an automaton.

use lockstep_grammar::{Dfa, RegexErrorKind, RegexOptions};

fn build(pattern: &str) -> Dfa {
    Dfa::from_regex(pattern, &RegexOptions::default()).expect(pattern)
}

fn is_live(dfa: &Dfa, prefix: &[u8]) -> bool {
    prefix.iter().try_fold(dfa.start(), |state, &byte| dfa.next(state, byte)).is_some()
}

#[test]
fn potentials_03_dot_is_any_scalar_and_word_is_unicode() {
    let dot = build(".*");
    assert!(dot.accepts("a".repeat(1000).as_bytes()));
    assert!(dot.accepts("é".as_bytes()));
    assert!(!dot.accepts(b"\n"));
    let word = build(r"\w");
    assert!(word.accepts("é".as_bytes()));
    assert!(!word.accepts("—".as_bytes()));
    assert!(is_live(&word, &[0xC3]) && !word.accepts(&[0xC3]));
    assert!(!is_live(&dot, &[0xFF]), "no UTF-8 text goes on from here");
}

#[test]
fn potentials_04_search_for_a_gerund() {
    let dfa = build(r"[\s\S]*[eE]njoy\s+[A-Za-z]+[iI][nN][gG][\s\S]*");
    assert!(dfa.accepts(b"I enjoy walking."));
    assert!(!dfa.accepts(b"I enjoy films."));
    assert!(is_live(&dfa, b"I enjoy films."), "a later sentence may still enjoy");
}

#[test]
fn potentials_05_exponential_and_long_patterns_have_minimal_sizes() {
    assert_eq!(build("(a|b)*a(a|b){8}").state_count(), 512);
    assert_eq!(build("(a|b)*a(a|b){12}").state_count(), 8192);
    assert_eq!(build("a{950}").state_count(), 951);
}

#[test]
fn potentials_06_a_branch_into_an_empty_class_is_dead() {
    let dfa = build(r"a(b[^\x00-\u{10FFFF}]|c)");
    assert!(is_live(&dfa, b"a"));
    assert!(!is_live(&dfa, b"ab"));
    assert!(dfa.accepts(b"ac"));
    assert_eq!(dfa.state_count(), 3);
}

#[test]
fn potentials_07_a_back_reference_is_named_with_its_offset() {
    let error = Dfa::from_regex(r"(a)\1", &RegexOptions::default()).unwrap_err();
    assert_eq!(error.kind(), RegexErrorKind::Unsupported);
    assert_eq!(error.offset(), Some(3));
    assert_eq!(error.to_string(), "back-reference at offset 3 is not supported");
}
