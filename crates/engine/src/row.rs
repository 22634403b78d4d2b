//! What a caller asks of a forward, and what it gets back.
//!
//! A [`RowRequest`] extends one sequence by some tokens and says what it wants of the logits after
//! the last of them: any number of [`Wish`]es, so that rows with one history share one forward row.

use std::sync::Arc;

use lockstep_sample::{Bitset, DrawKey, DrawMethod, Drawn, Normalizer, RowError, TokenId, log_mass};

use crate::error::EngineError;
use crate::model::SeqId;
use crate::vocab::Vocabulary;

/// The next tokens of one sequence, and what is wanted of the logits that follow them.
#[derive(Clone, Debug)]
pub struct RowRequest {
    /// The sequence; see [`crate::Party::open`].
    pub seq: SeqId,
    /// The tokens to append, at least one. Longer lists are fed in chunks.
    pub tokens: Vec<TokenId>,
    /// The temperature of every wish, greater than 0: weights are of `softmax(l / T)`.
    pub temperature: f64,
    /// The ids that count, and the end-of-sequence set. Logits beyond its length are padding; ids
    /// for which the model has no logit weigh `-inf`.
    pub vocab: Arc<Vocabulary>,
    /// What is wanted of the last position's logits; each wish gets a [`Reply`], in order.
    pub wishes: Vec<Wish>,
}

impl RowRequest {
    /// An error for each of its wishes.
    pub(crate) fn all_fail(&self, error: &EngineError) -> Vec<RowResult> {
        self.wishes.iter().map(|_| Err(error.clone())).collect()
    }
}

/// One thing wanted of a row of logits.
#[derive(Clone, Debug)]
pub enum Wish {
    /// A token. The row of logits never leaves the engine.
    Draw {
        /// Fixes the draw's noise.
        key: DrawKey,
        /// How to draw.
        method: DrawMethod,
        /// The allowed positions; `None` allows all. The end-of-sequence set sits at its lowest id.
        mask: Option<Arc<Bitset>>,
    },
    /// The whole row, to look at now.
    Row,
    /// The log-weights (nats) of a few tokens.
    Tokens(Vec<TokenId>),
    /// The row, kept for later: nothing is read yet.
    Hold,
}

/// The answer to one [`Wish`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// To [`Wish::Draw`].
    Drawn(Drawn),
    /// To [`Wish::Row`] and [`Wish::Hold`]: a shared handle, not a copy.
    Row(LogitRow),
    /// To [`Wish::Tokens`], in order.
    Tokens(Vec<f64>),
}

/// What became of one wish.
pub type RowResult = Result<Reply, EngineError>;

/// A block of logit rows as one forward gave them, row-major.
#[derive(Debug, Default)]
pub(crate) struct Tile {
    pub(crate) data: Vec<f32>,
    pub(crate) width: usize,
}

impl Tile {
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..(row + 1) * self.width]
    }

    /// The logits of a row's real ids: those that both the model and the vocabulary have.
    pub(crate) fn logits(&self, row: usize, vocab: &Vocabulary) -> &[f32] {
        &self.row(row)[..self.width.min(vocab.len())]
    }
}

/// A handle on one row of next-token log-weights: `w = l / T - LSE(l / T)` over the real ids,
/// with the mass of the end-of-sequence set folded into its lowest id.
#[derive(Clone, Debug)]
pub struct LogitRow {
    tile: Arc<Tile>,
    row: usize,
    vocab: Arc<Vocabulary>,
    temperature: f64,
    normalizer: Normalizer,
    eos: f64,
}

impl LogitRow {
    /// The row `row` of `tile`, normalised at `temperature`.
    pub(crate) fn new(
        tile: Arc<Tile>,
        row: usize,
        vocab: Arc<Vocabulary>,
        temperature: f64,
    ) -> Result<Self, RowError> {
        let logits = tile.logits(row, &vocab);
        let normalizer = Normalizer::of(logits, temperature)?;
        let eos = normalizer.eos(logits, vocab.eos());
        Ok(Self { tile, row, vocab, temperature, normalizer, eos })
    }

    /// The vocabulary whose positions address the row.
    #[must_use]
    pub fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    /// The log-weight (nats) of `token`; `-inf` for what is no member of the vocabulary.
    #[must_use]
    pub fn logw(&self, token: TokenId) -> f64 {
        if token.is_eos() {
            self.eos
        } else if self.vocab.is_member(token) {
            let logit = self.logits().get(token.index());
            logit.map_or(f64::NEG_INFINITY, |logit| self.normalizer.logw(*logit))
        } else {
            f64::NEG_INFINITY
        }
    }

    /// The log-weight at `position`, which is a token's id or the end-of-sequence position.
    #[must_use]
    pub fn logw_at(&self, position: usize) -> f64 {
        self.logw(self.vocab.token_at(position))
    }

    /// The log of the mass (nats) that `mask`, over positions, leaves of the row: exactly that of a
    /// [`Wish::Draw`] with this mask.
    ///
    /// # Panics
    /// Never: a row that could be normalised has a mass.
    #[must_use]
    pub fn log_mass(&self, mask: &Bitset) -> f64 {
        log_mass(self.logits(), self.temperature, self.vocab.eos(), mask).expect("the row was normalised")
    }

    /// Writes the whole row by position (see [`Vocabulary::row_len`]).
    pub fn fill(&self, out: &mut [f64]) {
        let logits = self.logits();
        let (known, missing) = out.split_at_mut(logits.len());
        self.normalizer.fill(logits, known);
        missing.fill(f64::NEG_INFINITY);
        for &id in self.vocab.eos().ids() {
            out[id as usize] = f64::NEG_INFINITY;
        }
        out[self.vocab.eos_position()] = self.eos;
    }

    fn logits(&self) -> &[f32] {
        self.tile.logits(self.row, &self.vocab)
    }
}
