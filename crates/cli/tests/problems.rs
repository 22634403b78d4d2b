//! `lockstep run --problems`: many problems in one cohort.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

#[path = "shared/fed.rs"]
mod fed;

use fed::lockstep;

/// A problems file.
fn file(problems: &[Value]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// The results by id, as they were written but for their timings.
fn results(text: &str) -> BTreeMap<String, String> {
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let result = |line: &str| {
        let mut result: Value = serde_json::from_str(line).unwrap();
        result.as_object_mut().unwrap().remove("seconds");
        (result["id"].to_string(), result.to_string())
    };
    text.lines().map(result).collect()
}

/// Runs a problems file to the end.
fn solve(args: &[&str], problems: &str) -> BTreeMap<String, String> {
    let output = lockstep(&[&["run", "--problems", "-"], args].concat(), problems.as_bytes());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress line without a terminal");
    results(&String::from_utf8(output.stdout).unwrap())
}

/// Different prompts, constraints, critics, samplers and lengths.
fn problems() -> Vec<Value> {
    vec![
        json!({"id": "year", "prompt": "The year was", "regex": " [0-9]{4}", "particles": 6, "max_tokens": 8, "draw_method": "inverse_cdf"}),
        json!({"id": "sky", "prompt": "The sky is", "choice": [" blue", " dark green"], "sampler": "awrs", "awrs_accepts": 3, "awrs_rejects": 900, "awrs_estimator": "geometric",
               "particles": 5, "ess": 0.9, "resampling": "systematic", "problem": 3}),
        json!({"id": 7, "prompt": "My review:", "words": {"good": 1.5, "bad": -2}, "words_cap": 2,
               "critic_prompt": "A nice review:", "particles": 4, "max_tokens": 6, "temperature": 0.8}),
        json!({"prompt": "Say hello.", "chat": true, "regex": ["[a-zA-Z ]+", ".{3,9}"], "particles": 3, "seed": 9}),
    ]
}

#[test]
fn a_problem_has_one_result_alone_and_in_any_cohort() {
    let problems = problems();
    let flags = ["--seed", "4", "--max-tokens", "12"];
    let together = solve(&flags, &file(&problems));
    assert_eq!(together.len(), 4);
    assert_eq!(
        solve(&[&flags[..], &["--concurrent", "1", "--threads", "1"]].concat(), &file(&problems)),
        together
    );
    assert_eq!(solve(&[&flags[..], &["--concurrent", "3"]].concat(), &file(&problems)), together);
    // A problem without an id is called by its line.
    assert_eq!(together.keys().collect::<Vec<_>>(), ["\"sky\"", "\"year\"", "4", "7"]);
    let alone = solve(&flags, &file(&problems[..1]));
    assert_eq!(alone["\"year\""], together["\"year\""]);
    let result: Value = serde_json::from_str(&together["4"]).unwrap();
    assert_eq!((&result["seed"], &result["problem"]), (&json!(9), &json!(0)));

    // The same problem in flags.
    let flags = [
        &["run", "--json", "--prompt", "The sky is", "--choice", " blue", "--choice", " dark green"][..],
        &["--awrs-accepts", "3", "--awrs-rejects", "900", "--awrs-estimator", "geometric"],
        &["--sampler", "awrs", "--particles", "5", "--ess", "0.9", "--resampling", "systematic"],
        &["--problem", "3", "--seed", "4", "--max-tokens", "12"],
    ];
    let flags: Value = serde_json::from_slice(&lockstep(&flags.concat(), b"").stdout).unwrap();
    let line: Value = serde_json::from_str(&together["\"sky\""]).unwrap();
    for name in ["texts", "log_ml", "ess", "n_resamples", "tokens", "seed", "model"] {
        assert_eq!(line[name], flags[name], "{name}");
    }
}

#[test]
fn a_line_that_cannot_be_run_is_its_own_result() {
    let lines = [
        (
            r#"{"prompt": "Hi", "particels": 3}"#,
            "`particels`: is no field of a line: use id, prompt, chat, regex",
        ),
        (r#"{"prompt": "Hi", "particles": 0}"#, "particles: must be at least 1"),
        (r#"{"prompt": "Hi", "particles": "3"}"#, "particles: \"3\" is not a whole number"),
        (r#"{"prompt": "Hi", "max_tokens": 9000}"#, "max_tokens: 9000 after a prompt of 1 exceed"),
        (r#"{"prompt": "Hi", "ess": 1.5}"#, "ess: 1.5 must lie between 0 and 1"),
        (r#"{"prompt": "Hi", "sampler": "best"}"#, "sampler: \"best\" is not \"direct\" or \"awrs\""),
        (r#"{"prompt": "Hi", "resampling": "best"}"#, "resampling: "),
        (r#"{"prompt": "Hi", "draw_method": "best"}"#, "draw_method: draw method `best`"),
        (r#"{"prompt": "Hi", "regex": ["a", 1]}"#, "regex: 1 is not a string"),
        (r#"{"prompt": "Hi", "regex": ["a", "b"]}"#, "regex: the language is empty"),
        (r#"{"prompt": "Hi", "words": {"good": "much"}}"#, "words: \"much\" is not a number"),
        (r#"{"prompt": "Hi", "words_cap": -1}"#, "words_cap: -1 is not a whole number"),
        (r#"{"prompt": "Hi", "chat": 1}"#, "chat: 1 is not true or false"),
        (r#"{"prompt": "Hi", "id": [1]}"#, "id: [1] is not a string or a whole number"),
        (r#"{"prompt": "", "regex": "a"}"#, "prompt: is empty"),
        (r#"{"regex": "a"}"#, "prompt: is missing"),
        (r#"["Hi"]"#, "a line is a JSON object"),
        (r#"{"prompt": "Hi"#, "is not JSON: "),
    ];
    let mut text: String = lines.iter().map(|(line, _)| format!("{line}\n\n")).collect();
    text += r#"{"id": "sound", "prompt": "Hi", "particles": 2, "max_tokens": 2, "seed": 1}"#;
    let output = lockstep(&["run", "--problems", "-"], text.as_bytes());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message, "lockstep: 18 of 19 problems failed: their results say why\n");
    assert_eq!(output.status.code(), Some(1));
    let results = results(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(results.len(), 19);
    assert!(results["\"sound\""].contains("\"texts\":["));
    for (i, (line, expected)) in lines.iter().enumerate() {
        // Blank lines count: editors number them too.
        let number = 2 * i + 1;
        let result: Value = serde_json::from_str(&results[&number.to_string()]).unwrap();
        assert_eq!(result["line"], number);
        assert!(result["error"].as_str().unwrap().starts_with(expected), "{line}: {result}");
    }
}

#[test]
fn files_that_make_no_sense_are_refused_before_any_work() {
    let refusal = |args: &[&str], input: &str| {
        let output = lockstep(&[&["run"], args].concat(), input.as_bytes());
        assert!(output.stdout.is_empty(), "{args:?}");
        (String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
    };
    let twice = "{\"id\": 2, \"prompt\": \"Hi\"}\n{\"prompt\": \"Ho\"}\n";
    let (message, code) = refusal(&["--problems", "-"], twice);
    assert!(message.starts_with("lockstep: --problems: lines 1 and 2 have the id 2: "), "{message}");
    assert_eq!(code, 2);
    assert_eq!(refusal(&["--problems", "-"], "\n \n").0, "lockstep: --problems: there is no line in it\n");
    let (message, code) = refusal(&["--problems", "no/such/file"], "");
    assert!(message.starts_with("lockstep: --problems: no/such/file: "), "{message}");
    assert_eq!(code, 1);
    for args in [&["--prompt", "Hi", "--concurrent", "2"][..], &["--problems", "-", "--resume"], &[]] {
        assert_eq!(refusal(args, "").1, 2, "{args:?}");
    }
}

#[test]
fn resuming_does_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("results.jsonl");
    let out = path.to_str().unwrap();
    let problems = file(&problems());
    let flags = ["--seed", "4", "--max-tokens", "12"];
    let all = solve(&flags, &problems);
    let to_file = [&flags[..], &["--out", out]].concat();
    assert!(solve(&to_file, &problems).is_empty());
    let complete = fs::read_to_string(&path).unwrap();
    assert_eq!(results(&complete), all);

    // Two results stay as they are, the third is cut short.
    let (first, rest) = complete.split_at(complete.match_indices('\n').nth(1).unwrap().0 + 1);
    let cut = format!("{first}{}", &rest[..20]);
    fs::write(&path, &cut).unwrap();
    let output = lockstep(&[&["run", "--problems", "-"], &to_file[..]].concat(), problems.as_bytes());
    assert!(String::from_utf8(output.stderr).unwrap().contains("add --resume"));
    assert_eq!((output.status.code(), fs::read_to_string(&path).unwrap()), (Some(2), cut));
    let resume = [&to_file[..], &["--resume"]].concat();
    solve(&resume, &problems);
    let resumed = fs::read_to_string(&path).unwrap();
    assert!(resumed.starts_with(first));
    assert_eq!((resumed.lines().count(), results(&resumed)), (4, all));
    // Nothing is left: nothing changes.
    solve(&resume, &problems);
    assert_eq!(fs::read_to_string(&path).unwrap(), resumed);

    fs::write(&path, "{\"no\": \"result\"}\n").unwrap();
    let output = lockstep(&[&["run", "--problems", "-"], &resume[..]].concat(), problems.as_bytes());
    assert!(String::from_utf8(output.stderr).unwrap().contains("line 1 is no result"));
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_whole_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("problems.jsonl");
    let problems = [
        json!({"id": "short", "prompt": "One digit:", "regex": " [0-9]", "particles": 2}),
        json!({"id": "long", "prompt": "A long text:", "regex": "[a-z ]{4000}", "particles": 8}),
    ];
    fs::write(&path, file(&problems)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["run", "--problems", path.to_str().unwrap(), "--max-tokens", "4001", "--seed", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The short one has ended, the long one cannot have.
    let first = lines.next().unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["id"], "short");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert!(lines.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
