//! Standard output.

use std::fmt;
use std::io::{self, Write};

use crate::error::CliError;

/// Writes `text` and the end of the line.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| CliError::unwritable("the result", &error))
}
