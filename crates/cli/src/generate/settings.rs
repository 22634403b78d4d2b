//! Sampling settings, from flags and from the fields of a line, under the same names.

use std::sync::Arc;

use lockstep::control::{self, BoolFsa, Coerced};
use lockstep::engine::{EngineError, RowSpec, TokenId};
use lockstep::model::Loaded;
use lockstep::sample::{LogprobMode, LogprobRequest, SamplingParams};
use serde_json::Value;

use crate::args::SettingsArgs;
use crate::constraint::constraint;
use crate::error::CliError;
use crate::jsonl::{flag, number, size, some_texts, text, texts, whole, wrong};

/// The fields of a line that are settings.
pub(super) const FIELDS: [&str; 27] = [
    "regex",
    "choice",
    "temperature",
    "temperature_first",
    "top_p",
    "top_k",
    "min_p",
    "min_tokens_to_keep",
    "xtc_probability",
    "xtc_threshold",
    "draw_method",
    "logit_bias",
    "repetition_penalty",
    "repetition_context_size",
    "presence_penalty",
    "presence_context_size",
    "frequency_penalty",
    "frequency_context_size",
    "seed",
    "max_tokens",
    "min_tokens",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "logprobs",
    "logprobs_mode",
];

/// Settings that can be used, given a model.
pub(super) struct Settings {
    args: SettingsArgs,
    params: SamplingParams,
    logprobs: Option<LogprobRequest>,
    constraint: Option<BoolFsa>,
}

impl Settings {
    /// Checks what needs no model.
    pub(super) fn new(args: &SettingsArgs) -> Result<Self, CliError> {
        let params = SamplingParams {
            temperature: args.temperature,
            top_p: args.top_p,
            min_p: args.min_p,
            min_tokens_to_keep: args.min_tokens_to_keep,
            xtc_probability: args.xtc_probability,
            xtc_threshold: args.xtc_threshold,
            top_k: args.top_k,
            temperature_first: args.temperature_first,
            draw_method: args.draw_method.parse().map_err(|error| CliError::usage("--draw-method", error))?,
            logit_bias: args.logit_bias.iter().map(|bias| biased(bias)).collect::<Result<_, _>>()?,
            repetition_penalty: args.repetition_penalty,
            repetition_context_size: args.repetition_context_size,
            presence_penalty: args.presence_penalty,
            presence_context_size: args.presence_context_size,
            frequency_penalty: args.frequency_penalty,
            frequency_context_size: args.frequency_context_size,
        };
        // Ids are checked when the model is known.
        params
            .validate(usize::MAX)
            .map_err(|error| CliError::usage(&flag_of(error.field()), error.message()))?;
        let mode = match args.logprobs_mode.as_str() {
            "raw" => LogprobMode::Raw,
            "processed" => LogprobMode::Processed,
            "final" => LogprobMode::Final,
            other => {
                let message = format!("`{other}` is none of raw, processed and final");
                return Err(CliError::usage("--logprobs-mode", message));
            }
        };
        Ok(Self {
            logprobs: args.logprobs.map(|top| LogprobRequest { mode, top }),
            constraint: constraint(&args.constraint)?,
            params,
            args: args.clone(),
        })
    }

    /// The row that continues `prompt`.
    pub(super) fn spec(&self, model: &Loaded, prompt: Vec<TokenId>) -> Result<RowSpec, CliError> {
        let vocab = Arc::clone(model.tokenizer.vocabulary());
        let constraint = match &self.constraint {
            Some(fsa) => {
                let coerced = Coerced::new(Arc::new(fsa.clone()), Arc::clone(&vocab))?;
                Some(control::constraint(&coerced)?)
            }
            None => None,
        };
        let args = &self.args;
        Ok(RowSpec {
            params: self.params.clone(),
            seed: args.seed,
            max_tokens: args.max_tokens,
            min_tokens: args.min_tokens,
            ignore_eos: args.ignore_eos,
            stop_token_ids: args.stop_token_ids.iter().copied().map(TokenId).collect(),
            stop: args.stop.clone(),
            include_stop_str_in_output: args.include_stop_str_in_output,
            logprobs: self.logprobs,
            constraint,
            ..RowSpec::new(vocab, prompt)
        })
    }
}

/// Puts the value of a field where its flag would put it; false if it is no setting.
pub(super) fn set(args: &mut SettingsArgs, field: &str, value: &Value) -> Result<bool, CliError> {
    match field {
        "regex" => args.constraint.regex = texts(field, value)?,
        "choice" => args.constraint.choice = some_texts(field, value)?,
        "temperature" => args.temperature = number(field, value)?,
        "temperature_first" => args.temperature_first = flag(field, value)?,
        "top_p" => args.top_p = number(field, value)?,
        "top_k" => args.top_k = integer(field, value)?,
        "min_p" => args.min_p = number(field, value)?,
        "min_tokens_to_keep" => args.min_tokens_to_keep = integer(field, value)?,
        "xtc_probability" => args.xtc_probability = number(field, value)?,
        "xtc_threshold" => args.xtc_threshold = number(field, value)?,
        "draw_method" => args.draw_method = text(field, value)?,
        "logit_bias" => args.logit_bias = biases(field, value)?,
        "repetition_penalty" => args.repetition_penalty = number(field, value)?,
        "repetition_context_size" => args.repetition_context_size = integer(field, value)?,
        "presence_penalty" => args.presence_penalty = number(field, value)?,
        "presence_context_size" => args.presence_context_size = integer(field, value)?,
        "frequency_penalty" => args.frequency_penalty = number(field, value)?,
        "frequency_context_size" => args.frequency_context_size = integer(field, value)?,
        "seed" => args.seed = Some(whole(field, value)?),
        "max_tokens" => args.max_tokens = size(field, value)?,
        "min_tokens" => args.min_tokens = size(field, value)?,
        "ignore_eos" => args.ignore_eos = flag(field, value)?,
        "stop" => args.stop = texts(field, value)?,
        "stop_token_ids" => args.stop_token_ids = ids(field, value)?,
        "include_stop_str_in_output" => args.include_stop_str_in_output = flag(field, value)?,
        "logprobs" => args.logprobs = Some(size(field, value)?),
        "logprobs_mode" => args.logprobs_mode = text(field, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A refusal by the engine: of a line's row or of the only one.
pub(super) fn refused(error: &EngineError) -> CliError {
    match error {
        EngineError::Request { field, message, .. } => CliError::usage(&flag_of(field), message),
        error => CliError::failed(error),
    }
}

/// The flag of a field.
fn flag_of(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}

fn integer(field: &str, value: &Value) -> Result<i64, CliError> {
    value.as_i64().ok_or_else(|| wrong(field, value, "a whole number"))
}

fn ids(field: &str, value: &Value) -> Result<Vec<u32>, CliError> {
    let expected = "a list of token ids";
    let values = value.as_array().ok_or_else(|| wrong(field, value, expected))?;
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    values.iter().map(|value| id(value).ok_or_else(|| wrong(field, value, expected))).collect()
}

/// An object of biases by id, as the flag writes them.
fn biases(field: &str, value: &Value) -> Result<Vec<String>, CliError> {
    let expected = "an object of biases by token id, such as {\"42\": -1.5}";
    let biases = value.as_object().ok_or_else(|| wrong(field, value, expected))?;
    let by_id = |(id, bias): (&String, &Value)| match id.parse::<u32>() {
        Ok(id) => Ok(format!("{id}={}", number(field, bias)?)),
        Err(_) => Err(wrong(field, value, expected)),
    };
    biases.iter().map(by_id).collect()
}

/// `ID=BIAS`.
fn biased(text: &str) -> Result<(TokenId, f64), CliError> {
    let parts = text
        .split_once('=')
        .and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)));
    parts
        .map(|(id, bias)| (TokenId(id), bias))
        .ok_or_else(|| CliError::usage("--logit-bias", format!("`{text}` is not ID=BIAS, such as 42=-1.5")))
}
