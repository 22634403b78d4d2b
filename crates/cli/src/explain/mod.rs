//! `lockstep explain`: what a constraint accepts, and where it refuses a text.

mod language;
mod options;

use std::process::ExitCode;

use lockstep::control::Potential;
use lockstep::grammar::{Dfa, StateId};
use serde_json::{Value, json};

use crate::args::ExplainArgs;
use crate::constraint::{caret, constraint};
use crate::error::CliError;
use crate::input;
use crate::stdout::print;
use language::{Language, Size};
use options::Options;

pub(crate) fn explain(args: &ExplainArgs) -> Result<ExitCode, CliError> {
    let Some(fsa) = constraint(&args.constraint)? else {
        return Err(CliError::usage("--regex, --choice", "give a constraint to explain"));
    };
    let dfa = fsa.automaton().ok_or_else(|| CliError::failed("the constraint has no automaton"))?;
    let language = Language::new(dfa);
    let samples = language.samples(args.samples, args.seed);
    let verdict = match &args.text {
        Some(text) => Some(Verdict::new(dfa, &language, &input::text("--text", text)?)),
        None => None,
    };
    if args.json {
        let texts: Vec<_> = samples.iter().map(|text| String::from_utf8_lossy(text)).collect();
        let (size, exact) = match language.size() {
            Size::Infinite => (Value::Null, false),
            Size::Finite(size) => (size.to_string().into(), true),
            Size::Huge(size) => (format!("{size:.3e}").into(), false),
        };
        let object = json!({
            "states": dfa.state_count(),
            "finite": !matches!(language.size(), Size::Infinite),
            "size": size,
            "size_is_exact": exact,
            "shortest": String::from_utf8_lossy(&language.shortest(dfa.start())),
            "samples": texts,
            "text": verdict.as_ref().map(Verdict::json),
        });
        print(object)?;
        return Ok(ExitCode::SUCCESS);
    }
    let size = match language.size() {
        Size::Infinite => "infinitely many texts".to_owned(),
        Size::Finite(1) => "one text".to_owned(),
        Size::Finite(size) => format!("{size} texts"),
        Size::Huge(size) => format!("about {size:.3e} texts"),
    };
    let states = match dfa.state_count() {
        1 => "1 state".to_owned(),
        n => format!("{n} states"),
    };
    let mut lines = vec![format!("accepts {size}; {states}")];
    lines.extend(samples.iter().map(|text| format!("  {:?}", String::from_utf8_lossy(text))));
    lines.extend(verdict.map(|verdict| verdict.lines()));
    print(lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What became of a text.
struct Verdict {
    text: String,
    /// The byte at which it dies, and where the character begins that this byte is in.
    dies: Option<(usize, usize)>,
    accepted: bool,
    /// The shortest way to go on to an accepted text.
    completion: Option<Vec<u8>>,
    /// What could follow where it dies or ends.
    options: Options,
}

impl Verdict {
    fn new(dfa: &Dfa, language: &Language<'_>, text: &str) -> Self {
        // The states before each byte.
        let mut states: Vec<StateId> = vec![dfa.start()];
        for &byte in text.as_bytes() {
            match dfa.next(states[states.len() - 1], byte) {
                Some(next) => states.push(next),
                None => break,
            }
        }
        let read = states.len() - 1;
        let state = states[read];
        if read == text.len() {
            return Self {
                text: text.to_owned(),
                dies: None,
                accepted: dfa.is_final(state),
                completion: Some(language.shortest(state)),
                options: Options::new(dfa, state),
            };
        }
        let begin = (0..=read).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        Self {
            text: text.to_owned(),
            dies: Some((read, begin)),
            accepted: false,
            completion: None,
            options: Options::new(dfa, states[begin]),
        }
    }

    fn json(&self) -> Value {
        json!({
            "accepted": self.accepted,
            "live": self.dies.is_none(),
            "dies_at_byte": self.dies.map(|(byte, _)| byte),
            "shortest_completion": self.completion.as_ref().map(|text| String::from_utf8_lossy(text)),
            "could_end": self.options.end,
            "could_follow": self.options.ranges,
        })
    }

    fn lines(&self) -> String {
        match self.dies {
            None if self.accepted => {
                format!("--text is accepted\n  after it could follow: {}", self.options)
            }
            None => {
                let completion = self.completion.as_deref().unwrap_or_default();
                let completion = String::from_utf8_lossy(completion);
                format!(
                    "--text is live, not accepted: {completion:?} would complete it\n  next could be: {}",
                    self.options
                )
            }
            Some((byte, begin)) => {
                let shown = self.text[begin..].chars().next().unwrap_or_default();
                format!(
                    "--text dies at byte {byte}, in {shown:?}\n{}\n  possible here: {}",
                    caret(&self.text, begin),
                    self.options
                )
            }
        }
    }
}
