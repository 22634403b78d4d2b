//! The seam between the engine and whatever computes logits.
//!
//! A [`Model`] holds sequences (token histories with their KV memory) under ids that the engine
//! chooses, and turns a batch of (sequence, new tokens, wanted positions) into tiles of logit rows.
//!
//! Invariant asked of an implementation that claims [`Capabilities::batch_invariant`]: the logits
//! of a position depend on the tokens of its sequence up to there, and on nothing else; they are
//! equal bit for bit whatever shares the batch, however the tokens were cut into forwards, and
//! at any thread count.

use std::fmt;

use lockstep_sample::TokenId;

/// A sequence held by a model. The engine numbers them and never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeqId(pub u64);

/// Which of an item's positions need their logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the tokens only enter the sequence's memory.
    None,
    /// The last position, as decoding does.
    Last,
    /// Every position, as scoring a prompt does.
    All,
}

impl Wanted {
    /// How many logit rows an item of `n_tokens` tokens produces.
    #[must_use]
    pub const fn rows(self, n_tokens: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Last => 1,
            Self::All => n_tokens,
        }
    }
}

/// One sequence's share of a forward: its next tokens, at least one.
#[derive(Clone, Copy, Debug)]
pub struct BatchItem<'a> {
    /// The sequence that the tokens extend. A sequence occurs at most once in a batch.
    pub seq: SeqId,
    /// The tokens to append, in order.
    pub tokens: &'a [TokenId],
    /// The positions among them whose logits are wanted.
    pub wanted: Wanted,
}

/// Where a forward's logits go: tiles of rows, in item order, then position order.
pub trait LogitsSink {
    /// The most rows one tile may hold.
    fn tile_rows(&self) -> usize;

    /// Takes the next `rows` rows. `fill` is called once with a row-major `[rows, vocab_size]`
    /// buffer (contents unspecified) and writes all of it.
    fn tile(&mut self, rows: usize, fill: &mut dyn FnMut(&mut [f32]));
}

/// What a model can do. Samplers refuse what it cannot.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Entries of a logit row, padding included.
    pub vocab_size: usize,
    /// The longest sequence, in tokens.
    pub context_length: usize,
    /// The most tokens one forward takes, over all items.
    pub max_batch_tokens: usize,
    /// The most sequences held at once.
    pub max_sequences: usize,
    /// Whether a row's logits are bit-equal in any batch, chunking and thread count.
    pub batch_invariant: bool,
    /// Whether a sequence can be cut to fewer tokens ([`Model::truncate`]).
    pub truncates: bool,
    /// KV bytes a sequence of its own takes for each token.
    pub kv_bytes_per_token: usize,
    /// Tokens that KV memory is given out for at once.
    pub kv_page_tokens: usize,
}

impl Capabilities {
    /// KV bytes that a sequence of `tokens` tokens takes.
    #[must_use]
    pub fn kv_bytes(&self, tokens: usize) -> usize {
        tokens.next_multiple_of(self.kv_page_tokens.max(1)).saturating_mul(self.kv_bytes_per_token)
    }

    /// KV bytes of them that a fork keeps sharing once it grows: those of whole pages.
    #[must_use]
    pub fn shared_kv_bytes(&self, tokens: usize) -> usize {
        (tokens - tokens % self.kv_page_tokens.max(1)).saturating_mul(self.kv_bytes_per_token)
    }
}

/// A batched language model that keeps the state of its sequences.
pub trait Model: Send {
    /// What this model can do.
    fn capabilities(&self) -> &Capabilities;

    /// Opens an empty sequence under `seq`, which is not in use.
    ///
    /// # Errors
    /// If the model holds no more sequences, or knows no adapter of that name.
    fn open(&mut self, seq: SeqId, adapter: Option<&str>) -> Result<(), ModelError>;

    /// Makes `child` (not in use) a copy of `parent`, adapter included, sharing its memory until
    /// one of the two changes. Constant time, whatever the length.
    ///
    /// # Errors
    /// If `parent` is not held.
    fn fork(&mut self, parent: SeqId, child: SeqId) -> Result<(), ModelError>;

    /// Cuts `seq` to its first `len` tokens; longer than it is leaves it alone.
    ///
    /// # Errors
    /// If `seq` is not held, or this model cannot ([`Capabilities::truncates`]).
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ModelError>;

    /// Forgets `seq` and gives back what only it used. Unknown ids are ignored.
    fn free(&mut self, seq: SeqId);

    /// Tokens that `seq` holds, if it is held.
    fn len(&self, seq: SeqId) -> Option<usize>;

    /// Runs one batch and hands every wanted row to `sink`.
    ///
    /// The model checks everything before it changes any sequence.
    ///
    /// # Errors
    /// See [`ModelErrorKind`]; after an error that is not fatal, the sequences of the batch are as
    /// they were before it.
    fn forward(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn LogitsSink) -> Result<(), ModelError>;
}

/// What went wrong in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The caller asked for something this model does not have or cannot do.
    Unsupported,
    /// A batch or a sequence is over one of the model's limits.
    Limit,
    /// An id is unknown or used twice.
    Sequence,
    /// A token id is outside the vocabulary.
    Token,
    /// The model cannot go on at all.
    Fatal,
}

/// An error of a model.
#[derive(Clone, Debug)]
pub struct ModelError {
    kind: ModelErrorKind,
    message: String,
}

impl ModelError {
    /// An error of `kind`; `message` says what to do, in lower case without a full stop.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ModelError {}
