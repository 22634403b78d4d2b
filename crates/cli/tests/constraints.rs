//! Constraints and preferences on the command line, and `lockstep explain`.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::process::{Command, Output};

use serde_json::Value;

fn lockstep(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockstep")).args(args).output().unwrap()
}

fn success(args: &[&str]) -> String {
    let output = lockstep(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn object(args: &[&str]) -> Value {
    serde_json::from_str(&success(args)).unwrap()
}

/// What is said on standard error after the program's name; the exit code must be 2.
fn refusal(args: &[&str]) -> String {
    let output = lockstep(args);
    assert!(output.stdout.is_empty() && output.status.code() == Some(2), "{args:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    message.strip_prefix("lockstep: ").unwrap().to_owned()
}

/// The texts of a run on the real model.
fn texts(args: &[&str]) -> Vec<String> {
    let run = ["run", "--json", "--seed", "3", "--particles", "8", "--max-tokens", "24"];
    let found = object(&[&run, args].concat());
    let texts = found["texts"].as_array().unwrap().iter();
    texts.map(|text| text["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn several_patterns_hold_together() {
    let args = ["--prompt", "The year was", "--regex", " [0-9]{4}", "--regex", " .*7", "--regex", " 1.*"];
    let found = texts(&args);
    assert!(!found.is_empty());
    for text in found {
        let digits = text.strip_prefix(' ').unwrap();
        assert!(digits.len() == 4 && digits.starts_with('1') && digits.ends_with('7'), "{text:?}");
        assert!(digits.bytes().all(|byte| byte.is_ascii_digit()), "{text:?}");
    }
}

#[test]
fn choices_are_the_only_texts() {
    let args =
        ["--prompt", "The sky is", "--choice", " blue", "--choice", " green", "--choice", " dark blue"];
    let found = texts(&args);
    assert!(!found.is_empty());
    assert!(found.iter().all(|text| [" blue", " green", " dark blue"].contains(&text.as_str())), "{found:?}");
    let narrowed = [&args[..], &["--regex", ".*(green|red)", "--sampler", "awrs"]].concat();
    assert_eq!(texts(&narrowed), [" green"]);
}

#[test]
fn words_are_worth_their_nats() {
    // Both texts are certain once begun, so the odds move by the nats alone.
    let args = ["--prompt", "It was", "--choice", " Good", "--choice", " bad", "--particles", "64"];
    let odds = |more: &[&str]| {
        let run = ["run", "--json", "--seed", "1", "--ess", "0"];
        let found = object(&[&run, &args[..], more].concat());
        let probability = |text: &str| {
            let texts = found["texts"].as_array().unwrap();
            texts.iter().find(|found| found["text"] == text).unwrap()["probability"].as_f64().unwrap()
        };
        (probability(" Good") / probability(" bad")).ln()
    };
    let plain = odds(&[]);
    for (more, nats) in [
        (&["--words", "good=1.5"][..], 1.5),
        (&["--words", "good=1.5,bad=-2"], 3.5),
        (&["--words", "o=1.5", "--words-cap", "1"], 1.5),
        (&["--words", "o=1.5"], 3.0),
    ] {
        assert!((odds(more) - plain - nats).abs() < 1e-9, "{more:?}");
    }
    let both = ["--words", "good=1.5", "--critic-prompt", "A review:"];
    let critic_alone = odds(&both[2..]);
    assert!((odds(&both) - critic_alone - 1.5).abs() < 1e-9);
}

#[test]
fn explain_tells_what_is_accepted() {
    let found = object(&["explain", "--json", "--regex", "[ab]{2}c?", "--samples", "20"]);
    assert_eq!((&found["finite"], &found["size"]), (&true.into(), &"8".into()));
    assert_eq!(found["samples"].as_array().unwrap().len(), 8);
    assert_eq!(found["shortest"], "aa");
    assert_eq!(found["text"], Value::Null);
    let found = object(&["explain", "--json", "--regex", "a+", "--regex", ".{3,}", "--choice", "aaaa"]);
    assert_eq!((&found["size"], &found["samples"][0]), (&"1".into(), &"aaaa".into()));
    assert_eq!(object(&["explain", "--json", "--regex", "a*"])["size"], Value::Null);
    assert!(success(&["explain", "--regex", "a*"]).starts_with("accepts infinitely many texts; 1 state\n"));
}

#[test]
fn explain_tells_where_a_text_fails() {
    let dates = ["explain", "--json", "--regex", "[0-9]{4}-(0[1-9]|1[0-2])"];
    let of = |text: &str| object(&[&dates[..], &["--text", text]].concat())["text"].clone();
    assert_eq!(of("2024-07")["accepted"], true);
    assert_eq!(of("2024-1")["shortest_completion"], "0");
    let dead = of("2024-13");
    assert_eq!((&dead["live"], &dead["dies_at_byte"]), (&false.into(), &6.into()));
    assert_eq!(dead["could_follow"], serde_json::json!(["0-2"]));
    assert_eq!(of("2024-07-01")["could_end"], true);

    // A text dies at a byte, but people read characters: é and è share their first byte.
    let shown = success(&["explain", "--regex", "né(x|,)", "--text", "nè!"]);
    assert!(shown.ends_with("--text dies at byte 2, in 'è'\n  nè!\n   ^\n  possible here: é\n"), "{shown}");
    let shown = success(&["explain", "--regex", "[a-cx]?", "--text", ""]);
    assert!(shown.ends_with("--text is accepted\n  after it could follow: a-c, x, the end\n"), "{shown}");
}

#[test]
fn constraints_that_make_no_sense_are_refused() {
    let run = ["run", "--prompt", "Hi"];
    let cases: [(&[&str], &str); 8] = [
        (&["--regex", "a", "--regex", "b"], "--regex: the language is empty"),
        (&["--regex", "a", "--choice", "b"], "--choice: the language is empty"),
        (&["--regex", "a", "--regex", "é(a"], "--regex: "),
        (&["--words", "good"], "--words: `good` is not WORD=NATS, such as good=1.5\n"),
        (&["--words", "good=much"], "--words: `good=much` is not"),
        (&["--words", "good=inf"], "--words: `good=inf` is not"),
        (&["--words", "=1"], "--words: `=1` is not"),
        (&["--words", "bad=-1", "--words-cap", "2"], "--words: a cap needs a word with positive nats"),
    ];
    for (args, expected) in cases {
        let message = refusal(&[&run[..], args].concat());
        assert!(message.starts_with(expected), "{args:?}: {message}");
    }
    assert!(refusal(&["explain"]).starts_with("--regex, --choice: give a constraint"));
    let caret = refusal(&["explain", "--regex", r"é(a)\1"]);
    assert_eq!(caret, "--regex: back-reference at offset 5 is not supported\n  é(a)\\1\n      ^\n");
}
