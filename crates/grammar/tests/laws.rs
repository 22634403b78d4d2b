//! Laws of the automata, against an independent matcher and against enumeration.

use std::collections::HashMap;

use lockstep_grammar::{Dfa, Limits, RegexErrorKind, RegexOptions, StateId};
use proptest::prelude::*;
use regex::bytes::{Regex, RegexBuilder};

/// Pieces of text: word and other characters of one to four bytes, some sharing their lead bytes.
const PIECES: [&str; 9] = ["a", "b", "-", "\n", "\r", "é", "\u{b7}", "—", "ⁿ"];

/// All texts of at most `max_len` pieces.
fn texts(pieces: &[&[u8]], max_len: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..max_len {
        let end = all.len();
        for index in begin..end {
            all.extend(pieces.iter().map(|piece| [&all[index], *piece].concat()).collect::<Vec<_>>());
        }
        begin = end;
    }
    all
}

fn oracle(pattern: &str, unicode: bool) -> Regex {
    RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).unicode(unicode).build().expect(pattern)
}

fn run(dfa: &Dfa, text: &[u8]) -> Option<StateId> {
    text.iter().try_fold(dfa.start(), |state, &byte| dfa.next(state, byte))
}

/// A shortest accepted continuation of each state, found through the public interface alone.
fn completions(dfa: &Dfa) -> Vec<Option<Vec<u8>>> {
    let states = || (0..dfa.state_count() as u32).map(StateId);
    let mut known: Vec<Option<Vec<u8>>> = states().map(|state| dfa.is_final(state).then(Vec::new)).collect();
    loop {
        let mut grown = known.clone();
        for state in states().filter(|state| known[state.0 as usize].is_none()) {
            grown[state.0 as usize] = (0..=u8::MAX).find_map(|byte| {
                let rest = known[dfa.next(state, byte)?.0 as usize].as_ref()?;
                Some([&[byte], &rest[..]].concat())
            });
        }
        if grown == known {
            return known;
        }
        known = grown;
    }
}

/// The number of classes of states that no text tells apart, by naive refinement.
fn distinguishable(dfa: &Dfa) -> usize {
    let states = || (0..dfa.state_count() as u32).map(StateId);
    let mut class: Vec<usize> = states().map(|state| usize::from(dfa.is_final(state))).collect();
    let mut count = 0;
    loop {
        let mut numbers = HashMap::new();
        let refined: Vec<usize> = states()
            .map(|state| {
                let row: Vec<Option<usize>> = (0..=u8::MAX)
                    .map(|byte| dfa.next(state, byte).map(|next| class[next.0 as usize]))
                    .collect();
                let fresh = numbers.len();
                *numbers.entry((class[state.0 as usize], row)).or_insert(fresh)
            })
            .collect();
        if numbers.len() == count {
            return count;
        }
        count = numbers.len();
        class = refined;
    }
}

/// Checks one pattern on all `texts`: membership, liveness both ways, minimality.
fn check(pattern: &str, unicode: bool, texts: &[Vec<u8>]) {
    let oracle = oracle(pattern, unicode);
    let accepted: Vec<&Vec<u8>> = texts.iter().filter(|text| oracle.is_match(text)).collect();
    let dfa = match Dfa::from_regex(pattern, &RegexOptions { unicode, ..Default::default() }) {
        Ok(dfa) => dfa,
        Err(error) => {
            assert_eq!(error.kind(), RegexErrorKind::EmptyLanguage, "{pattern}: {error}");
            assert_eq!(accepted, Vec::<&Vec<u8>>::new(), "{pattern} is not empty");
            return;
        }
    };
    for text in texts {
        assert_eq!(dfa.accepts(text), oracle.is_match(text), "{pattern:?} on {text:?}");
    }
    // Soundness: whatever begins an accepted text is alive.
    for text in &accepted {
        for end in 0..=text.len() {
            assert!(run(&dfa, &text[..end]).is_some(), "{pattern:?}: {:?} of {text:?} is dead", &text[..end]);
        }
    }
    // Tightness: whatever is alive begins a text that the oracle accepts.
    let completions = completions(&dfa);
    for text in texts {
        if let Some(state) = run(&dfa, text) {
            let rest = completions[state.0 as usize].as_ref();
            let rest = rest.unwrap_or_else(|| panic!("{pattern:?}: state {state:?} reaches no acceptance"));
            let whole = [&text[..], rest].concat();
            assert!(oracle.is_match(&whole), "{pattern:?}: {text:?} lives, but not to {whole:?}");
        }
    }
    assert!(completions.iter().all(Option::is_some), "{pattern:?}: a state reaches no acceptance");
    assert_eq!(distinguishable(&dfa), dfa.state_count(), "{pattern:?} is not minimal");
}

const LOOKS: [&str; 20] = [
    "^",
    "$",
    r"\A",
    r"\z",
    "(?m:^)",
    "(?m:$)",
    "(?mR:^)",
    "(?mR:$)",
    r"\b",
    r"\B",
    r"\b{start}",
    r"\b{end}",
    r"\b{start-half}",
    r"\b{end-half}",
    r"(?-u:\b)",
    r"(?-u:\B)",
    r"(?-u:\b{start})",
    r"(?-u:\b{end})",
    r"(?-u:\b{start-half})",
    r"(?-u:\b{end-half})",
];

/// Small random patterns; `atoms` are what they read.
fn patterns(atoms: &'static [&'static str]) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => prop::sample::select(atoms).prop_map(str::to_owned),
        2 => prop::sample::select(&LOOKS[..]).prop_map(str::to_owned),
        1 => Just(String::new()),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.concat()),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            2 => (inner, prop::sample::select(&["*", "+", "?", "*?", "{2}", "{1,2}"][..]))
                .prop_map(|(part, times)| format!("(?:{part}){times}")),
        ]
    })
}

const UNICODE_ATOMS: [&str; 11] = ["a", "b", "-", r"\n", r"\r", "é", "—", r"\w", r"\W", ".", r"[^a\n]"];
const BYTE_ATOMS: [&str; 9] = ["a", "-", r"\n", r"\r", r"\xc3", r"\xa9", r"\w", r"\W", "."];

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn unicode_patterns_are_exact(pattern in patterns(&UNICODE_ATOMS)) {
        check(&pattern, true, &texts(&PIECES.map(str::as_bytes), 3));
    }

    #[test]
    fn bytewise_patterns_are_exact(pattern in patterns(&BYTE_ATOMS)) {
        check(&pattern, false, &texts(&[b"a", b"-", b"\n", b"\r", b"\xc3", b"\xa9"], 3));
    }

    #[test]
    fn the_intersection_accepts_what_both_accept(
        left in patterns(&UNICODE_ATOMS), right in patterns(&UNICODE_ATOMS),
    ) {
        let build = |pattern: &str| Dfa::from_regex(pattern, &RegexOptions::default());
        let (Ok(left), Ok(right)) = (build(&left), build(&right)) else { return Ok(()) };
        let both = left.intersect(&right, &Limits::default());
        for text in texts(&PIECES.map(str::as_bytes), 3) {
            let expected = left.accepts(&text) && right.accepts(&text);
            prop_assert_eq!(both.as_ref().is_ok_and(|both| both.accepts(&text)), expected);
        }
        match both {
            Ok(both) => {
                prop_assert!(completions(&both).iter().all(Option::is_some));
                prop_assert_eq!(distinguishable(&both), both.state_count());
                prop_assert_eq!(right.intersect(&left, &Limits::default()).unwrap(), both);
            }
            Err(error) => prop_assert_eq!(error.kind(), RegexErrorKind::EmptyLanguage),
        }
    }

    #[test]
    fn a_list_of_strings_is_the_alternation_of_its_members(
        strings in prop::collection::btree_set("[ab\u{e9}]{0,4}", 1..12),
    ) {
        let listed = Dfa::from_strings(&strings).unwrap();
        let pattern = strings.iter().map(String::as_str).collect::<Vec<_>>().join("|");
        prop_assert_eq!(listed, Dfa::from_regex(&pattern, &RegexOptions::default()).unwrap());
    }
}

/// Every prefix of every text over a small alphabet is alive exactly if an accepted text extends
/// it, by enumeration alone: these languages are finite and their texts short.
#[test]
fn liveness_equals_the_existence_of_an_extension() {
    let texts = texts(&[b"a", b"b", b"-"], 6);
    for pattern in ["(a|ab)(b-|-){0,2}", r"a?\bb{0,3}\b-?", "(?:a{2}|b{3}){1,2}", r"[ab-]{3}[a&&b]|ab?\B[ab]"]
    {
        let dfa = Dfa::from_regex(pattern, &RegexOptions::default()).unwrap();
        let oracle = oracle(pattern, true);
        let accepted: Vec<_> = texts.iter().filter(|text| oracle.is_match(text)).collect();
        for prefix in &texts {
            let extends = accepted.iter().any(|text| text.starts_with(prefix));
            assert_eq!(run(&dfa, prefix).is_some(), extends, "{pattern} after {prefix:?}");
        }
    }
}

/// Unicode word assertions between arbitrary bytes follow the definition: a word character stands
/// before (after) a position if its complete encoding ends (begins) there.
#[test]
fn unicode_words_are_exact_between_bytes_that_are_no_utf8() {
    type Relation = fn(bool, bool) -> bool;
    let relations: [(&str, Relation); 4] = [
        (r"\b", |before, next| before != next),
        (r"\B", |before, next| before == next),
        (r"\b{start-half}", |before, _| !before),
        (r"\b{end-half}", |_, next| !next),
    ];
    let is_word = oracle(r"\w", true);
    let holds = |relation: Relation, text: &[u8], at: usize| {
        let before = (0..at).any(|begin| is_word.is_match(&text[begin..at]));
        let next = (at + 1..=text.len()).any(|end| is_word.is_match(&text[at..end]));
        relation(before, next)
    };
    let texts = texts(&[b"a", b"\xc3", b"\xa9", b"\xe2", b"\x81", b"\xbf"], 4);
    let options = RegexOptions { unicode: false, ..Default::default() };
    for (first, first_relation) in relations {
        for (second, second_relation) in relations {
            for (i, j) in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (1, 0)] {
                let pattern = format!(r"(?s).{{{i}}}(?u:{first}).{{{j}}}(?u:{second}).*");
                // Contradictory assertions at one place leave nothing: no text may be expected then.
                let dfa = Dfa::from_regex(&pattern, &options).ok();
                for text in texts.iter().filter(|text| text.len() >= i + j) {
                    let expected = holds(first_relation, text, i) && holds(second_relation, text, i + j);
                    let accepted = dfa.as_ref().is_some_and(|dfa| dfa.accepts(text));
                    assert_eq!(accepted, expected, "{pattern} on {text:?}");
                }
            }
        }
    }
}
