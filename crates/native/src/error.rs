//! Why a model cannot be loaded.

use std::path::Path;

use crate::gguf::{GgufError, TensorType};
use crate::quant::PackError;

/// An error of loading a model: one line that begins with the file's path.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct LoadError(Box<Inner>);

#[derive(Debug, thiserror::Error)]
enum Inner {
    #[error(transparent)]
    Gguf(GgufError),
    #[error("{path}: {problem}")]
    Model { path: String, problem: Problem },
    #[error("cannot start {threads} threads: {source}")]
    Threads { threads: usize, source: rayon::ThreadPoolBuildError },
}

/// What is wrong with a well-formed file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("general.architecture is `{}`, and only `llama` is supported", short(.0))]
    Architecture(String),
    #[error("{key} is {value}, and {wants}")]
    Key { key: String, value: String, wants: String },
    #[error("the tensor `{0}` is missing")]
    Missing(String),
    #[error("the tensor `{}` is not part of a supported model", short(.0))]
    Unknown(String),
    #[error("the tensor `{name}` has the shape {shape:?}, not {want:?}")]
    Shape { name: String, shape: Vec<usize>, want: Vec<usize> },
    #[error("the tensor `{name}` is of type {ty}, and only {supported} are supported")]
    Type { name: String, ty: TensorType, supported: &'static str },
    #[error("the tensor `{0}` holds a scale that is not finite")]
    Scale(String),
}

impl LoadError {
    pub(crate) fn new(path: &Path, problem: Problem) -> Self {
        Self(Box::new(Inner::Model { path: path.display().to_string(), problem }))
    }

    pub(crate) fn threads(threads: usize, source: rayon::ThreadPoolBuildError) -> Self {
        Self(Box::new(Inner::Threads { threads, source }))
    }
}

impl From<GgufError> for LoadError {
    fn from(error: GgufError) -> Self {
        Self(Box::new(Inner::Gguf(error)))
    }
}

impl Problem {
    /// The problem of packing the tensor `name`.
    pub(crate) fn pack(name: &str, error: PackError) -> Self {
        match error {
            PackError::Type(ty) => Self::Type { name: name.to_owned(), ty, supported: "F32, Q4_1 and Q8_0" },
            PackError::Scale => Self::Scale(name.to_owned()),
        }
    }
}

/// A name out of a file, on one line and of bounded length.
fn short(name: &str) -> String {
    name.escape_debug().take(80).collect()
}
