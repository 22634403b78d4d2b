//! Context-free grammars: the notation, recognition against an exact oracle, trees.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::collections::BTreeSet;

use lockstep_grammar::{Cfg, CfgOptions};
use proptest::prelude::*;

fn cfg(grammar: &str) -> Cfg {
    Cfg::from_lark(grammar, &CfgOptions::default()).unwrap()
}

#[test]
fn a_table_of_grammars_accepts_and_rejects() {
    let cases: [(&str, &[&str], &[&str]); 13] = [
        ("start: \"x\"+", &["x", "xxx"], &["", "y", "xxy"]),
        ("start: \"a\"* \"b\"?", &["", "a", "b", "aab"], &["ba", "bb"]),
        ("start: \"(\" start \")\" | ", &["", "()", "((()))"], &["(", "())", ")("]),
        ("start: start start | \"a\" |", &["", "a", "aaaa"], &["b", "ab"]),
        ("start: \"a\"~2..4 \"b\"~2", &["aabb", "aaaabb"], &["abb", "aaaaabb", "aab"]),
        ("start: \"a\"~0..2", &["", "a", "aa"], &["aaa"]),
        ("start: [\"-\"] NUMBER\nNUMBER: \"0\"..\"9\"+", &["-10", "7"], &["-", "", "--1"]),
        ("start: /[a-c]+/i \"X\"i", &["aBx", "CX"], &["x", "dX"]),
        ("start: A \"b\"\nA: \"a\" | \"ab\"", &["ab", "abb"], &["a", "abbb"]),
        ("start: WORD WORD\nWORD: /[a-z]+/", &["ab", "abcd"], &["a", ""]),
        ("start: a\na: b | \"x\"\nb: a", &["x"], &["", "xx"]),
        ("start: \"a\" \"b\"\n%ignore / +/", &["ab", "  a  b ", "a b"], &["a", " ", "abb"]),
        ("start:\n  | \"é\"\n  | \"日本\"\n", &["", "é", "日本"], &["日"]),
    ];
    for (grammar, accepted, rejected) in cases {
        let cfg = cfg(grammar);
        for text in accepted {
            assert!(cfg.accepts(text), "{grammar:?} accepts {text:?}");
            assert!(cfg.parse(text).is_some());
        }
        for text in rejected {
            assert!(!cfg.accepts(text), "{grammar:?} rejects {text:?}");
            assert!(cfg.parse(text).is_none());
        }
    }
}

#[test]
fn terminals_match_at_any_length() {
    // A lexer that takes the longest word would leave nothing for the keyword.
    let cfg = cfg("start: NAME \"end\"\nNAME: /[a-z]+/");
    assert!(cfg.accepts("weekend") && cfg.accepts("endend") && !cfg.accepts("end"));
    let tree = cfg.parse("weekend").unwrap();
    assert_eq!(tree.to_string(), "start(NAME week)");
}

#[test]
fn trees_show_rules_aliases_and_named_terminals() {
    let grammar = r#"
        start: item ("," item)*
        ?item: NAME | "(" start ")" | pair
        pair: NAME "=" _value     -> entry
            | NAME "?"
        _value: NUMBER | NAME
        !mark: "!" NAME
        NAME: /[a-z]+/
        NUMBER: DIGIT+
        DIGIT: "0".."9"
        %ignore " "
    "#;
    let shows = |text: &str| cfg(grammar).parse(text).unwrap().to_string();
    assert_eq!(shows("a"), "start(NAME a)");
    assert_eq!(shows("a, b=1 ,c?"), "start(NAME a, entry(NAME b, NUMBER 1), pair(NAME c))");
    assert_eq!(shows("(a,(b))"), "start(start(NAME a, start(NAME b)))");
    let mark = CfgOptions { start: "mark".into(), ..CfgOptions::default() };
    assert_eq!(Cfg::from_lark(grammar, &mark).unwrap().parse("!x").unwrap().to_string(), "mark(! !, NAME x)");
    let item = CfgOptions { start: "item".into(), ..CfgOptions::default() };
    let item = Cfg::from_lark(grammar, &item).unwrap();
    assert_eq!(item.parse("x").unwrap().rule, "NAME");
    assert_eq!(item.parse("x?").unwrap().rule, "pair");
    assert_eq!(item.parse("x=y").unwrap().rule, "entry");
    for (name, known) in [("entry", true), ("pair", true), ("NAME", true), ("_value", false), ("no", false)] {
        assert_eq!(item.has_name(name), known, "{name}");
    }
}

#[test]
fn an_ambiguous_text_has_always_the_same_tree() {
    let grammar = "start: a | b\na: \"x\"+\nb: \"x\" [b]";
    let trees: BTreeSet<String> = (0..5).map(|_| cfg(grammar).parse("xxx").unwrap().to_string()).collect();
    assert_eq!(trees.into_iter().collect::<Vec<_>>(), ["start(a())"]);
    // Rules that derive one another in circles have finite trees.
    let circular = cfg("start: a\na: b | \"x\"\nb: a | a a |");
    for text in ["", "x", "xx"] {
        assert!(circular.parse(text).is_some());
    }
}

#[test]
fn long_lists_need_no_deep_stack() {
    let cfg = cfg("start: NUMBER (\",\" NUMBER)*\nNUMBER: /[0-9]/");
    let text = "7,".repeat(3000) + "7";
    assert_eq!(cfg.parse(&text).unwrap().children.len(), 3001);
}

#[test]
fn faults_name_their_line() {
    let cases = [
        ("a: \"x\"", 1, "no rule `start`"),
        ("start: b", 1, "`b` is not defined"),
        ("start: \"x\"\n  | B", 1, "`B` is not defined"),
        ("start: A\nA: start", 2, "`start` is a rule"),
        ("start: A\n\nA: B \"a\"\nB: A | \"b\"", 4, "contains itself"),
        ("start: \"x\"\nstart: \"y\"", 2, "defined twice"),
        ("start: A\nA: /x*/", 2, "matches the empty text"),
        ("start: A\nA: /x(/", 2, "is no terminal"),
        ("start: \"\"", 1, "matches the empty text"),
        ("start: (\"x\"", 1, "ends with `)`"),
        ("start \"x\"", 1, "followed by `:`"),
        ("start: \"x\" )", 1, "`)` is unexpected"),
        ("%import common.WS\nstart: \"x\"", 1, "%import is not supported"),
        ("start: \"x\"\n%declare A", 2, "%declare is not supported"),
        ("start.2: \"x\"", 1, "priorities are not supported"),
        ("start: list{a}", 1, "templates are not supported"),
        ("list{x}: x\nstart: \"a\"", 1, "templates are not supported"),
        ("start: \"x\"~3..2", 1, "repeats nothing"),
        ("start: \"ab\"..\"c\"", 1, "no range"),
        ("start: \"x\"~999999", 1, "larger than"),
        ("?A: \"x\"\nstart: A", 1, "only rules have `?`"),
        ("A: \"x\" -> b\nstart: A", 1, "only rules have aliases"),
        ("start: (\"x\" -> b)", 1, "an alias names a whole alternative"),
        ("start: \"x\"\n%ignore / */", 2, "matches the empty text"),
    ];
    for (grammar, line, message) in cases {
        let error = Cfg::from_lark(grammar, &CfgOptions::default()).unwrap_err();
        assert!(error.line() == line && error.to_string().contains(message), "{grammar:?}: {error}");
    }
    let nested = format!("start: {}\"x\"{}", "(".repeat(5000), ")".repeat(5000));
    let error = Cfg::from_lark(&nested, &CfgOptions::default()).unwrap_err();
    assert!(error.to_string().contains("nest deeper"), "{error}");
}

/// A grammar of three rules over a and b: each alternative is a list of symbols, 0 and 1 for the
/// letters, 2 to 4 for the rules.
type Rules = Vec<Vec<Vec<usize>>>;

fn written(rules: &Rules) -> String {
    const NAMES: [&str; 5] = ["\"a\"", "\"b\"", "start", "second", "third"];
    let alternative = |symbols: &Vec<usize>| symbols.iter().map(|s| NAMES[*s]).collect::<Vec<_>>().join(" ");
    let rule = |(i, alternatives): (usize, &Vec<Vec<usize>>)| {
        let body: Vec<String> = alternatives.iter().map(alternative).collect();
        format!("{}: {}", NAMES[2 + i], body.join(" | "))
    };
    rules.iter().enumerate().map(rule).collect::<Vec<_>>().join("\n")
}

/// The texts of up to `longest` letters that each rule derives: the least fixed point.
fn languages(rules: &Rules, longest: usize) -> Vec<BTreeSet<String>> {
    let mut languages = vec![BTreeSet::new(); rules.len()];
    loop {
        let before = languages.clone();
        for (language, alternatives) in languages.iter_mut().zip(rules) {
            for alternative in alternatives {
                let mut texts = BTreeSet::from([String::new()]);
                for symbol in alternative {
                    let next = match symbol {
                        0 => BTreeSet::from(["a".to_owned()]),
                        1 => BTreeSet::from(["b".to_owned()]),
                        rule => before[rule - 2].clone(),
                    };
                    let joined =
                        texts.iter().flat_map(|text| next.iter().map(move |next| text.clone() + next));
                    texts = joined.filter(|text| text.len() <= longest).collect();
                }
                language.extend(texts);
            }
        }
        if languages == before {
            return languages;
        }
    }
}

/// The leaves of a tree in which every letter is shown.
fn spelled(tree: &lockstep_grammar::ParseTree) -> String {
    let leaf = |node: &lockstep_grammar::ParseNode| match node {
        lockstep_grammar::ParseNode::Tree(tree) => spelled(tree),
        lockstep_grammar::ParseNode::Token { text, .. } => text.clone(),
    };
    tree.children.iter().map(leaf).collect()
}

proptest! {
    #[test]
    fn recognition_is_derivation(
        rules in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(0_usize..5, 0..4), 1..4), 3),
    ) {
        const LONGEST: usize = 4;
        let written = written(&rules);
        let cfg = cfg(&written);
        // The same grammar with all letters in its trees.
        let shown = ["start", "second", "third"].iter().fold(written.clone(), |text, name| {
            text.lines().map(|line| {
                if line.starts_with(&format!("{name}:")) { format!("!{line}\n") } else { format!("{line}\n") }
            }).collect()
        });
        let shown = self::cfg(&shown);
        let language = languages(&rules, LONGEST).swap_remove(0);
        for length in 0..=LONGEST {
            for bits in 0..1_u32 << length {
                let text: String = (0..length).map(|i| if bits >> i & 1 == 1 { 'b' } else { 'a' }).collect();
                prop_assert_eq!(cfg.accepts(&text), language.contains(&text), "{:?} of {}", text, written);
                if let Some(tree) = shown.parse(&text) {
                    prop_assert_eq!(spelled(&tree), text);
                }
            }
        }
    }
}
