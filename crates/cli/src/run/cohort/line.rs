//! The lines of a problems file: what each asks for, checked before any work.
//!
//! A line is a JSON object whose fields are the options of `lockstep run` under their own names, so
//! that a problem is the same whether it is given by flags or in a file.

use clap::ValueEnum;
use serde_json::{Map, Value};

use crate::args::RunArgs;
use crate::error::CliError;
use crate::jsonl::{flag, number, size, some_texts, text, texts, unknown, whole, wrong};
use crate::run::problem::Problem;

/// Every field of a line.
const FIELDS: [&str; 20] = [
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
    "awrs_accepts",
    "awrs_rejects",
    "awrs_estimator",
    "draw_method",
    "resampling",
    "seed",
    "problem",
];

/// The problem of a line, which takes from `defaults` what it does not say.
pub(crate) fn problem(fields: &Map<String, Value>, defaults: &RunArgs) -> Result<Problem, CliError> {
    let mut args = defaults.clone();
    for (field, value) in fields {
        set(&mut args, field, value)?;
    }
    if fields.contains_key("words_cap") && args.words.is_empty() {
        return Err(CliError::usage("words_cap", "bounds the nats of `words`: give some"));
    }
    Problem::new(&args)
}

/// Puts the value of a field where its flag would put it.
fn set(args: &mut RunArgs, field: &str, value: &Value) -> Result<(), CliError> {
    match field {
        "prompt" => args.prompt = Some(text(field, value)?),
        "chat" => args.chat = flag(field, value)?,
        "regex" => args.constraint.regex = texts(field, value)?,
        "choice" => args.constraint.choice = some_texts(field, value)?,
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
        "awrs_accepts" => {
            let accepts = u32::try_from(whole(field, value)?);
            args.awrs.accepts = Some(accepts.map_err(|_| wrong(field, value, "a number below 2^32"))?);
        }
        "awrs_rejects" => args.awrs.rejects = Some(whole(field, value)?),
        "awrs_estimator" => args.awrs.estimator = Some(text(field, value)?),
        "draw_method" => args.draw_method = Some(text(field, value)?),
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
