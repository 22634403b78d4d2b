//! The lines of a file that asks for things.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::{fields, wrong};
use crate::error::CliError;

/// A line that is not blank: a JSON object. `id` names its result and is the line's number by default.
pub(crate) struct Line<T> {
    /// Its number, from 1.
    pub(crate) number: usize,
    /// What its result is found by: a string or a whole number.
    pub(crate) id: Value,
    /// What it asks for, or what is wrong with it.
    pub(crate) asked: Result<T, CliError>,
}

/// The lines of `text`, whose fields but the id `read` makes sense of. `flag` names the file.
///
/// # Errors
/// If two lines have one id, or there is no line at all.
pub(crate) fn lines<T>(
    flag: &str,
    text: &str,
    read: impl Fn(&Map<String, Value>) -> Result<T, CliError>,
) -> Result<Vec<Line<T>>, CliError> {
    let mut lines: Vec<Line<T>> = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let mut id = Value::from(number);
        let asked = fields(line).and_then(|mut fields| {
            match fields.remove("id") {
                None => {}
                Some(given) if given.is_string() || given.is_u64() => id = given,
                Some(given) => return Err(wrong("id", &given, "a string or a whole number")),
            }
            read(&fields)
        });
        if let Some(earlier) = seen.insert(id.to_string(), number) {
            let message = format!(
                "lines {earlier} and {number} have the id {id}: ids must differ, since results are told apart by them"
            );
            return Err(CliError::usage(flag, message));
        }
        lines.push(Line { number, id, asked });
    }
    if lines.is_empty() {
        return Err(CliError::usage(flag, "there is no line in it"));
    }
    Ok(lines)
}

/// The result of a line that cannot be done, or failed.
pub(crate) fn failure(id: &Value, number: usize, error: &CliError) -> Value {
    json!({ "id": id, "line": number, "error": error.in_file() })
}
