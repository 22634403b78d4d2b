//! Text that may come from standard input.

use std::fmt;
use std::io::{self, Read};

use crate::error::CliError;

/// `text`, or all of standard input if it is `-`.
pub(crate) fn text(flag: &str, text: &str) -> Result<String, CliError> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = Vec::new();
    let read = io::stdin().read_to_end(&mut read).map(|_| read);
    decoded(flag, "standard input", read)
}

/// The text of the file at `path`, or all of standard input if it is `-`.
pub(crate) fn file(flag: &str, path: &str) -> Result<String, CliError> {
    if path == "-" {
        return text(flag, path);
    }
    decoded(flag, path, std::fs::read(path))
}

/// The text that was read from `source`.
fn decoded(flag: &str, source: impl fmt::Display, read: io::Result<Vec<u8>>) -> Result<String, CliError> {
    let bytes = read.map_err(|error| CliError::failed(format!("{flag}: {source}: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        CliError::failed(format!("{flag}: {source}: line {line} is not UTF-8: convert it to UTF-8"))
    })
}
