//! Text that may come from standard input.

use std::io::Read;

use crate::error::CliError;

/// `text`, or all of standard input if it is `-`.
pub(crate) fn text(flag: &str, text: &str) -> Result<String, CliError> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    std::io::stdin()
        .read_to_string(&mut read)
        .map_err(|error| CliError::failed(format!("{flag}: standard input cannot be read: {error}")))?;
    Ok(read)
}

/// The text of the file at `path`, or all of standard input if it is `-`.
pub(crate) fn file(flag: &str, path: &str) -> Result<String, CliError> {
    if path == "-" {
        return text(flag, path);
    }
    std::fs::read_to_string(path).map_err(|error| CliError::failed(format!("{flag}: {path}: {error}")))
}
