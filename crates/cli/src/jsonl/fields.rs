//! The fields of a line, by the names of their flags.

use serde_json::{Map, Value};

use crate::error::CliError;

/// The fields of a line.
pub(crate) fn fields(line: &str) -> Result<Map<String, Value>, CliError> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(CliError::failed("a line is a JSON object")),
        Err(error) => Err(CliError::failed(not_json(&error))),
    }
}

/// What is wrong with a line, whose number the parser does not know.
fn not_json(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    format!("is not JSON: {message} at column {}", error.column())
}

pub(crate) fn text(field: &str, value: &Value) -> Result<String, CliError> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong(field, value, "a string"))
}

/// One string or a list of them.
pub(crate) fn texts(field: &str, value: &Value) -> Result<Vec<String>, CliError> {
    match value {
        Value::Array(values) => values.iter().map(|value| text(field, value)).collect(),
        _ => Ok(vec![text(field, value)?]),
    }
}

/// One string or a list of at least one.
pub(crate) fn some_texts(field: &str, value: &Value) -> Result<Vec<String>, CliError> {
    let texts = texts(field, value)?;
    if texts.is_empty() { Err(wrong(field, value, "a string or a list of strings")) } else { Ok(texts) }
}

pub(crate) fn number(field: &str, value: &Value) -> Result<f64, CliError> {
    value.as_f64().ok_or_else(|| wrong(field, value, "a number"))
}

pub(crate) fn whole(field: &str, value: &Value) -> Result<u64, CliError> {
    value.as_u64().ok_or_else(|| wrong(field, value, "a whole number of at least 0"))
}

pub(crate) fn size(field: &str, value: &Value) -> Result<usize, CliError> {
    let number = whole(field, value)?;
    usize::try_from(number).map_err(|_| wrong(field, value, "a smaller number"))
}

pub(crate) fn wrong(field: &str, value: &Value, expected: &str) -> CliError {
    CliError::usage(field, format!("{value} is not {expected}"))
}

pub(crate) fn flag(field: &str, value: &Value) -> Result<bool, CliError> {
    value.as_bool().ok_or_else(|| wrong(field, value, "true or false"))
}

/// A field that is none of `known`.
pub(crate) fn unknown(field: &str, known: &[&str]) -> CliError {
    CliError::usage(&format!("`{field}`"), format!("is no field of a line: use {}", known.join(", ")))
}
