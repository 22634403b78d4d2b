//! What the set samplers over a trie share: a target `iter · item`, its cursors, and rows of `iter`
//! weights that can be summed over the tokens below a node.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{DrawKey, TokenId, math};
use rayon::prelude::*;

use super::super::{advance_both, eos_of_each, only_weight, start_weight};
use super::{SampledSet, SetCursor};
use crate::chooser::Chooser;
use crate::error::ControlError;
use crate::potential::{
    Answer, CoercedCursor, Cursor, Demands, Potential, Row, RowResult, Run, Spelling, Status, Want,
};

/// `iter` over tokens times `item` over the bytes of these tokens.
#[derive(Clone)]
pub(super) struct TrieTarget {
    iter: Arc<dyn Potential>,
    item: Arc<dyn Potential>,
    spelling: Arc<Spelling>,
}

impl TrieTarget {
    /// # Errors
    /// If the tokens of `iter` are not sequences of `item`'s symbols.
    pub(super) fn new(iter: Arc<dyn Potential>, item: Arc<dyn Potential>) -> Result<Self, ControlError> {
        let spelling = Arc::new(Spelling::flattened(Arc::clone(iter.vocab()), item.vocab())?);
        Ok(Self { iter, item, spelling })
    }

    pub(super) fn vocab(&self) -> &Arc<Vocabulary> {
        self.iter.vocab()
    }

    pub(super) fn open<S: Scheme + 'static>(
        &self,
        n: usize,
        run: &Run,
        scheme: S,
    ) -> Result<Box<dyn SetCursor>, ControlError> {
        let item = CoercedCursor::new(self.item.open(n, run)?, Arc::clone(&self.spelling));
        let symbols = Arc::clone(self.item.vocab());
        Ok(Box::new(TrieCursor { iter: self.iter.open(n, run)?, item, symbols, scheme }))
    }

    pub(super) fn demand(
        &self,
        n: usize,
        max_tokens: usize,
        demands: &mut Demands,
    ) -> Result<(), ControlError> {
        self.iter.demand(n, max_tokens, demands)?;
        self.item.demand(n, max_tokens, demands)
    }
}

/// How a set is drawn once the rows of `iter` are there.
pub(super) trait Scheme: Send {
    /// Draws a set for each live row, given by its place in the call and its weights by `iter`, into
    /// `results`, which begin as empty sets. Moves `keys` on.
    fn sets(
        &self,
        item: &mut ItemRows<'_>,
        live: Vec<(usize, TokenWeights)>,
        keys: &mut [DrawKey],
        chooser: &mut dyn Chooser,
        results: &mut [RowResult<SampledSet>],
    );
}

/// The `item` potential at the rows of a draw.
pub(super) struct ItemRows<'a> {
    /// By token.
    pub(super) cursor: &'a mut CoercedCursor,
    /// The cursor's rows that sets are drawn for.
    pub(super) rows: &'a [usize],
    /// What it reads by itself.
    pub(super) symbols: &'a Vocabulary,
}

impl ItemRows<'_> {
    /// The trie and the symbols of tokens.
    pub(super) fn spelling(&self) -> Arc<Spelling> {
        Arc::clone(self.cursor.spelling())
    }

    /// Copies of these of the rows, by symbol.
    pub(super) fn scratch(&self, which: &[usize]) -> Box<dyn Cursor> {
        let rows: Vec<usize> = which.iter().map(|i| self.rows[*i]).collect();
        self.cursor.fork_inner(&rows)
    }
}

/// A row of `iter`: log-weights by position.
pub(super) struct TokenWeights {
    pub(super) log_weights: Vec<f64>,
    pub(super) eos_position: usize,
    highest: f64,
}

impl TokenWeights {
    /// `None` if nothing is live.
    fn new(row: &Row, vocab: &Vocabulary) -> Option<Self> {
        let mut log_weights = row.to_dense();
        log_weights.resize(vocab.row_len(), f64::NEG_INFINITY);
        let highest = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (highest > f64::NEG_INFINITY).then(|| Self {
            log_weights,
            eos_position: vocab.eos_position(),
            highest,
        })
    }

    pub(super) fn of(&self, token: TokenId) -> f64 {
        self.log_weights[token.index()]
    }

    pub(super) fn of_end(&self) -> f64 {
        self.log_weights[self.eos_position]
    }

    /// The largest log-weight of some tokens.
    pub(super) fn largest(&self, tokens: &[TokenId]) -> f64 {
        tokens.iter().map(|token| self.of(*token)).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Every entry's mass, in units of the largest one's.
    pub(super) fn masses(&self) -> Vec<f64> {
        math::exp_shifted(&self.log_weights, self.highest)
    }
}

struct TrieCursor<S> {
    iter: Box<dyn Cursor>,
    item: CoercedCursor,
    symbols: Arc<Vocabulary>,
    scheme: S,
}

impl<S: Scheme> SetCursor for TrieCursor<S> {
    fn start_weight(&mut self) -> Result<f64, ControlError> {
        Ok(start_weight(&mut *self.iter)? + start_weight(&mut self.item)?)
    }

    fn sample_sets(
        &mut self,
        rows: &[usize],
        keys: &mut [DrawKey],
        others: &mut dyn FnMut(),
        chooser: &mut dyn Chooser,
    ) -> Vec<RowResult<SampledSet>> {
        let ticket = self.iter.request(rows, Want::Row);
        others();
        let vocab = Arc::clone(self.item.spelling().vocab());
        let weights: Vec<RowResult<Option<TokenWeights>>> = ticket
            .wait()
            .into_par_iter()
            .map(|answer| Ok(TokenWeights::new(&answer.map(Answer::into_row)?, &vocab)))
            .collect();
        let mut live = Vec::with_capacity(rows.len());
        let mut results = Vec::with_capacity(rows.len());
        for (i, weights) in weights.into_iter().enumerate() {
            results.push(weights.map(|weights| {
                live.extend(weights.map(|weights| (i, weights)));
                SampledSet::empty()
            }));
        }
        let mut item = ItemRows { cursor: &mut self.item, rows, symbols: &self.symbols };
        self.scheme.sets(&mut item, live, keys, chooser, &mut results);
        results
    }

    fn logw_eos(&mut self, rows: &[usize], others: &mut dyn FnMut()) -> Vec<RowResult<f64>> {
        let iter = self.iter.request(rows, eos_of_each(rows));
        let item = self.item.request(rows, eos_of_each(rows));
        others();
        let answers = iter.wait().into_iter().zip(item.wait());
        answers.map(|(a, b)| Ok(only_weight(a)? + only_weight(b)?)).collect()
    }

    fn advance(&mut self, rows: &[usize], tokens: &[TokenId]) -> Vec<Status> {
        advance_both(&mut *self.iter, &mut self.item, rows, tokens)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.iter.select(ancestors);
        self.item.select(ancestors);
    }

    fn release(&mut self, rows: &[usize]) {
        self.iter.release(rows);
        self.item.release(rows);
    }
}
