//! Maps from sequences of tokens to another vocabulary's symbols, and potentials under maps that
//! must see whole sequences.

use std::sync::{Arc, Mutex, PoisonError};

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::coerced::ordinary;
use super::sequences::SequencePotential;
use super::spelling::stranger;
use super::{Cursor, RowResult, Status, guarded};
use crate::error::{ControlError, ErrorKind};

/// A function from a sequence of tokens, without end, to symbols of an inner vocabulary.
pub type SymbolFn = dyn Fn(&[TokenId]) -> RowResult<Vec<TokenId>> + Send + Sync;

/// A map from sequences of tokens to symbols of an inner vocabulary.
#[derive(Clone)]
pub enum SymbolMap {
    /// The bytes of the tokens, one after the other; each is the inner vocabulary's token of just
    /// that byte.
    Bytes,
    /// Any function. It gives symbols of the inner vocabulary and no end, and if a sequence of
    /// tokens extends another, what it gives for the one weighs nothing if that for the other does.
    Function(Arc<SymbolFn>),
}

impl SymbolMap {
    /// The map that `f` is.
    #[must_use]
    pub fn function(f: impl Fn(&[TokenId]) -> RowResult<Vec<TokenId>> + Send + Sync + 'static) -> Self {
        Self::Function(Arc::new(f))
    }

    /// What `context`, members of `vocab` that are not special, is in symbols of `inner`.
    fn apply(&self, vocab: &Vocabulary, inner: &Vocabulary, context: &[TokenId]) -> RowResult<Vec<TokenId>> {
        match self {
            Self::Bytes => {
                let bytes = context.iter().flat_map(|token| vocab.bytes_of(*token));
                Ok(bytes.map(|byte| inner.find(&[*byte]).unwrap_or_else(|| stranger(inner))).collect())
            }
            Self::Function(f) => {
                let symbols = f(context)?;
                if symbols.iter().any(|symbol| symbol.is_eos()) {
                    return Err(ControlError::new(
                        ErrorKind::Contract,
                        "the map of a coerced potential gave EOS: it maps what is before the end",
                    ));
                }
                Ok(symbols)
            }
        }
    }

    /// The symbols of each ordinary token on its own, by id; none if `inner` lacks one of them.
    pub(super) fn spellings(
        &self,
        vocab: &Vocabulary,
        inner: &Vocabulary,
    ) -> RowResult<Vec<Option<Box<[TokenId]>>>> {
        let mut spellings = vec![None; vocab.len()];
        for token in ordinary(vocab) {
            let symbols = guarded("the potential", || self.apply(vocab, inner, &[token]))?;
            if symbols.iter().all(|symbol| inner.is_member(*symbol)) {
                spellings[token.index()] = Some(symbols.into_boxed_slice());
            }
        }
        Ok(spellings)
    }
}

impl std::fmt::Debug for SymbolMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bytes => "Bytes",
            Self::Function(_) => "Function",
        })
    }
}

/// A coerced potential whose map must see whole sequences.
pub(super) struct WholeContexts {
    /// One row that has read nothing; every question is put to a copy.
    start: Mutex<Box<dyn Cursor>>,
    inner: Arc<Vocabulary>,
    vocab: Arc<Vocabulary>,
    map: SymbolMap,
    /// The tokens left by pruning, if not all ordinary ones are.
    members: Option<Arc<Bitset>>,
}

impl WholeContexts {
    pub(super) fn new(
        start: Box<dyn Cursor>,
        inner: Arc<Vocabulary>,
        vocab: Arc<Vocabulary>,
        map: SymbolMap,
        members: Option<Arc<Bitset>>,
    ) -> Self {
        Self { start: Mutex::new(start), inner, vocab, map, members }
    }

    /// The inner row after `context`; none if a token has no symbols.
    fn at(&self, context: &[TokenId]) -> RowResult<Option<Box<dyn Cursor>>> {
        let known = |token: &TokenId| match &self.members {
            Some(members) => members.contains(token.index()),
            None => self.vocab.is_member(*token) && !self.vocab.is_special(*token),
        };
        if !context.iter().all(known) {
            return Ok(None);
        }
        let symbols = self.map.apply(&self.vocab, &self.inner, context)?;
        let mut row = self.start.lock().unwrap_or_else(PoisonError::into_inner).fork(&[0]);
        match row.advance(&[0], &[&symbols]).pop() {
            Some(Status::Failed(error)) => Err(error),
            _ => Ok(Some(row)),
        }
    }
}

impl SequencePotential for WholeContexts {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn prefix(&self, context: &[TokenId]) -> RowResult<f64> {
        Ok(match self.at(context)? {
            Some(mut row) => row.score(&[0]).pop().expect("a score for the one row")?,
            None => f64::NEG_INFINITY,
        })
    }

    fn complete(&self, context: &[TokenId]) -> RowResult<f64> {
        Ok(match self.at(context)? {
            Some(mut row) => row.complete(&[0]).pop().expect("a weight for the one row")?,
            None => f64::NEG_INFINITY,
        })
    }
}
