//! The lines of a problems file: what each asks for, checked before any work.
//!
//! A line is a JSON object whose fields are the options of `lockstep run` under their own names, so
//! that a problem is the same whether it is given by flags or in a file. `id` names its result and
//! is the line's number by default.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::Value;

use crate::args::RunArgs;
use crate::error::CliError;
use crate::jsonl::{fields, flag, number, size, text, texts, unknown, whole, wrong};
use crate::run::problem::Problem;

/// Every field of a line.
const FIELDS: [&str; 16] = [
    "id",
    "prompt",
    "chat",
    "regex",
    "choice",
    "words",
    "words_cap",
    "critic_prompt",
    "particles",
    "ess",
    "max_tokens",
    "temperature",
    "sampler",
    "resampling",
    "seed",
    "problem",
];

/// A line that is not blank.
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) number: usize,
    /// What its result is found by: a string or a whole number.
    pub(crate) id: Value,
    /// What it asks for, or what is wrong with it.
    pub(crate) problem: Result<Problem, CliError>,
}

/// The lines of `text`, which take from `defaults` what they do not say.
///
/// # Errors
/// If two lines have one id, or there is no line at all.
pub(crate) fn lines(text: &str, defaults: &RunArgs) -> Result<Vec<Line>, CliError> {
    let mut lines: Vec<Line> = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let line = parse(number, line, defaults);
        if let Some(earlier) = seen.insert(line.id.to_string(), number) {
            let message = format!(
                "lines {earlier} and {number} have the id {}: ids must differ, since results are told apart by them",
                line.id
            );
            return Err(CliError::usage("--problems", message));
        }
        lines.push(line);
    }
    if lines.is_empty() {
        return Err(CliError::usage("--problems", "there is no problem in it"));
    }
    Ok(lines)
}

fn parse(number: usize, line: &str, defaults: &RunArgs) -> Line {
    let mut id = Value::from(number);
    let problem = fields(line).and_then(|mut fields| {
        match fields.remove("id") {
            None => {}
            Some(given) if given.is_string() || given.is_u64() => id = given,
            Some(given) => return Err(wrong("id", &given, "a string or a whole number")),
        }
        let mut args = defaults.clone();
        for (field, value) in &fields {
            set(&mut args, field, value)?;
        }
        Problem::new(&args)
    });
    Line { number, id, problem }
}

/// Puts the value of a field where its flag would put it.
fn set(args: &mut RunArgs, field: &str, value: &Value) -> Result<(), CliError> {
    match field {
        "prompt" => args.prompt = Some(text(field, value)?),
        "chat" => args.chat = flag(field, value)?,
        "regex" => args.constraint.regex = texts(field, value)?,
        "choice" => args.constraint.choice = texts(field, value)?,
        "words" => args.words = words(field, value)?,
        "words_cap" => args.words_cap = Some(size(field, value)?),
        "critic_prompt" => args.critic_prompt = Some(text(field, value)?),
        "particles" => args.particles = size(field, value)?,
        "ess" => args.ess = number(field, value)?,
        "max_tokens" => args.max_tokens = size(field, value)?,
        "temperature" => args.temperature = number(field, value)?,
        "sampler" => {
            args.sampler = ValueEnum::from_str(&text(field, value)?, false)
                .map_err(|_| wrong(field, value, "\"direct\" or \"awrs\""))?;
        }
        "resampling" => args.resampling = text(field, value)?,
        "seed" => args.seed = Some(whole(field, value)?),
        "problem" => args.problem = whole(field, value)?,
        _ => return Err(unknown(field, &FIELDS)),
    }
    Ok(())
}

/// Nats by word, as the flag writes them.
fn words(field: &str, value: &Value) -> Result<Vec<String>, CliError> {
    let Some(words) = value.as_object() else {
        return Err(wrong(field, value, "an object of nats, such as {\"good\": 1.5}"));
    };
    words.iter().map(|(word, nats)| Ok(format!("{word}={}", number(field, nats)?))).collect()
}
