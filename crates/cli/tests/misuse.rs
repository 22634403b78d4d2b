//! Readers that leave, files that are not what they should be, and flags that would do nothing.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

#[path = "shared/fed.rs"]
mod fed;

use fed::lockstep;

/// What is said on standard error, without a result.
fn refusal(args: &[&str], input: &[u8], code: i32) -> String {
    let output = lockstep(args, input);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// The error that each line of a file gets.
fn errors(args: &[&str], lines: &[Value]) -> Vec<String> {
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let output = lockstep(args, file.as_bytes());
    let result = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap();
    let results = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(result);
    results.map(|result| result["error"].as_str().unwrap().to_owned()).collect()
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_ends_the_program_in_silence() {
    let line = r#"{"prompt": "Hi", "max_tokens": 2, "particles": 2, "seed": 1}"#;
    let prompts = line.replace("\"particles\": 2, ", "");
    let brief = ["--prompt", "Hi", "--max-tokens", "2", "--seed", "1"];
    let cases: [(&[&str], &[&str], &str); 8] = [
        (&["tokenize", "Hi"], &[], ""),
        (&["tokenize", "--json", "Hi"], &[], ""),
        (&["explain", "--regex", "a|b"], &[], ""),
        (&["generate"], &brief, ""),
        (&["generate", "--json"], &brief, ""),
        (&["generate", "--prompts", "-"], &[], &prompts),
        (&["run", "--particles", "2"], &brief, ""),
        (&["run", "--problems", "-"], &[], line),
    ];
    for (command, args, input) in cases {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
            .args([command, args].concat())
            .stdin(Stdio::piped())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{command:?}");
        assert_eq!(output.status.code(), Some(141), "{command:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_ends_a_benchmark_without_a_panic() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let bench = ["bench", "draw", "--sizes", "1024", "--rows", "2", "--threads", "1", "--rounds", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(bench)
        .args(["--only", "mixes"])
        .stdout(writer)
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(141), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn results_do_not_go_to_the_file_that_asks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.jsonl");
    // No end of line: a half-written result, if it were one.
    let lines = r#"{"id": "a", "prompt": "Hi", "max_tokens": 2}"#;
    fs::write(&path, lines).unwrap();
    let path = path.to_str().unwrap();
    for (command, flag) in [("generate", "--prompts"), ("run", "--problems")] {
        for resume in [&["--resume"][..], &[]] {
            let said = refusal(&[&[command, flag, path, "--out", path], resume].concat(), b"", 2);
            assert!(said.starts_with("lockstep: --out: ") && said.contains("name another"), "{said}");
            assert_eq!(fs::read_to_string(path).unwrap(), lines);
        }
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_line() {
    let file = "\u{feff}{\"prompt\": \"Hi\", \"max_tokens\": 1, \"seed\": 1}\r\n\r\n";
    let output = lockstep(&["generate", "--prompts", "-"], file.as_bytes());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn files_that_are_no_text_are_told_by_name_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin");
    fs::write(&path, b"{\"prompt\": \"Hi\"}\n{\"prompt\": \"caf\xe9\"}\n").unwrap();
    for (command, flag) in [("generate", "--prompts"), ("run", "--problems")] {
        let said = refusal(&[command, flag, path.to_str().unwrap()], b"", 1);
        let file = path.display();
        assert_eq!(said, format!("lockstep: {flag}: {file}: line 2 is not UTF-8: convert it to UTF-8\n"));
        let said = refusal(&[command, flag, "-"], b"\xff", 1);
        assert!(
            said.starts_with(&format!("lockstep: {flag}: standard input: line 1 is not UTF-8")),
            "{said}"
        );
        let said = refusal(&[command, flag, folder.path().to_str().unwrap()], b"", 1);
        assert!(said.starts_with(&format!("lockstep: {flag}: {}: ", folder.path().display())), "{said}");
    }
    let said = refusal(&["run", "--prompt", "Hi", "--record", folder.path().to_str().unwrap()], b"", 2);
    assert!(said.starts_with(&format!("lockstep: --record: {}: ", folder.path().display())), "{said}");
}

#[test]
fn lines_that_cannot_be_done_are_told_by_their_own_fields() {
    let lines = [
        json!({"prompt": "Hi", "choice": []}),
        json!({"prompt": "Hi", "logit_bias": {"x": 1}}),
        json!({"prompt": "Hi", "logit_bias": {"7": "much"}}),
    ];
    assert_eq!(
        errors(&["generate", "--prompts", "-"], &lines),
        [
            "choice: [] is not a string or a list of strings",
            "logit_bias: {\"x\":1} is not an object of biases by token id, such as {\"42\": -1.5}",
            "logit_bias: \"much\" is not a number",
        ]
    );
    let lines = [
        json!({"prompt": "Hi", "choice": []}),
        json!({"prompt": "Hi", "words_cap": 2}),
        json!({"prompt": "Hi", "sampler": "awrs"}),
    ];
    assert_eq!(
        errors(&["run", "--problems", "-"], &lines),
        [
            "choice: [] is not a string or a list of strings",
            "words_cap: bounds the nats of `words`: give some",
            "sampler: awrs rejects by a constraint: give a regex or a choice",
        ]
    );
    // The number of the line is that in the file.
    let output = lockstep(&["generate", "--prompts", "-"], b"\n{\"prompt\": \"Hi\",}\n");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&result["line"], &result["error"]),
        (&json!(2), &json!("is not JSON: trailing comma at column 17"))
    );
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let said = refusal(&["generate", "--prompt", "Hi", "--logprobs", "2"], b"", 2);
    assert_eq!(said, "lockstep: --logprobs: are told in JSON alone: add --json\n");
    let said = refusal(&["generate", "--prompt", "Hi", "--batch", "2"], b"", 2);
    assert!(said.contains("--prompts <FILE>"), "{said}");
    for (command, file) in [("generate", "--prompts"), ("run", "--problems")] {
        let said = refusal(&[command], b"", 2);
        assert!(said.contains("--prompt <TEXT>") && said.contains(file), "{said}");
    }
}

#[test]
fn options_stand_under_the_heading_they_belong_to() {
    for (command, heading, own, before) in [
        (
            "run",
            "Rejection:",
            "--awrs-accepts",
            ["--resampling", "--record", "--seed", "--problem <", "--json"],
        ),
        ("generate", "Sampling:", "--top-p", ["--prompt <", "--chat", "--json", "--model", "--threads"]),
    ] {
        let help = String::from_utf8(lockstep(&[command, "--help"], b"").stdout).unwrap();
        let (general, special) = help.split_once(heading).unwrap();
        assert!(special.contains(own));
        assert!(before.iter().all(|flag| general.contains(flag)), "{general}");
    }
}
