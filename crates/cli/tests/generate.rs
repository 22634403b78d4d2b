//! `lockstep generate` as its user meets it.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn lockstep(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockstep")).arg("generate").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Prompts of all kinds of settings; the seed is the line's own.
fn mixed(n: u32) -> Vec<String> {
    let openings =
        ["Once upon a time", "The sky is", "1, 2, 3,", "Dear Sir or Madam,", "fn main() {", "Q: Who?\nA:"];
    let line = |i: u32| {
        let mut line = json!({
            "id": format!("line {i}"),
            "prompt": format!("{} {}", openings[i as usize % openings.len()], i % 7),
            "seed": i,
            "max_tokens": 2 + i % 6,
            "temperature": if i.is_multiple_of(9) { 0.0 } else { 0.5 + f64::from(i % 5) / 4.0 },
        });
        let settings: [(&str, Value, u32); 10] = [
            ("top_p", json!(0.9), 2),
            ("top_k", json!(40), 3),
            ("min_p", json!(0.05), 5),
            ("repetition_penalty", json!(1.2), 4),
            ("logit_bias", json!({"28": -5.0}), 6),
            ("stop", json!(["e ", "\n"]), 7),
            ("xtc_probability", json!(0.5), 8),
            ("draw_method", json!("inverse_cdf"), 11),
            ("regex", json!("[a-z ]{3,30}"), 10),
            ("logprobs", json!(2), 13),
        ];
        for (field, value, every) in settings {
            if i % every == 1 {
                line[field] = value;
            }
        }
        line.to_string()
    };
    (0..n).map(line).collect()
}

#[test]
fn b_26_200_prompts_of_mixed_settings_are_byte_equal_to_each_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, lines: &[String]| {
        let path = folder.path().join(name);
        fs::write(&path, lines.join("\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let lines = mixed(200);
    let together = lockstep(&["--prompts", &file("together", &lines), "--batch", "32"]);
    assert!(together.status.success(), "{}", text(&together.stderr));
    let results: Vec<String> = text(&together.stdout).lines().map(str::to_owned).collect();
    assert_eq!(results.len(), 200);
    for (i, result) in results.iter().enumerate() {
        let result: Value = serde_json::from_str(result).unwrap();
        assert_eq!(result["id"], format!("line {i}"), "results come in the order of the prompts");
    }
    // One at a time, and in another order: nobody shares a batch.
    let backwards: Vec<String> = lines.iter().rev().cloned().collect();
    let alone = lockstep(&["--prompts", &file("alone", &backwards), "--batch", "1", "--threads", "1"]);
    let mut alone: Vec<String> = text(&alone.stdout).lines().map(str::to_owned).collect();
    alone.reverse();
    assert_eq!(results, alone);
    // And some in a program of their own, as flags do it.
    for i in [3_usize, 50, 121] {
        let one = lockstep(&["--prompts", &file("one", &lines[i..=i])]);
        assert_eq!(text(&one.stdout).trim_end(), results[i]);
    }
}

#[test]
fn a_text_is_streamed_and_json_tells_how_it_ended() {
    let flags = ["--prompt", "The capital of France is", "--max-tokens", "6", "--seed", "1"];
    let shown = lockstep(&flags);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(shown.stderr.is_empty());
    let object = lockstep(&[&flags[..], &["--json"]].concat());
    let object: Value = serde_json::from_slice(&object.stdout).unwrap();
    assert_eq!(text(&shown.stdout), format!("{}\n", object["text"].as_str().unwrap()));
    assert_eq!((&object["finish_reason"], &object["completion_tokens"]), (&json!("length"), &json!(6)));
    let date = ["--prompt", "Born on ", "--regex", "[0-9]{4}-[0-9]{2}", "--seed", "2"];
    let date = text(&lockstep(&date).stdout);
    assert!(date.len() == 8 && date.as_bytes()[4] == b'-', "{date}");
}

#[test]
fn lines_fail_alone_and_a_resumed_file_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut file = String::new();
    for i in 0..6 {
        writeln!(file, "{}", json!({"id": i, "prompt": "Hello", "seed": i, "max_tokens": 3})).unwrap();
    }
    file.push_str("{\"id\": \"bad\", \"prompt\": \"x\", \"tempature\": 1}\n");
    file.push_str("{\"id\": \"range\", \"prompt\": \"x\", \"top_p\": 0}\n");
    file.push_str("{\"id\": \"none\"}\nnot json\n");
    fs::write(path("in"), &file).unwrap();
    let output = lockstep(&["--prompts", &path("in"), "--out", &path("out")]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "lockstep: 4 of 10 prompts failed: their results say why\n");
    let whole = fs::read_to_string(path("out")).unwrap();
    let results: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 10);
    let error = |at: usize| results[at]["error"].as_str().unwrap();
    assert!(error(6).starts_with("`tempature`: is no field of a line: use id, prompt,"), "{}", error(6));
    assert!(error(7).starts_with("top_p: 0 means off to some"), "{}", error(7));
    assert_eq!(error(8), "prompt: is missing: give it, or `messages`");
    assert_eq!((&results[9]["id"], &results[9]["line"]), (&json!(10), &json!(10)));
    // What was cut off in the middle of a line is done again.
    let half = whole.lines().take(2).map(|line| format!("{line}\n")).collect::<String>() + "{\"id\": 2, \"te";
    fs::write(path("out"), half).unwrap();
    let refused = lockstep(&["--prompts", &path("in"), "--out", &path("out")]);
    assert_eq!(refused.status.code(), Some(2));
    lockstep(&["--prompts", &path("in"), "--out", &path("out"), "--resume"]);
    assert_eq!(fs::read_to_string(path("out")).unwrap(), whole);
}

#[test]
fn what_is_wrong_is_told_with_the_flag() {
    let refused = |args: &[&str], start: &str| {
        let output = lockstep(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&format!("lockstep: {start}")), "{said}");
    };
    refused(&["--prompt", "x", "--top-p", "0"], "--top-p: 0 means off");
    refused(&["--prompt", "x", "--logit-bias", "7"], "--logit-bias: `7` is not ID=BIAS");
    refused(&["--prompt", "x", "--draw-method", "dice"], "--draw-method: ");
    refused(&["--prompt", "x", "--logprobs-mode", "x"], "--logprobs-mode: `x` is none of");
    refused(&["--prompt", "x", "--stop", ""], "--stop: string 0 is empty");
    refused(
        &["--prompt", "x", "--max-tokens", "99999"],
        "--prompt: 1 tokens and up to 99999 more are longer",
    );
    refused(&["--prompt", ""], "--prompt: is empty");
    refused(&["--prompt", "x", "--logit-bias", "99999=1"], "--logit-bias: id 99999 is outside");
}
