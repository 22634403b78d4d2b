//! What can be wrong with a GGUF file.

use std::fmt;
use std::path::{Path, PathBuf};

use super::TensorType;

/// An error of a GGUF file: one line that begins with the file's path.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct GgufError {
    path: PathBuf,
    // No `#[source]`: the problem is part of this message, and a chain would print it twice.
    problem: Box<Problem>,
}

impl GgufError {
    pub(super) fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem: Box::new(problem) }
    }

    /// The file that the error is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The same without the path, for the code that sees only bytes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("not a regular file")]
    NotAFile,
    #[error("not a GGUF file (it {})", if .begin.is_empty() { "is empty".into() } else { format!("begins with \"{begin}\"") })]
    NotGguf { begin: String },
    #[error("GGUF version {0} is not supported, only 2 and 3: convert the model again")]
    Version(u32),
    #[error("a big-endian GGUF file is not supported: convert the model again without --bigendian")]
    BigEndian,
    #[error("truncated: {what} needs bytes {start}..{end} but the file has {len}")]
    Truncated { what: String, start: u128, end: u128, len: usize },
    #[error("{what} is not valid UTF-8")]
    Utf8 { what: String },
    #[error("{what} has the unknown value type {ty}")]
    ValueType { what: String, ty: u32 },
    #[error("{what} is the bool {byte}, neither 0 nor 1")]
    Bool { what: String, byte: u8 },
    #[error("{what} nests arrays deeper than {limit}")]
    Nesting { what: String, limit: usize },
    #[error("{what} occurs twice")]
    Duplicate { what: String },
    #[error("general.alignment is {0}, not a power of two of at least 8")]
    Alignment(u64),
    #[error("{what} has {dims} dimensions, not 1 to {limit}")]
    Dims { what: String, dims: u32, limit: usize },
    #[error("{what} has the impossible shape {}", Shape(shape))]
    Shape { what: String, shape: Vec<u64> },
    #[error("{what} is {ty} with rows of {row} values, not a multiple of its block of {block}")]
    Row { what: String, ty: TensorType, row: usize, block: usize },
    #[error("{what} lies at offset {offset}, not a multiple of general.alignment {alignment}")]
    Offset { what: String, offset: u64, alignment: usize },
    #[error("the key {} is missing", Quoted(.0))]
    NoKey(String),
    #[error("the key {} is {has}, not {want}", Quoted(key))]
    KeyType { key: String, has: String, want: &'static str },
    #[error("the tensor {} is missing", Quoted(.0))]
    NoTensor(String),
    #[error("the tensor {} is of type {ty}, which is not supported", Quoted(name))]
    TensorType { name: String, ty: TensorType },
}

/// A name out of a file, in back quotes, on one line and of bounded length.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS: usize = 80;
        let shown = self.0.char_indices().nth(CHARS).map_or(self.0, |(end, _)| &self.0[..end]);
        let more = if shown.len() < self.0.len() { "…" } else { "" };
        write!(f, "`{}{more}`", shown.escape_debug())
    }
}

struct Shape<'a>(&'a [u64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, ne) in self.0.iter().enumerate() {
            write!(f, "{}{ne}", if i == 0 { "" } else { " x " })?;
        }
        Ok(())
    }
}
