//! What the integration tests share: the default model's file, and a sink that keeps rows.
#![allow(dead_code)] // each test binary uses its part

use std::env;
use std::path::PathBuf;

use lockstep_engine::TokenId;
use lockstep_engine::model::{BatchItem, LogitsSink, Model, SeqId, Wanted};
use lockstep_native::gguf::Gguf;
use lockstep_native::{NativeModel, NativeOptions};

/// The default model, from `LOCKSTEP_MODEL` or the cache that `make model` fills.
pub(crate) fn default_model(threads: usize) -> NativeModel {
    let path = env::var_os("LOCKSTEP_MODEL").map_or_else(cached, PathBuf::from);
    assert!(path.exists(), "{} is missing: run `make model`", path.display());
    let gguf = Gguf::open(&path).unwrap();
    NativeModel::load(&gguf, NativeOptions::default().threads(threads)).unwrap()
}

fn cached() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").expect("a home folder")).join(".cache"),
        PathBuf::from,
    );
    cache.join("lockstep/models/smollm2-135m.gguf")
}

/// Keeps all rows.
pub(crate) struct Rows {
    pub(crate) vocab: usize,
    pub(crate) tile_rows: usize,
    pub(crate) data: Vec<f32>,
}

impl Rows {
    pub(crate) fn new(model: &NativeModel) -> Self {
        Self { vocab: model.capabilities().vocab_size, tile_rows: 64, data: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len() / self.vocab
    }

    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.vocab..(index + 1) * self.vocab]
    }

    pub(crate) fn bits(&self) -> Vec<u32> {
        self.data.iter().map(|x| x.to_bits()).collect()
    }
}

impl LogitsSink for Rows {
    fn tile_rows(&self) -> usize {
        self.tile_rows
    }

    fn tile(&mut self, rows: usize, fill: &mut dyn FnMut(&mut [f32])) {
        assert!(rows <= self.tile_rows);
        let begin = self.data.len();
        self.data.resize(begin + rows * self.vocab, f32::NAN);
        fill(&mut self.data[begin..]);
    }
}

pub(crate) fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// Appends `ids` to a sequence, `chunk` tokens a forward, and returns the rows of all positions.
pub(crate) fn feed(model: &mut NativeModel, seq: SeqId, ids: &[u32], chunk: usize) -> Rows {
    let mut rows = Rows::new(model);
    for part in tokens(ids).chunks(chunk) {
        model.forward(&[BatchItem { seq, tokens: part, wanted: Wanted::All }], &mut rows).unwrap();
    }
    rows
}
