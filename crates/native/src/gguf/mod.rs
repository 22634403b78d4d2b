//! A memory-mapped reader of GGUF files (versions 2 and 3, little-endian).
//!
//! ```text
//! "GGUF"  version u32  tensor count u64  key count u64
//! keys:    name, type u32, value          strings: length u64, UTF-8 bytes
//! tensors: name, dims u32, ne0.. u64, type u32, offset u64
//! padding to `general.alignment`, then the tensors' data, each at its offset
//! ```
//!
//! Invariant: a file is untrusted. Every length, count and offset is checked against the bytes that
//! the file really has before anything is allocated or sliced, so a wrong file is an error of one
//! line, never a panic, and the metadata takes at most a small multiple of the file's size. A
//! [`Gguf`] that opened gives exactly the bytes that a tensor's type and shape need.

mod error;
mod header;
mod lookup;
mod read;
mod tensor;
mod tokenizer;
mod value;

#[cfg(test)]
mod test_file;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

pub use error::GgufError;
pub use tensor::{Tensor, TensorInfo, TensorType};
pub use tokenizer::{chat_template, tokenizer_spec};
pub use value::{Array, Value};

use error::Problem;
use header::Header;

/// An open GGUF file: its metadata, decoded, and its tensors, mapped.
///
/// The file is mapped, not read: pages come in when a tensor is first touched, and processes that
/// open the same file share them. **Do not change or shorten the file while it is open**: its
/// tensors would change, or reading them would end the process. Replace a model by writing a new
/// file and renaming it.
pub struct Gguf {
    path: PathBuf,
    map: Mmap,
    header: Header,
}

impl Gguf {
    /// Maps `path` and checks all of its metadata and every tensor's place.
    ///
    /// # Errors
    /// If the file cannot be read, is no GGUF file of a supported version, is shorter than it says,
    /// or contradicts itself. The message begins with the path.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let fail = |problem| GgufError::new(path, problem);
        let map = map_file(path).map_err(fail)?;
        let header = Header::parse(&map).map_err(fail)?;
        Ok(Self { path: path.to_owned(), map, header })
    }

    /// The path that the file was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says of its tensors, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.header.tensors.iter()
    }

    /// The tensor called `name`, with its data.
    ///
    /// # Errors
    /// If there is none, or it is of a type that this reader cannot size.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, GgufError> {
        let found = self.header.tensor(name, &self.map);
        found.map_err(|problem| GgufError::new(&self.path, problem))
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("path", &self.path)
            .field("bytes", &self.map.len())
            .field("keys", &self.header.values.len())
            .field("tensors", &self.header.tensors.len())
            .finish()
    }
}

fn map_file(path: &Path) -> Result<Mmap, Problem> {
    // Asked before opening, because opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(Problem::NotAFile);
    }
    let file = File::open(path)?;
    // A mapping of no bytes is an error on some systems; this one reads better.
    if file.metadata()?.len() == 0 {
        return Err(Problem::NotGguf { begin: String::new() });
    }
    // SAFETY: the mapping is read-only and private to this value. What Rust cannot promise is that no
    // other process changes the file meanwhile; the documentation of `Gguf` makes that the caller's duty.
    #[allow(unsafe_code)]
    let map = unsafe { Mmap::map(&file) }?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::test_file::sample;
    use super::*;

    fn file_with(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn an_open_file_gives_its_values_and_tensors() {
        let file = file_with(&sample());
        let gguf = Gguf::open(file.path()).unwrap();
        assert_eq!(gguf.path(), file.path());
        assert_eq!(gguf.str("general.architecture").unwrap(), "llama");
        let tensor = gguf.tensor("blk.0.attn_q.weight").unwrap();
        assert_eq!((tensor.name, tensor.shape), ("blk.0.attn_q.weight", &[64, 3][..]));
        assert_eq!((tensor.ty, tensor.data.len()), (TensorType::Q4_1, 2 * 3 * 20));
        assert_eq!(tensor.data.as_ptr().align_offset(8), 0);
        assert_eq!(gguf.tensors().count(), 3);
    }

    #[test]
    fn every_error_of_a_file_begins_with_its_path() {
        let file = file_with(b"# A read-me\n\nof a model\n");
        let path = file.path().display().to_string();
        assert_eq!(
            Gguf::open(file.path()).unwrap_err().to_string(),
            format!("{path}: not a GGUF file (it begins with \"# A read-me\\n\\nof \")")
        );
        let empty = file_with(b"");
        assert!(Gguf::open(empty.path()).unwrap_err().to_string().ends_with("not a GGUF file (it is empty)"));
        let folder = tempfile::tempdir().unwrap();
        let error = Gguf::open(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("not a regular file"), "{error}");
        let missing = folder.path().join("none.gguf");
        let error = Gguf::open(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", missing.display())) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_shortened_file_names_the_tensor_and_its_bytes() {
        let mut bytes = sample();
        let full = bytes.len();
        bytes.truncate(full - 1);
        let file = file_with(&bytes);
        let error = Gguf::open(file.path()).unwrap_err().to_string();
        let want = format!(
            "{}: truncated: tensor `output_norm.weight` needs bytes {}..{full} but the file has {}",
            file.path().display(),
            full - 16,
            full - 1
        );
        assert_eq!(error, want);
    }
}
