//! Where records go.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Record, StepRecord};

/// The end of the list in the file: the next step is written over it.
const CLOSE: &[u8] = b"\n]\n";

/// A file with one JSON list, a step an entry. It is a whole list after every step; what cannot be
/// written over, such as a pipe, is one once this is dropped.
#[derive(Debug)]
pub struct JsonRecord {
    file: File,
    path: PathBuf,
    empty: bool,
    /// Whether the list has its end all the time.
    seekable: bool,
}

impl JsonRecord {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let mut file = File::create(&path)?;
        let seekable = file.stream_position().is_ok();
        file.write_all(b"[")?;
        if seekable {
            file.write_all(CLOSE)?;
        }
        tracing::info!(path = %path.display(), "recording the run");
        Ok(Self { file, path, empty: true, seekable })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Record for JsonRecord {
    fn write(&mut self, step: &StepRecord) -> io::Result<()> {
        // One write over the old end, so that there is hardly a moment without an end.
        let mut text: Vec<u8> = if self.empty { b"\n".to_vec() } else { b",\n".to_vec() };
        serde_json::to_writer(&mut text, step)?;
        if self.seekable {
            text.extend(CLOSE);
            self.file.seek(SeekFrom::End(-(CLOSE.len() as i64)))?;
        }
        self.file.write_all(&text)?;
        self.empty = false;
        Ok(())
    }
}

impl Drop for JsonRecord {
    fn drop(&mut self) {
        if !self.seekable
            && let Err(error) = self.file.write_all(CLOSE)
        {
            tracing::warn!(path = %self.path.display(), %error, "the record has no end");
        }
    }
}

/// One JSON object a line, a line a step, to any writer.
#[derive(Debug)]
pub struct JsonLinesRecord<W> {
    writer: W,
}

impl<W: Write> JsonLinesRecord<W> {
    /// Lines to `writer`, flushed after each.
    #[must_use]
    pub fn new(writer: W) -> Self {
        Self { writer }
    }
}

impl<W: Write + Send> Record for JsonLinesRecord<W> {
    fn write(&mut self, step: &StepRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        self.writer.write_all(&line)?;
        self.writer.flush()
    }
}

/// The steps in memory. Clones are the same record: keep one and give the run another.
#[derive(Clone, Debug, Default)]
pub struct MemoryRecord {
    steps: Arc<Mutex<Vec<StepRecord>>>,
}

impl MemoryRecord {
    /// The steps so far.
    #[must_use]
    pub fn steps(&self) -> Vec<StepRecord> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Record for MemoryRecord {
    fn write(&mut self, step: &StepRecord) -> io::Result<()> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step.clone());
        Ok(())
    }
}
