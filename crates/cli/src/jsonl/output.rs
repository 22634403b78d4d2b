//! Results: whole lines, one for each line that was asked for, and what is there already.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::Value;

use crate::error::CliError;

/// Where results go.
pub(crate) struct Output {
    to: Box<dyn Write + Send>,
    /// The ids of the results that were there before.
    done: BTreeSet<String>,
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Self { to: Box::new(io::stdout()), done: BTreeSet::new() }
    }

    /// The file at `path`, which must not be `input`, what the lines were read from. To `resume` is to keep its whole lines and drop a half-written last
    /// one; otherwise it must be new or empty, since results take long to make.
    ///
    /// # Errors
    /// If it cannot be opened, has results that nobody asked to keep, or lines that are no results.
    pub(crate) fn file(path: &Path, resume: bool, input: &str) -> Result<Self, CliError> {
        if path.canonicalize().is_ok_and(|path| Path::new(input).canonicalize().is_ok_and(|i| i == path)) {
            let message = format!("{} is the file that asks: name another for the results", path.display());
            return Err(CliError::usage("--out", message));
        }
        let failed = |error: io::Error| CliError::failed(format!("--out: {}: {error}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        if !resume && !text.is_empty() {
            let message =
                format!("{} holds something: add --resume to go on with it, or remove it", path.display());
            return Err(CliError::usage("--out", message));
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut done = BTreeSet::new();
        for (number, line) in (1..).zip(text[..whole].split_inclusive(|byte| *byte == b'\n')) {
            let id = serde_json::from_slice::<Value>(line).ok().and_then(|result| result.get("id").cloned());
            let Some(id) = id else {
                let message = format!("{}: line {number} is no result", path.display());
                return Err(CliError::usage("--out", message));
            };
            done.insert(id.to_string());
        }
        cut(&mut file, whole).map_err(failed)?;
        Ok(Self { to: Box::new(file), done })
    }

    /// Whether the result of `id` was there before.
    pub(crate) fn has(&self, id: &Value) -> bool {
        self.done.contains(&id.to_string())
    }

    /// Adds a result, in one write, so that an end at any time leaves whole lines.
    pub(crate) fn add(&mut self, result: &Value) -> Result<(), CliError> {
        let line = format!("{result}\n");
        self.to
            .write_all(line.as_bytes())
            .and_then(|()| self.to.flush())
            .map_err(|error| CliError::unwritable("a result", &error))
    }
}

/// Ends `file` after `len` bytes, where writing goes on.
fn cut(file: &mut File, len: usize) -> io::Result<()> {
    file.set_len(len as u64)?;
    file.seek(SeekFrom::Start(len as u64)).map(|_| ())
}
