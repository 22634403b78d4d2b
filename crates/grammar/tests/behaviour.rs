//! Accepted and rejected texts of patterns, one row a construct.

use lockstep_grammar::{Dfa, RegexOptions};

/// A pattern, texts it accepts, texts it rejects.
type Row<T> = (&'static str, &'static [T], &'static [T]);

const UNICODE: &[Row<&str>] = &[
    (r"\d{3}-\d{4}", &["555-0199", "٣٤٥-٠١٢٣"], &["555-019", "555-01999", "x555-0199"]),
    (r"[a-z&&[^aeiou]]+", &["xyz", "b"], &["a", "bab", ""]),
    (r"[\w--\d]+", &["né", "_"], &["a1", "1"]),
    (r"\p{Greek}+", &["λόγος"], &["logos", "λόγος "]),
    (r"\p{Lu}\P{Lu}*", &["Éa", "A1"], &["é", "AB"]),
    (r"(?i)σ", &["Σ", "ς", "σ"], &["s"]),
    (r"(?i:a)b", &["ab", "Ab"], &["aB"]),
    (r".", &["a", "é", "𝄞", "\r", "\u{2028}"], &["\n", "", "ab"]),
    (r"(?s).", &["\n", "a"], &["\r\n"]),
    (r"\s+", &[" \t\n\u{a0}\u{3000}"], &["", "_", "\u{200b}"]),
    (r"a+?b*?", &["a", "aab", "aabb"], &["", "b", "ba"]),
    (r"(?P<y>\d)(?<m>x)", &["1x"], &["1", "x1"]),
    (r"\x41\u00e9\u{1d11e}", &["Aé𝄞"], &["Ae𝄞", "A"]),
    ("(?x) a b # comment\n c", &["abc"], &["a b c", "ab"]),
    (r"^a$", &["a"], &["a\n", "\na"]),
    (r"(?m)a$\n^b", &["a\nb"], &["ab", "a\r\nb"]),
    (r"(?m)^$\n*", &["", "\n", "\n\n"], &[" ", "\r"]),
    (r"(?mR)a$\s+^b", &["a\nb", "a\r\nb", "a\rb", "a\n\rb"], &["a b", "ab"]),
    (r"(?mR)a[\r\n]$[\r\n]b", &["a\n\rb", "a\n\nb", "a\r\rb"], &["a\r\nb"]),
    (r"(?mR)a[\r\n]^[\r\n]b", &["a\n\rb", "a\n\nb", "a\r\rb"], &["a\r\nb"]),
    (r"a(?:\b|\B)[a-]", &["aa", "a-"], &["a"]),
    (r"a(?:(?-u:\b)|(?-u:\B))[a-]", &["aa", "a-"], &["a"]),
    (r"\Aa\z|b", &["a", "b"], &["ab"]),
    (r".*\bcat\b.*", &["cat", "a cat!", "é cat", "—cat—"], &["écat", "concat", "cats", "caté"]),
    (r".*(?-u:\b)cat(?-u:\b).*", &["cat", "écat", "cat—"], &["concat", "cat_"]),
    (r"\w+\B\w", &["ab", "éé"], &["a", "a-"]),
    (r"-\B-", &["--"], &["-a", "-"]),
    (r"\b{start}\w+\b{end}[ .]*", &["été.", "a "], &[".a", ""]),
    (r"(a|)(b|)", &["", "a", "b", "ab"], &["ba", "aa"]),
    (r"(?:é|e){2}", &["éé", "ée", "ee"], &["é", "e\u{301}e"]),
];

const BYTES: &[Row<&[u8]>] = &[
    (r".", &[b"a", b"\xff", b"\r"], &[b"\n", "é".as_bytes()]),
    (r"\xff[\x80-\x8f]", &[b"\xff\x80", b"\xff\x8f"], &[b"\xff\x90", b"\xff"]),
    (r"\w\W", &[b"a\xe9", b"_-"], &[b"\xe9a", b"ab"]),
    (r"\ba\b.?", &[b"a", b"a\xff"], &[b"ab"]),
    (r"(?u:é.)", &["é𝄞".as_bytes()], &[b"\xc3", b"\xc3\xa9\xff"]),
];

fn check(pattern: &str, unicode: bool, text: &[u8], accepted: bool) {
    let options = RegexOptions { unicode, ..Default::default() };
    let dfa = Dfa::from_regex(pattern, &options).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    assert_eq!(dfa.accepts(text), accepted, "{pattern:?} on {:?}", text.escape_ascii().to_string());
}

#[test]
fn unicode_patterns_behave() {
    for &(pattern, accepted, rejected) in UNICODE {
        accepted.iter().for_each(|text| check(pattern, true, text.as_bytes(), true));
        rejected.iter().for_each(|text| check(pattern, true, text.as_bytes(), false));
    }
}

#[test]
fn bytewise_patterns_behave() {
    for &(pattern, accepted, rejected) in BYTES {
        accepted.iter().for_each(|text| check(pattern, false, text, true));
        rejected.iter().for_each(|text| check(pattern, false, text, false));
    }
}

#[test]
fn a_list_of_strings_is_its_language() {
    let dfa = Dfa::from_strings(["tap", "taps", "top", "tops", "tap"]).unwrap();
    for text in ["tap", "taps", "top", "tops"] {
        assert!(dfa.accepts(text.as_bytes()));
    }
    for text in ["", "t", "ta", "tapss", "tip"] {
        assert!(!dfa.accepts(text.as_bytes()));
    }
    assert_eq!(dfa, Dfa::from_regex("t[ao]ps?", &RegexOptions::default()).unwrap());
    assert_eq!(dfa.state_count(), 5);
    assert!(Dfa::from_strings([""]).unwrap().accepts(b""));
    let bytes = Dfa::from_strings([&b"\xff\x00"[..], b""]).unwrap();
    assert!(bytes.accepts(b"\xff\x00") && bytes.accepts(b"") && !bytes.accepts(b"\xff"));
}

#[test]
fn equal_languages_are_equal_values_and_sizes_are_told() {
    let build = |pattern| Dfa::from_regex(pattern, &RegexOptions::default()).unwrap();
    assert_eq!(build("(a|b)*"), build("(a*b*)*"));
    assert_eq!(build(r"(?s)\p{Any}*"), build(r"[\s\S]*(|x)"));
    assert_ne!(build("a*"), build("a+"));
    let dfa = build("a{950}");
    assert!(dfa.byte_len() >= 951 * 2 * 4, "two byte classes of four bytes a state");
    assert!(dfa.byte_len() < 16 << 10);
}
