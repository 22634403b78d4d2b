//! A potential read through another vocabulary: `prefix(x) = inner.prefix(f(x))`.
//!
//! A map f that spells each token on its own is walked: a row of next-token weights is one pass over
//! the trie of spellings, advancing the inner state symbol by symbol and cutting dead subtrees. Any
//! other map is asked about whole sequences. Special tokens are in no trie and weigh `-inf`.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::automaton::TokenAutomaton;
use super::coerced_cursor::CoercedCursor;
use super::sequences::FromSequences;
use super::spelling::Spelling;
use super::symbol_map::{SymbolMap, WholeContexts};
use super::{Claims, Cursor, Demands, Potential, Run};
use crate::error::{ControlError, ErrorKind};

/// A potential over a model's tokens that weighs what they spell for another one.
#[derive(Clone)]
pub struct Coerced {
    inner: Arc<dyn Potential>,
    vocab: Arc<Vocabulary>,
    reading: Reading,
    /// The tokens left by pruning, if not all ordinary ones are.
    members: Option<Arc<Bitset>>,
    /// Whether some ordinary token kills any sequence.
    has_dead_tokens: bool,
}

/// How sequences of tokens are read.
#[derive(Clone)]
enum Reading {
    /// By a byte automaton, whose masks are kept by state.
    Automaton(Arc<TokenAutomaton>),
    /// Token by token.
    Spelled(Arc<Spelling>),
    /// As a whole.
    Whole(SymbolMap),
}

/// Settings of [`Coerced::with_map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoerceOptions {
    /// Whether tokens whose own spelling has a symbol that the inner vocabulary lacks are left out:
    /// they weigh `-inf` in every context. Ids never change.
    pub prune: bool,
    /// Whether the map of a sequence is that of its tokens, one after the other. `None` trusts
    /// [`SymbolMap::Bytes`] and no function: no sample of tokens could prove it.
    pub homomorphic: Option<bool>,
}

impl Default for CoerceOptions {
    fn default() -> Self {
        Self { prune: true, homomorphic: None }
    }
}

impl Coerced {
    /// `inner`, which reads bytes, over the tokens of `vocab`.
    ///
    /// # Errors
    /// If `inner` does not read bytes, or the tokens can spell nothing that it accepts.
    pub fn new(inner: Arc<dyn Potential>, vocab: Arc<Vocabulary>) -> Result<Self, ControlError> {
        if !inner.vocab().same_tokens(&Vocabulary::bytes()) {
            return Err(ControlError::new(
                ErrorKind::Vocabulary,
                "only a potential over bytes can be coerced to another vocabulary without a map",
            ));
        }
        Self::with_map(inner, vocab, SymbolMap::Bytes, CoerceOptions::default())
    }

    /// `inner` over the tokens of `vocab`, which `map` spells in the symbols of `inner`.
    ///
    /// # Errors
    /// If pruning leaves no token, no sequence of tokens is accepted, or the map fails on a token
    /// of its own, which it is asked about if it is homomorphic or tokens are pruned.
    pub fn with_map(
        inner: Arc<dyn Potential>,
        vocab: Arc<Vocabulary>,
        map: SymbolMap,
        options: CoerceOptions,
    ) -> Result<Self, ControlError> {
        let homomorphic = options.homomorphic.unwrap_or(matches!(map, SymbolMap::Bytes));
        let over_bytes = matches!(map, SymbolMap::Bytes) && inner.vocab().same_tokens(&Vocabulary::bytes());
        if !ordinary(&vocab).any(|_| true) {
            return Err(nothing_left());
        }
        let (mut members, mut has_dead_tokens) = (None, false);
        let reading = if over_bytes && homomorphic {
            match inner.automaton() {
                Some(dfa) => {
                    Reading::Automaton(Arc::new(TokenAutomaton::shared(Arc::clone(dfa), Arc::clone(&vocab))?))
                }
                None => Reading::Spelled(Arc::new(Spelling::bytes(Arc::clone(&vocab)))),
            }
        } else {
            let mut spellings = Vec::new();
            if homomorphic || options.prune {
                spellings = map.spellings(&vocab, inner.vocab())?;
                has_dead_tokens = ordinary(&vocab).any(|token| spellings[token.index()].is_none());
            }
            if options.prune && has_dead_tokens {
                let mut left = Bitset::new(vocab.row_len());
                let spelled = ordinary(&vocab).filter(|token| spellings[token.index()].is_some());
                spelled.for_each(|token| left.insert(token.index()));
                if left.none() {
                    return Err(nothing_left());
                }
                members = Some(Arc::new(left));
            }
            if homomorphic {
                Reading::Spelled(Arc::new(Spelling::symbols(Arc::clone(&vocab), inner.vocab(), spellings)))
            } else {
                Reading::Whole(map)
            }
        };
        Ok(Self { inner, vocab, reading, members, has_dead_tokens })
    }

    /// Its vocabulary: the tokens that pruning left, special ones excepted, ascending.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenId> {
        let left = |token: &TokenId| self.members.as_ref().is_none_or(|left| left.contains(token.index()));
        ordinary(&self.vocab).filter(left).collect()
    }

    /// The same, with a cache to itself, of at most `bytes`, for the masks of the states of a byte
    /// automaton; 0 keeps none. By default all masks of the process share one of 128 MiB, and those
    /// of one automaton and vocabulary are the same, whoever asks. No bound changes a result.
    #[must_use]
    pub fn with_mask_bytes(mut self, bytes: usize) -> Self {
        if let Reading::Automaton(automaton) = &mut self.reading {
            *automaton = Arc::new(automaton.with_mask_bytes(bytes));
        }
        self
    }

    /// The bytes that the masks take now which are kept where its own are.
    #[must_use]
    pub fn mask_bytes(&self) -> usize {
        if let Reading::Automaton(automaton) = &self.reading { automaton.mask_bytes() } else { 0 }
    }
}

/// The members that are not special.
pub(super) fn ordinary(vocab: &Vocabulary) -> impl Iterator<Item = TokenId> + '_ {
    let ids = (0..vocab.len()).map(|id| TokenId(u32::try_from(id).expect("ids have 32 bits")));
    ids.filter(|id| vocab.is_member(*id) && !vocab.is_special(*id))
}

fn nothing_left() -> ControlError {
    ControlError::new(
        ErrorKind::Vocabulary,
        "no token is left: none is spelled in the symbols of the inner vocabulary",
    )
}

impl std::fmt::Debug for Coerced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reading = match self.reading {
            Reading::Automaton(_) => "automaton",
            Reading::Spelled(_) => "spelled",
            Reading::Whole(_) => "whole",
        };
        f.debug_struct("Coerced").field("reading", &reading).finish_non_exhaustive()
    }
}

impl Potential for Coerced {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        let inner = self.inner.claims();
        Claims {
            // Each value is an inner one.
            boolean: inner.boolean,
            // Symbols that complete a sequence may lie inside no token; automata check that they
            // do not.
            tight: inner.tight && matches!(self.reading, Reading::Automaton(_)),
            // One sequence of symbols has several spellings, or none.
            mass_exact: false,
            // A longer sequence is a longer one of symbols, if each token is spelled on its own.
            monotone: inner.monotone && !matches!(self.reading, Reading::Whole(_)),
            // A map gives symbols of the inner vocabulary, except for the tokens that are dead.
            terminal_only: inner.terminal_only && !self.has_dead_tokens,
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        match &self.reading {
            Reading::Automaton(automaton) => Ok(automaton.open(n)),
            Reading::Spelled(spelling) => {
                Ok(Box::new(CoercedCursor::new(self.inner.open(n, run)?, Arc::clone(spelling))))
            }
            Reading::Whole(map) => {
                let whole = WholeContexts::new(
                    self.inner.open(1, run)?,
                    Arc::clone(self.inner.vocab()),
                    Arc::clone(&self.vocab),
                    map.clone(),
                    self.members.clone(),
                );
                FromSequences::new(whole).open(n, run)
            }
        }
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        match self.reading {
            Reading::Automaton(_) => Ok(()),
            _ => self.inner.demand(n, max_tokens, demands),
        }
    }
}
