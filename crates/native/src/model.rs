//! [`NativeModel`]: sequences and batches over a loaded network.

use std::collections::{HashMap, HashSet};
use std::fmt;

use lockstep_engine::model::{
    BatchItem, Capabilities, LogitsSink, Model, ModelError, ModelErrorKind, SeqId, Wanted,
};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::arch::llama::{Hyper, Llama, Row, Tensors, Workspace};
use crate::error::{LoadError, Problem};
use crate::gguf::Gguf;
use crate::kernels::Isa;
use crate::kv::{KvStore, PAGE, PageId, Sequence};

/// Tokens of one forward: enough to spread a weight's unpacking thin, few enough that the
/// activations stay in the outer cache.
const MAX_BATCH_TOKENS: usize = 512;

/// Sequences held at once. They cost a few words each; their pages are what memory goes to.
const MAX_SEQUENCES: usize = 1 << 16;

/// How to run a model.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NativeOptions {
    /// Threads that compute. Default: as many as the machine runs at once.
    pub threads: Option<usize>,
}

impl NativeOptions {
    /// The same with `threads` threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }
}

/// A Llama-family model on the CPU.
///
/// It holds its weights in memory, repacked; the file is not needed after loading.
pub struct NativeModel {
    net: Llama,
    capabilities: Capabilities,
    isa: Isa,
    pool: ThreadPool,
    kv: KvStore,
    sequences: HashMap<SeqId, Sequence>,
    work: Workspace,
}

impl NativeModel {
    /// Loads the model of an open file.
    ///
    /// # Errors
    /// If the architecture, a tensor's type or shape, or a hyperparameter is not supported; the
    /// message names it and what is supported. Also if the threads cannot be started.
    pub fn load(gguf: &Gguf, options: NativeOptions) -> Result<Self, LoadError> {
        let hyper = Hyper::read(gguf)?;
        let mut tensors = Tensors::new();
        for info in gguf.tensors() {
            tensors.insert(info.name.clone(), gguf.tensor(&info.name)?);
        }
        Self::from_tensors(hyper, tensors, options, |problem| LoadError::new(gguf.path(), problem))
    }

    pub(crate) fn from_tensors(
        hyper: Hyper,
        tensors: Tensors<'_>,
        options: NativeOptions,
        fail: impl Fn(Problem) -> LoadError,
    ) -> Result<Self, LoadError> {
        let threads = options
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |threads| threads.get()))
            .max(1);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("native-{index}"))
            .build()
            .map_err(|source| LoadError::threads(threads, source))?;
        let net = pool.install(|| Llama::load(hyper, tensors)).map_err(fail)?;
        let capabilities = Capabilities {
            vocab_size: net.vocab(),
            context_length: hyper.context,
            max_batch_tokens: MAX_BATCH_TOKENS,
            max_sequences: MAX_SEQUENCES,
            batch_invariant: true,
            truncates: true,
            kv_bytes_per_token: hyper.kv_shape().page_bytes() / PAGE,
            kv_page_tokens: PAGE,
        };
        Ok(Self {
            net,
            capabilities,
            isa: Isa::detect(),
            pool,
            kv: KvStore::new(hyper.kv_shape()),
            sequences: HashMap::new(),
            work: Workspace::default(),
        })
    }

    /// Bytes of KV memory in use by all sequences, pages that several share counted once. Memory is
    /// taken in pages of 16 tokens.
    #[must_use]
    pub fn kv_bytes(&self) -> usize {
        self.kv.bytes()
    }

    /// Multiply-adds of the matrix products of one token, its logits included, attention left out.
    #[must_use]
    pub fn multiply_adds_per_token(&self) -> usize {
        self.net.multiply_adds()
    }

    /// Threads that compute.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Checks all of a batch before anything changes.
    fn check(&self, batch: &[BatchItem<'_>]) -> Result<(), ModelError> {
        let Capabilities { vocab_size, context_length, max_batch_tokens, .. } = self.capabilities;
        let mut seen = HashSet::new();
        let mut tokens = 0;
        for item in batch {
            let seq = item.seq.0;
            let held = self.sequences.get(&item.seq).ok_or_else(|| unknown(item.seq))?;
            if !seen.insert(item.seq) {
                let message =
                    format!("sequence {seq} occurs twice in a batch: join its tokens into one item");
                return Err(ModelError::new(ModelErrorKind::Sequence, message));
            }
            if item.tokens.is_empty() {
                let message = format!("the item of sequence {seq} has no tokens: give it at least one");
                return Err(ModelError::new(ModelErrorKind::Limit, message));
            }
            if let Some(token) = item.tokens.iter().find(|token| token.index() >= vocab_size) {
                let message =
                    format!("token {token} of sequence {seq} is not one of the {vocab_size} tokens");
                return Err(ModelError::new(ModelErrorKind::Token, message));
            }
            let len = held.len() + item.tokens.len();
            if len > context_length {
                let message = format!(
                    "sequence {seq} would have {len} tokens, and the model's context is {context_length}"
                );
                return Err(ModelError::new(ModelErrorKind::Limit, message));
            }
            tokens += item.tokens.len();
        }
        if tokens > max_batch_tokens {
            let message =
                format!("the batch has {tokens} tokens, and one forward takes {max_batch_tokens}: split it");
            return Err(ModelError::new(ModelErrorKind::Limit, message));
        }
        Ok(())
    }

    /// Gives every sequence of a checked batch room for its tokens. Returns each item's length
    /// before and its pages.
    fn extend(&mut self, batch: &[BatchItem<'_>]) -> Vec<(usize, Vec<PageId>)> {
        let extend = |item: &BatchItem<'_>| {
            let sequence = self.sequences.get_mut(&item.seq).expect("the batch is checked");
            let before = sequence.len();
            self.kv.extend(sequence, item.tokens.len());
            let mut pages = Vec::new();
            self.kv.list(sequence, &mut pages);
            (before, pages)
        };
        batch.iter().map(extend).collect()
    }
}

impl Model for NativeModel {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&mut self, seq: SeqId, adapter: Option<&str>) -> Result<(), ModelError> {
        if let Some(name) = adapter {
            let message = format!("adapter `{}` is not known: this model has none", name.escape_debug());
            return Err(ModelError::new(ModelErrorKind::Unsupported, message));
        }
        self.admit(seq)?;
        self.sequences.insert(seq, Sequence::EMPTY);
        Ok(())
    }

    fn fork(&mut self, parent: SeqId, child: SeqId) -> Result<(), ModelError> {
        self.admit(child)?;
        let held = self.sequences.get(&parent).ok_or_else(|| unknown(parent))?;
        let forked = self.kv.fork(held);
        self.sequences.insert(child, forked);
        Ok(())
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ModelError> {
        let held = self.sequences.get_mut(&seq).ok_or_else(|| unknown(seq))?;
        self.kv.truncate(held, len);
        Ok(())
    }

    fn free(&mut self, seq: SeqId) {
        if let Some(held) = self.sequences.remove(&seq) {
            self.kv.release(held);
        }
    }

    fn len(&self, seq: SeqId) -> Option<usize> {
        self.sequences.get(&seq).map(Sequence::len)
    }

    fn forward(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn LogitsSink) -> Result<(), ModelError> {
        self.check(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let held = self.extend(batch);
        let mut rows = Vec::new();
        for (item, (before, pages)) in batch.iter().zip(&held) {
            let last = item.tokens.len() - 1;
            rows.extend(item.tokens.iter().enumerate().map(|(i, &token)| {
                let wanted = match item.wanted {
                    Wanted::None => false,
                    Wanted::Last => i == last,
                    Wanted::All => true,
                };
                Row { token, position: before + i, pages, wanted }
            }));
        }
        // Sequences with common pages have them first in their lists: sorted, they are neighbours.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| rows[a].pages.cmp(rows[b].pages).then(a.cmp(&b)));

        let Self { net, isa, pool, kv, work, capabilities, .. } = self;
        pool.install(|| net.forward(*isa, kv, &rows, &order, work));
        let wanted = rows.iter().filter(|row| row.wanted).count();
        let mut done = 0;
        while done < wanted {
            let n = sink.tile_rows().clamp(1, wanted - done);
            sink.tile(n, &mut |out| {
                assert_eq!(out.len(), n * capabilities.vocab_size, "a buffer of the rows asked for");
                pool.install(|| net.logits(*isa, work, done, n, out));
            });
            done += n;
        }
        Ok(())
    }
}

impl NativeModel {
    /// Checks that a sequence may be held under `seq`.
    fn admit(&self, seq: SeqId) -> Result<(), ModelError> {
        if self.sequences.contains_key(&seq) {
            let message = format!("sequence {} is already in use: choose a new id", seq.0);
            return Err(ModelError::new(ModelErrorKind::Sequence, message));
        }
        if self.sequences.len() >= self.capabilities.max_sequences {
            let message = format!("the model holds {MAX_SEQUENCES} sequences, no more: free one first");
            return Err(ModelError::new(ModelErrorKind::Limit, message));
        }
        Ok(())
    }
}

fn unknown(seq: SeqId) -> ModelError {
    ModelError::new(ModelErrorKind::Sequence, format!("sequence {} is not held: open it first", seq.0))
}

impl fmt::Debug for NativeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeModel")
            .field("hyper", &self.net.hyper)
            .field("vocab", &self.capabilities.vocab_size)
            .field("isa", &self.isa)
            .field("threads", &self.threads())
            .field("sequences", &self.sequences.len())
            .field("kv_bytes", &self.kv_bytes())
            .finish()
    }
}
