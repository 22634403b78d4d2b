//! What is refused, by which kind of error, and where.

use std::time::Duration;

use lockstep_grammar::{Dfa, Limits, RegexErrorKind as Kind, RegexOptions};

#[test]
fn unsupported_constructs_are_named_with_their_offset() {
    let table: &[(&str, &str, usize)] = &[
        (r"(a)\1", "back-reference", 3),
        (r"(?<n>a)\k<n>", "back-reference", 7),
        (r"(?P<n>a)(?P=n)", "back-reference", 8),
        (r"(a)\g{1}", "back-reference", 3),
        (r"\012", "octal escape", 0),
        (r"a(?:b(?=c))*", "look-ahead inside a repetition", 5),
        (r"é(?!b){2}", "look-ahead inside a repetition", 2),
        (r"(?:(?=a)b|(?!c(?=d)))?", "look-ahead inside a repetition", 3),
        (r"(?=a)(?<=b)c", "look-behind", 5),
        (r"(?<=a)b", "look-behind", 0),
        (r"x(?<!a)b", "look-behind", 1),
        (r"(a)(?(1)b|c)", "conditional", 3),
        (r"a(?R)?b", "recursion", 1),
        (r"(a(?1)?b)", "recursion", 2),
        (r"(a)(?-1)", "recursion", 3),
        (r"(?<n>a)(?&n)", "recursion", 7),
        (r"(?<n>a)\g<n>", "recursion", 7),
        (r"(?<n>a)(?P>n)", "recursion", 7),
        (r"b(?>a+)a", "atomic group", 1),
        (r"ba++a", "possessive quantifier", 2),
        (r"a?+", "possessive quantifier", 1),
        (r"(ab)*+", "possessive quantifier", 4),
        (r"a{2,3}+", "possessive quantifier", 1),
        (r"(?|(a)|(b))", "branch reset", 0),
        (r"a(?#note)", "comment group", 1),
        (r"a(*FAIL)", "backtracking verb", 1),
        (r"a\Kb", "match reset", 1),
    ];
    for &(pattern, construct, offset) in table {
        let error = Dfa::from_regex(pattern, &RegexOptions::default()).expect_err(pattern);
        assert_eq!(error.kind(), Kind::Unsupported, "{pattern}: {error}");
        assert_eq!(error.offset(), Some(offset), "{pattern}: {error}");
        assert_eq!(
            error.to_string(),
            format!("{construct} at offset {offset} is not supported"),
            "{pattern}"
        );
    }
}

#[test]
fn malformed_patterns_are_syntax_errors_with_an_offset() {
    let table = [
        ("a(b", 1),
        ("a)", 1),
        ("é[b", 2),
        ("*a", 0),
        ("a{2", 1),
        ("a{3,2}", 1),
        (r"a\", 1),
        (r"a\q", 1),
        (r"\p{Nonsense}", 0),
        ("(?y)a", 2),
        ("[z-a]", 1),
        ("(?=a", 0),
        ("(?!a)(?=b)*+c)", 13),
    ];
    for (pattern, offset) in table {
        let error = Dfa::from_regex(pattern, &RegexOptions::default()).expect_err(pattern);
        assert_eq!((error.kind(), error.offset()), (Kind::Syntax, Some(offset)), "{pattern}: {error}");
        let message = error.to_string();
        assert!(!message.contains('\n') && message.ends_with(&format!("at offset {offset}")), "{message}");
    }
}

#[test]
fn a_mode_that_cannot_hold_a_piece_says_what_to_do() {
    let unicode = Dfa::from_regex(r"a(?-u:\xff)", &RegexOptions::default()).unwrap_err();
    assert_eq!((unicode.kind(), unicode.offset()), (Kind::Unsupported, Some(6)));
    assert!(unicode.to_string().contains("`unicode`"), "{unicode}");
    let bytewise = RegexOptions { unicode: false, ..Default::default() };
    let bytes = Dfa::from_regex(r"a\p{L}", &bytewise).unwrap_err();
    assert_eq!((bytes.kind(), bytes.offset()), (Kind::Unsupported, Some(1)));
}

#[test]
fn empty_languages_are_refused() {
    for pattern in [r"[^\x00-\u{10FFFF}]", r"a\Ab", r"a$b", r"a\bb", r"\b", r"[a&&b]+", r"a\B-"] {
        let error = Dfa::from_regex(pattern, &RegexOptions::default()).expect_err(pattern);
        assert_eq!((error.kind(), error.offset()), (Kind::EmptyLanguage, None), "{pattern}");
    }
    let error = Dfa::from_strings(Vec::<&str>::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::EmptyLanguage);
    let (a, b) = (Dfa::from_strings(["a"]).unwrap(), Dfa::from_strings(["b"]).unwrap());
    assert_eq!(a.intersect(&b, &Limits::default()).unwrap_err().kind(), Kind::EmptyLanguage);
}

#[test]
fn limits_fail_with_an_error_that_names_them() {
    let limited = |limits| RegexOptions { limits, ..Default::default() };
    let small = limited(Limits { max_bytes: 1 << 20, max_time: Duration::MAX });
    // The subset construction, the nondeterministic automaton, and the syntax tree overflow in turn.
    let classes = r"\w".repeat(100_000);
    for pattern in ["(a|b)*a(a|b){40}", r"\w{1000000}", &classes, "((a{1000}){1000}){1000}"] {
        let error = Dfa::from_regex(pattern, &small).expect_err("over the limit");
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
        assert!(error.to_string().contains("max_bytes = 1048576"), "{error}");
    }
    let instant = Limits { max_time: Duration::ZERO, ..Default::default() };
    let error = Dfa::from_regex("a", &limited(instant)).unwrap_err();
    assert_eq!(error.kind(), Kind::TooSlow);
    assert!(error.to_string().contains("max_time = 0ns"), "{error}");
    let a = Dfa::from_strings(["a"]).unwrap();
    assert_eq!(a.intersect(&a, &instant).unwrap_err().kind(), Kind::TooSlow);
    let tiny = Limits { max_bytes: 1, ..Default::default() };
    assert_eq!(a.intersect(&a, &tiny).unwrap_err().kind(), Kind::TooLarge);
}

#[test]
fn nesting_is_bounded_by_an_error_not_by_the_stack() {
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    let dfa = Dfa::from_regex(&nested(240), &RegexOptions::default()).unwrap();
    assert_eq!(dfa.state_count(), 2);
    let error = Dfa::from_regex(&nested(100_000), &RegexOptions::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert_eq!(error.to_string(), "nesting at offset 250 is deeper than 250 levels");
}
