//! A scripted model: logits are a given function of the token history.
//!
//! It is exact, so whole runs can be checked against enumeration, and it notes what it was asked.
//! Its state can be that of other architectures too: one that cannot be cut ([`ScriptedModel::recurrent`]),
//! or one that forgets ([`ScriptedModel::sliding_window`]). And its calls can fail
//! ([`ScriptedModel::faults`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lockstep_sample::{EosSet, TokenId};

use crate::model::{BatchItem, Capabilities, LogitsSink, Model, ModelError, ModelErrorKind, SeqId, Wanted};
use crate::vocab::{TokenEntry, Vocabulary};

type Script = dyn Fn(&[TokenId]) -> Vec<f32> + Send;
type Faults = dyn FnMut(Call) -> Result<(), ModelError> + Send;

/// A call of a [`ScriptedModel`] that may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The forward of this number, from 1, failed ones included.
    Forward(u64),
    /// A sequence is freed.
    Free,
}

/// A model whose logits are a given function of the whole token history.
pub struct ScriptedModel {
    capabilities: Capabilities,
    script: Box<Script>,
    sequences: BTreeMap<SeqId, Vec<TokenId>>,
    window: usize,
    faults: Box<Faults>,
    /// Forwards, failed ones included.
    calls: u64,
    log: Arc<ForwardLog>,
}

/// What a [`ScriptedModel`] was asked, readable from any thread.
#[derive(Debug, Default)]
pub struct ForwardLog {
    forwards: AtomicU64,
    tokens: Mutex<Vec<Vec<usize>>>,
    held: AtomicU64,
    most_held_tokens: AtomicU64,
}

impl ForwardLog {
    /// Forwards so far.
    #[must_use]
    pub fn forwards(&self) -> u64 {
        self.forwards.load(Ordering::SeqCst)
    }

    /// Sequences held at the moment.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// The most tokens that all sequences together held after any forward, shared ones counted
    /// for each.
    #[must_use]
    pub fn most_held_tokens(&self) -> u64 {
        self.most_held_tokens.load(Ordering::SeqCst)
    }

    /// Rows of each forward so far.
    #[must_use]
    pub fn rows(&self) -> Vec<usize> {
        self.tokens().iter().map(Vec::len).collect()
    }

    /// Tokens of each row of each forward so far.
    #[must_use]
    pub fn tokens(&self) -> Vec<Vec<usize>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ScriptedModel {
    /// A model of `vocab_size` logits; `script` maps a token history (never empty) to them.
    #[must_use]
    pub fn new(vocab_size: usize, script: impl Fn(&[TokenId]) -> Vec<f32> + Send + 'static) -> Self {
        Self {
            capabilities: Capabilities {
                vocab_size,
                context_length: 1 << 16,
                max_batch_tokens: 1 << 16,
                max_sequences: usize::MAX,
                batch_invariant: true,
                truncates: true,
                kv_bytes_per_token: 1,
                kv_page_tokens: 1,
            },
            script: Box::new(script),
            sequences: BTreeMap::new(),
            window: usize::MAX,
            faults: Box::new(|_| Ok(())),
            calls: 0,
            log: Arc::default(),
        }
    }

    /// Limits a forward to `tokens` tokens.
    #[must_use]
    pub fn max_batch_tokens(mut self, tokens: usize) -> Self {
        self.capabilities.max_batch_tokens = tokens;
        self
    }

    /// A state that cannot be cut, as of a recurrent network.
    #[must_use]
    pub fn recurrent(mut self) -> Self {
        self.capabilities.truncates = false;
        self
    }

    /// A state that keeps the last `tokens` tokens alone: the script sees no others, and what was
    /// overwritten cannot be cut back to.
    #[must_use]
    pub fn sliding_window(mut self, tokens: usize) -> Self {
        self.window = tokens;
        self.recurrent()
    }

    /// Asks `faults` before every such call: it may fail the call, which then changes nothing, or
    /// panic. Freeing cannot fail, only panic.
    #[must_use]
    pub fn faults(mut self, faults: impl FnMut(Call) -> Result<(), ModelError> + Send + 'static) -> Self {
        self.faults = Box::new(faults);
        self
    }

    /// Fails the forwards of these numbers, from 1, with "no room".
    #[must_use]
    pub fn fails_at(self, forwards: impl IntoIterator<Item = u64>, kind: ModelErrorKind) -> Self {
        let forwards: Vec<u64> = forwards.into_iter().collect();
        self.faults(move |call| match call {
            Call::Forward(number) if forwards.contains(&number) => Err(ModelError::new(kind, "no room")),
            _ => Ok(()),
        })
    }

    /// The counters, to keep when the model moves to its engine.
    #[must_use]
    pub fn log(&self) -> Arc<ForwardLog> {
        Arc::clone(&self.log)
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

fn unknown(seq: SeqId) -> ModelError {
    ModelError::new(ModelErrorKind::Sequence, format!("sequence {} is not held", seq.0))
}

impl Model for ScriptedModel {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&mut self, seq: SeqId, adapter: Option<&str>) -> Result<(), ModelError> {
        if let Some(name) = adapter {
            return Err(ModelError::new(ModelErrorKind::Unsupported, format!("no adapter `{name}`")));
        }
        self.sequences.insert(seq, Vec::new());
        self.log.held.store(self.sequences.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn fork(&mut self, parent: SeqId, child: SeqId) -> Result<(), ModelError> {
        let tokens = self.sequences.get(&parent).ok_or_else(|| unknown(parent))?.clone();
        self.sequences.insert(child, tokens);
        self.log.held.store(self.sequences.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ModelError> {
        if !self.capabilities.truncates {
            return Err(ModelError::new(ModelErrorKind::Unsupported, "its state cannot be cut"));
        }
        self.sequences.get_mut(&seq).ok_or_else(|| unknown(seq))?.truncate(len);
        Ok(())
    }

    fn free(&mut self, seq: SeqId) {
        let _ = (self.faults)(Call::Free);
        self.sequences.remove(&seq);
        self.log.held.store(self.sequences.len() as u64, Ordering::SeqCst);
    }

    fn len(&self, seq: SeqId) -> Option<usize> {
        self.sequences.get(&seq).map(Vec::len)
    }

    fn forward(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn LogitsSink) -> Result<(), ModelError> {
        self.calls += 1;
        (self.faults)(Call::Forward(self.calls))?;
        let mut wanted = Vec::new();
        for item in batch {
            let tokens = self.sequences.get_mut(&item.seq).ok_or_else(|| unknown(item.seq))?;
            for (i, token) in item.tokens.iter().enumerate() {
                tokens.push(*token);
                if item.wanted == Wanted::All || (item.wanted == Wanted::Last && i + 1 == item.tokens.len()) {
                    wanted.push((self.script)(&tokens[tokens.len().saturating_sub(self.window)..]));
                }
            }
        }
        self.log.forwards.fetch_add(1, Ordering::SeqCst);
        let tokens = batch.iter().map(|item| item.tokens.len()).collect();
        self.log.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(tokens);
        let held: usize = self.sequences.values().map(Vec::len).sum();
        self.log.most_held_tokens.fetch_max(held as u64, Ordering::SeqCst);
        let mut rest = wanted.as_slice();
        while !rest.is_empty() {
            let (tile, later) = rest.split_at(sink.tile_rows().min(rest.len()));
            sink.tile(tile.len(), &mut |out| out.copy_from_slice(&tile.concat()));
            rest = later;
        }
        Ok(())
    }
}

/// A vocabulary whose tokens are the given texts, with `eos` as its end-of-sequence ids (their
/// texts are special).
///
/// # Panics
/// If the texts are no vocabulary (none of them, say): this is for tests.
#[must_use]
pub fn vocabulary(texts: &[&str], eos: &[u32]) -> Arc<Vocabulary> {
    let tokens = texts
        .iter()
        .zip(0..)
        .map(|(text, id)| TokenEntry { bytes: text.as_bytes().to_vec(), special: eos.contains(&id) })
        .collect();
    Vocabulary::new(tokens, EosSet::new(eos.iter().copied())).expect("the texts are a vocabulary")
}
