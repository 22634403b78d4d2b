//! The patterns that masks are measured on.

/// A named pattern.
pub(super) struct Pattern {
    pub(super) name: &'static str,
    pub(super) regex: &'static str,
}

const fn pattern(name: &'static str, regex: &'static str) -> Pattern {
    Pattern { name, regex }
}

/// The regular expressions of `testdata/tasks.json`, then small and large ones: literal texts, long
/// runs, Unicode classes, counted repetitions, an exponential automaton.
pub(super) const PATTERNS: [Pattern; 19] = [
    pattern("date", r" (19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    pattern("email", r" [a-z0-9._]{1,20}@[a-z0-9]{1,15}\.(com|org|net|edu)"),
    pattern("person", r#" \{"name": "[A-Za-z ]{1,20}", "age": [0-9]{1,3}, "city": "[A-Za-z ]{1,20}"\}"#),
    pattern("color", r"#[0-9a-fA-F]{6}"),
    pattern("uuid", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    pattern("ipv4", r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"),
    pattern(
        "weekdays",
        r"(Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)(, (Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)){0,30}",
    ),
    pattern("number", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
    pattern("digits", r"[0-9]{1,1000}"),
    pattern("anything", r"(?s:.)*"),
    pattern("line", r".{1,500}"),
    pattern("sentence", r"[A-Z][a-z]+( [a-z]+){3,30}[.!?]"),
    pattern("json_string", r#""([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*""#),
    pattern("url", r"https?://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%-]*)*(\?[A-Za-z0-9=&%_-]*)?"),
    pattern("python", r"def [a-z_]+\([a-z_, ]*\):\n(    [^\n]*\n){1,20}"),
    pattern("words", r"\w+([ ,;]+\w+)*\."),
    pattern("name", r"\p{Lu}\p{Ll}{1,30}( \p{Lu}\p{Ll}{1,30}){0,2}"),
    pattern("word", r"\w{1,40}"),
    pattern("exponential", r"(a|b)*a(a|b){12}"),
];
