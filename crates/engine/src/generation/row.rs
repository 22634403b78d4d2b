//! A generating row: everything that is its own.

use std::sync::Arc;

use lockstep_sample::{
    Bitset, ChainRow, DrawKey, History, LogitsProcessor, LogprobRequest, ProblemKey, Sampled, SamplingParams,
    SharedSampler, TokenId,
};

use super::spec::RowSpec;
use super::stops::{StopMatcher, TextStream};
use super::stream::StoppedBy;
use crate::row::Tile;
use crate::vocab::Vocabulary;

/// A row's settings, history and the state of its text. It moves as a whole to whoever draws for it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) vocab: Arc<Vocabulary>,
    pub(crate) params: SamplingParams,
    pub(crate) seed: u64,
    pub(crate) history: History,
    pub(crate) processors: Vec<Box<dyn LogitsProcessor>>,
    pub(crate) sampler: Option<SharedSampler>,
    /// The allowed ids for the next draw.
    pub(crate) mask: Mask,
    pub(crate) drawn: usize,
    choice: u32,
    max_tokens: usize,
    min_tokens: usize,
    /// The ids that stop it.
    ends: Vec<TokenId>,
    special_ids: Vec<TokenId>,
    logprobs: Option<LogprobRequest>,
    include_stop: bool,
    stops: StopMatcher,
    text: TextStream,
}

/// The allowed ids of a row's next draw.
#[derive(Clone, Debug)]
pub(crate) enum Mask {
    /// All.
    All,
    /// These.
    Ready(Arc<Bitset>),
    /// They are being found out.
    Pending,
}

/// A row of logits that waits for something.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) tile: Arc<Tile>,
    pub(crate) at: usize,
}

/// What a drawn token did.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Text that is certain now.
    pub(crate) text: String,
    /// Whether the row stops, and why.
    pub(crate) stopped: Option<StoppedBy>,
    /// Whether it has drawn all it may.
    pub(crate) is_full: bool,
}

impl Row {
    /// The row of `spec`, which continues `before`.
    pub(crate) fn new(spec: &mut RowSpec, before: &[TokenId], seed: u64) -> Self {
        let vocab = Arc::clone(&spec.vocab);
        let eos = || vocab.eos().ids().iter().copied().map(TokenId);
        let mut ends = std::mem::take(&mut spec.stop_token_ids);
        if !spec.ignore_eos {
            ends.extend(eos());
        }
        let special_ids =
            spec.xtc_special_ids.take().unwrap_or_else(|| eos().chain(vocab.find(b"\n")).collect());
        let mut history = History::new(&spec.params, before);
        for &token in &spec.prompt {
            history.push(token);
        }
        Self {
            params: spec.params.clone(),
            seed,
            history,
            processors: std::mem::take(&mut spec.processors),
            sampler: spec.sampler.take(),
            mask: if spec.constraint.is_some() { Mask::Pending } else { Mask::All },
            drawn: 0,
            choice: spec.choice,
            max_tokens: spec.max_tokens,
            min_tokens: spec.min_tokens,
            ends,
            special_ids,
            logprobs: spec.logprobs,
            include_stop: spec.include_stop_str_in_output,
            stops: StopMatcher::new(spec.stop.iter().map(String::as_bytes)),
            text: TextStream::default(),
            vocab,
        }
    }

    /// Whether code that we did not write draws for it.
    pub(crate) fn is_custom(&self) -> bool {
        self.sampler.is_some() || !self.processors.is_empty()
    }

    pub(crate) fn awaits_mask(&self) -> bool {
        matches!(self.mask, Mask::Pending)
    }

    pub(crate) fn draws_nothing(&self) -> bool {
        self.max_tokens == 0
    }

    /// The row before its next draw, for the sampler chain.
    pub(crate) fn chain<'a>(&'a self, logits: &'a [f32]) -> ChainRow<'a> {
        let step = u32::try_from(self.drawn + 1).expect("contexts are shorter than 2^32");
        ChainRow {
            logits,
            vocab_size: self.vocab.len(),
            params: &self.params,
            history: &self.history,
            special_ids: &self.special_ids,
            mask: match &self.mask {
                Mask::Ready(mask) => Some(mask),
                Mask::All | Mask::Pending => None,
            },
            banned: if self.drawn < self.min_tokens { &self.ends } else { &[] },
            key: DrawKey::new(ProblemKey::new(self.seed, 0), self.choice, step, 0),
            logprobs: self.logprobs,
        }
    }

    /// Appends a drawn token.
    pub(crate) fn take(&mut self, sampled: &Sampled) -> Taken {
        self.history.push(sampled.token);
        self.drawn += 1;
        let is_full = self.drawn >= self.max_tokens;
        if self.ends.contains(&sampled.token) {
            let stopped = Some(StoppedBy::Token(sampled.token));
            return Taken { text: String::new(), stopped, is_full };
        }
        let mut free = Vec::new();
        let armed = self.drawn >= self.min_tokens;
        let found = self.stops.push(self.vocab.bytes_of(sampled.token), armed, self.include_stop, &mut free);
        Taken { text: self.text.push(&free), stopped: found.map(StoppedBy::Text), is_full }
    }

    /// The rest of the text, at the row's end.
    pub(crate) fn flush(&mut self) -> String {
        let mut rest = Vec::new();
        self.stops.flush(&mut rest);
        let mut text = self.text.push(&rest);
        text.push_str(&self.text.flush());
        text
    }
}
