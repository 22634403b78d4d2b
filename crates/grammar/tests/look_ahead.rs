//! Look-ahead: behaviour by construct, and agreement with a backtracking matcher.

use fancy_regex::Regex;
use lockstep_grammar::{Dfa, RegexErrorKind, RegexOptions};
use proptest::prelude::*;

/// A pattern, texts it accepts, texts it rejects.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

const TABLE: &[Row] = &[
    (r"a(?=b)bc?", &["ab", "abc"], &["a", "ac", ""]),
    (r"a(?!b)\w", &["ac", "aa", "aé"], &["ab", "a"]),
    (r"a(?!b)", &["a"], &["ab", ""]),
    (r"(?=b)b|c", &["b", "c"], &["", "bc"]),
    (r"(?!.*foo).*", &["", "fo", "f oo", "barfo"], &["foo", "a foo b"]),
    (r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{6,8}", &["abC1zz", "1zZ....."], &["abc1zz", "aC1", "abC1zzzzz"]),
    (r"(?=a.$|.b)[ab]{2,3}", &["aa", "ab", "bb", "abb", "bba"], &["ba", "aab", "baa"]),
    (r"(?=(?!ab)a).*", &["a", "aa", "acb"], &["ab", "b", ""]),
    (r"(?!(?=ab)a).*", &["", "aa", "b"], &["ab", "abc"]),
    (r"(?!a(?!b))\w+", &["ab", "abc", "b"], &["a", "ac"]),
    (r"(?!(?!a))a?", &["a"], &[""]),
    (r"(x(?=y)|z)\w", &["xy", "zx", "zy"], &["xx", "x"]),
    (r"(?i)a(?=B)b", &["ab", "AB", "aB"], &["aa"]),
    (r"(?i:a(?=B)).", &["ab", "AB", "Ab"], &["aa"]),
    (r"a(?=(?i)B).", &["ab", "aB"], &["Ab"]),
    ("(?x) a (?= b ) # (?=c)\n b", &["ab"], &["a", "ac"]),
    (r"[(?=a)]\(\?=a(?=b)b", &["a(?=ab", "?(?=ab"], &["(", "(?=ab", "a(?=ac"]),
    (r"a(?=\b)-|a(?!\b).", &["a-", "ab", "aé"], &["a", "--"]),
    (r"\w+(?=\b)[-é]?", &["a-", "a", "é", "éa-"], &["-", "aa--"]),
    (r".*(?=\bcat\b).*", &["cat", "a cat", "é—cat!"], &["écat", "cats", "ca"]),
    (r"a(?=$)|ab", &["a", "ab"], &["abb"]),
    (r"(?m)a(?=$)\n?b*", &["a", "a\nbb"], &["ab"]),
    (r"a(?=^)b|(?=^)c", &["c"], &["ab"]),
    (r"(?=é)\w", &["é"], &["e", "è"]),
    (r"(?!é)\w", &["e", "è"], &["é"]),
    (r"a(?=)(?!b|c)[a-d]", &["aa", "ad"], &["ab", "ac"]),
    (r"(?<n>a)(?=(?<m>b))(b|c)", &["ab"], &["ac"]),
    (r"(?=a*b)(?!aab)a*b", &["b", "ab", "aaab"], &["aab", "a"]),
    (r"a(?=b{2,3}c)b*c", &["abbc", "abbbc"], &["abc", "abbbbc"]),
];

#[test]
fn look_aheads_behave() {
    for &(pattern, accepted, rejected) in TABLE {
        let dfa = Dfa::from_regex(pattern, &RegexOptions::default())
            .unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for (texts, expected) in [(accepted, true), (rejected, false)] {
            for text in texts {
                assert_eq!(dfa.accepts(text.as_bytes()), expected, "{pattern:?} on {text:?}");
            }
        }
    }
}

#[test]
fn a_look_ahead_is_an_intersection_or_a_difference() {
    let build = |pattern| Dfa::from_regex(pattern, &RegexOptions::default()).unwrap();
    assert_eq!(build("(?=[ab]*b)[bc]+"), build("b[bc]*"));
    assert_eq!(build("x(?!a)[abc]"), build("x[bc]"));
    assert_eq!(build("(?=a)(?=a)a"), build("a"));
    assert_eq!(build("(?!b)a|(?=b)b"), build("[ab]"));
    // Live prefixes only: no text that begins with a has a completion.
    let dfa = build("(?!a)[ab][cd]");
    assert!(dfa.next(dfa.start(), b'a').is_none() && dfa.next(dfa.start(), b'b').is_some());
    for empty in ["(?!)", "a(?=b)", "(?=a)b", "a(?!.?)", "(?=a(?!b))ab"] {
        let error = Dfa::from_regex(empty, &RegexOptions::default()).unwrap_err();
        assert_eq!(error.kind(), RegexErrorKind::EmptyLanguage, "{empty}");
    }
}

#[test]
fn bytewise_look_aheads_read_bytes() {
    let options = RegexOptions { unicode: false, ..Default::default() };
    let dfa = Dfa::from_regex(r"(?!\xc3\xa9)[\x80-\xff]{2}", &options).unwrap();
    assert!(dfa.accepts(b"\xc3\xa8") && dfa.accepts(b"\xff\xff") && !dfa.accepts("é".as_bytes()));
}

#[test]
fn a_charset_keeps_the_texts_over_it() {
    let over = |pattern: &str, charset: &str| {
        Dfa::from_regex(pattern, &RegexOptions { charset: Some(charset.to_owned()), ..Default::default() })
    };
    let plain = |pattern| Dfa::from_regex(pattern, &RegexOptions::default()).unwrap();
    assert_eq!(over(".*", "abé").unwrap(), plain("[abé]*"));
    assert_eq!(over(r"\w+-", "-b").unwrap(), plain("b+-"));
    assert_eq!(over("(?!b).*", "ab").unwrap(), plain("(?:a[ab]*)?"));
    assert_eq!(over("a*", "").unwrap(), plain(""));
    let error = over("a+", "b").unwrap_err();
    assert_eq!(error.kind(), RegexErrorKind::EmptyLanguage);
    assert!(error.to_string().contains("`charset`"), "{error}");
}

const ATOMS: [&str; 15] =
    ["a", "b", "é", "-", ".", r"\w", "[^a]", "a*", "[ab]+", "b?", r"(?s:.)*", r"\b", r"\B", "$", "^"];

/// Small random patterns with look-aheads, none of them repeated.
fn patterns() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(&ATOMS[..]).prop_map(str::to_owned);
    leaf.prop_recursive(5, 16, 4, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 2..5).prop_map(|parts| parts.concat()),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            2 => inner.clone().prop_map(|body| format!("(?={body})")),
            2 => inner.clone().prop_map(|body| format!("(?!{body})")),
            1 => inner.prop_map(|body| format!("(?i:({body}))")),
        ]
    })
}

/// All texts of at most `max_len` pieces, the empty one first.
fn texts(max_len: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut begin = 0;
    for _ in 0..max_len {
        let end = all.len();
        for i in begin..end {
            for piece in ["a", "b", "B", "é", "-", "\n"] {
                all.push(format!("{}{piece}", all[i]));
            }
        }
        begin = end;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn look_aheads_agree_with_backtracking(pattern in patterns()) {
        let oracle = Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap();
        let dfa = match Dfa::from_regex(&pattern, &RegexOptions::default()) {
            Ok(dfa) => Some(dfa),
            Err(error) => {
                prop_assert_eq!(error.kind(), RegexErrorKind::EmptyLanguage, "{}: {}", pattern, error);
                None
            }
        };
        for text in texts(4) {
            let expected = oracle.is_match(&text).unwrap();
            let accepted = dfa.as_ref().is_some_and(|dfa| dfa.accepts(text.as_bytes()));
            prop_assert_eq!(accepted, expected, "{} on {:?}", pattern, text);
        }
    }
}
