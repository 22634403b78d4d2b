//! Set samplers: a random set of tokens with weights, then one token of the set.
//!
//! A set sampler draws a set S of tokens and gives each listed token the log-weight
//! `target.logw_next(t) − ln Pr(t ∈ S)`, so that over the sets drawn every token has its target
//! weight. A [`SetTokenSampler`] takes one token of the set, `t ∝ S`, with `logw = LSE(S)`.
//!
//! The two here are for a target `iter · item` with a model `iter` over tokens and a potential
//! `item` over bytes, coerced to the model's tokens. Both go down the trie of the tokens and ask
//! `item` only about what they reach: [`EagerSetSampler`] takes one random path,
//! [`TopKSetSampler`] the k best tokens and one other.

mod eager;
mod topk;
mod trie;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId};

pub use eager::{EagerSetSampler, eager_token_sampler};
pub use topk::{TopKSetSampler, topk_token_sampler};

use super::{Sampled, SamplerCursor, TokenSampler};
use crate::chooser::{Chooser, RowToDraw, draw_rows};
use crate::error::ControlError;
use crate::potential::{Demands, Row, RowResult, Run, Status};

/// A set of tokens drawn for a row.
#[derive(Clone, Debug)]
pub struct SampledSet {
    /// The listed tokens' log-weights by position (nats); all others are `-inf`. None are listed if
    /// the row is dead.
    pub log_weights: Row,
    /// The log-probability of all random choices made.
    pub logp: f64,
}

impl SampledSet {
    /// No token, for sure.
    #[must_use]
    pub fn empty() -> Self {
        Self { log_weights: Row::dead(), logp: 0.0 }
    }

    /// The listed positions with their log-weights, in any order.
    fn of(mut entries: Vec<(usize, f64)>, logp: f64) -> Self {
        entries.retain(|(_, weight)| *weight > f64::NEG_INFINITY);
        entries.sort_unstable_by_key(|(position, _)| *position);
        let position = |position| u32::try_from(position).expect("positions have 32 bits");
        let (positions, weights): (Vec<u32>, Vec<f64>) =
            entries.into_iter().map(|(at, weight)| (position(at), weight)).unzip();
        Self { log_weights: Row::sparse(positions, weights), logp }
    }
}

/// Draws sets of tokens for a target potential.
pub trait SetSampler: Send + Sync {
    /// The tokens it lists.
    fn vocab(&self) -> &Arc<Vocabulary>;

    /// Opens `n` sequences, all empty, within `run`.
    ///
    /// # Errors
    /// If the run cannot hold them.
    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SetCursor>, ControlError>;

    /// Adds what `n` sequences of up to `max_tokens` tokens will take of engines' memory.
    ///
    /// # Errors
    /// If a sequence of that length is impossible.
    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError>;
}

/// A set sampler's sequences, in columns. All but the draw is as in [`SamplerCursor`].
pub trait SetCursor: Send {
    /// The target's log-weight of the empty sequence.
    ///
    /// # Errors
    /// If the target fails.
    fn start_weight(&mut self) -> Result<f64, ControlError>;

    /// Draws a set for each row (distinct). Does not move the target. Choices of row i use `keys[i]`
    /// with ordinals from its own upwards, in program order; the key is left at the first one that
    /// was not used.
    fn sample_sets(
        &mut self,
        rows: &[usize],
        keys: &mut [DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<SampledSet>>;

    /// The target's log-weight of ending now, for each row.
    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>>;

    /// Appends a token to each row.
    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status>;

    /// New row i is a copy of old row `ancestors[i]`.
    fn select(&mut self, ancestors: &[usize]);

    /// Gives back what `rows` hold; they are dead from now on.
    fn release(&mut self, rows: &[usize]);
}

/// Samples a token from the set that a set sampler draws: `logw = LSE(S)`, `t ∝ S`.
#[derive(Clone)]
pub struct SetTokenSampler {
    sets: Arc<dyn SetSampler>,
}

impl SetTokenSampler {
    /// The token sampler over `sets`.
    #[must_use]
    pub fn new(sets: Arc<dyn SetSampler>) -> Self {
        Self { sets }
    }
}

impl std::fmt::Debug for SetTokenSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SetTokenSampler").finish_non_exhaustive()
    }
}

impl TokenSampler for SetTokenSampler {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.sets.vocab()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(SetTokenCursor {
            sets: self.sets.open(n, run)?,
            vocab: Arc::clone(self.vocab()),
            choices: vec![1; n],
        }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.sets.demand(n, max_tokens, demands)
    }
}

struct SetTokenCursor {
    sets: Box<dyn SetCursor>,
    vocab: Arc<Vocabulary>,
    /// How many choices the last draw of each row took.
    choices: Vec<u32>,
}

impl SamplerCursor for SetTokenCursor {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        self.sets.start_weight()
    }

    fn sample(
        &mut self,
        rows: &[usize],
        keys: &[DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<Sampled>> {
        let first = keys;
        let mut keys = first.to_vec();
        let sets = self.sets.sample_sets(rows, &mut keys, others, chooser);
        for ((row, first), key) in rows.iter().zip(first).zip(&keys) {
            self.choices[*row] = 1 + key.ordinal - first.ordinal;
        }
        let listed = sets.iter().zip(&keys).filter_map(|(set, key)| Some((set.as_ref().ok()?, key)));
        let (row_len, eos_position) = (self.vocab.row_len(), self.vocab.eos_position());
        let to_draw: Vec<RowToDraw<'_>> = listed
            .map(|(set, key)| RowToDraw { row: &set.log_weights, row_len, eos_position, key: *key })
            .collect();
        let mut drawn = draw_rows(chooser, &to_draw).into_iter();
        let weigh = |set: RowResult<SampledSet>| {
            let logp = set?.logp;
            let drawn = drawn.next().expect("a draw for each set")?;
            Ok(drawn.map_or(Sampled { logp: Some(logp), ..Sampled::DEAD }, |drawn| Sampled {
                token: Some(drawn.token),
                logw: drawn.log_mass,
                logp: Some(logp + drawn.logp),
            }))
        };
        sets.into_iter().map(weigh).collect()
    }

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        self.sets.logw_eos(rows, others)
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        self.sets.advance(rows, tokens)
    }

    fn choices(&self, row: usize) -> u32 {
        self.choices[row]
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.sets.select(ancestors);
        self.choices.resize(ancestors.len(), 1);
    }

    fn release(&mut self, rows: &[usize]) {
        self.sets.release(rows);
    }
}
