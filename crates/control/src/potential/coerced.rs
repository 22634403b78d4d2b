//! A potential over bytes, read through another vocabulary: `prefix(x) = inner.prefix(bytes(x))`.
//!
//! Special tokens have no bytes here and weigh `-inf`. A row of next-token weights is one walk of
//! the vocabulary's trie, advancing the inner state byte by byte and cutting dead subtrees.

use std::sync::Arc;

use lockstep_engine::vocab::{TokenTrie, Vocabulary};
use lockstep_sample::TokenId;

use super::automaton::TokenAutomaton;
use super::row::add;
use super::{Answer, Claims, Cursor, Demands, Potential, Row, RowResult, Run, Status, Ticket, Want, closed};
use crate::error::{ControlError, ErrorKind};

/// A byte-level potential over a model's tokens.
#[derive(Clone)]
pub struct Coerced {
    inner: Arc<dyn Potential>,
    vocab: Arc<Vocabulary>,
    /// Set if the inner potential is a byte automaton: its masks are kept by state.
    automaton: Option<Arc<TokenAutomaton>>,
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
                "only a potential over bytes can be coerced to another vocabulary",
            ));
        }
        let automaton = match inner.automaton() {
            Some(dfa) => Some(Arc::new(TokenAutomaton::new(Arc::clone(dfa), Arc::clone(&vocab))?)),
            None => None,
        };
        Ok(Self { inner, vocab, automaton })
    }
}

impl std::fmt::Debug for Coerced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coerced").field("automaton", &self.automaton.is_some()).finish_non_exhaustive()
    }
}

impl Potential for Coerced {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        let inner = self.inner.claims();
        // Bytes that complete a text may lie inside no token; automata check that they do not.
        Claims { tight: inner.tight && self.automaton.is_some(), mass_exact: false, ..inner }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        match &self.automaton {
            Some(automaton) => Ok(automaton.open(n)),
            None => Ok(Box::new(CoercedCursor {
                inner: self.inner.open(n, run)?,
                vocab: Arc::clone(&self.vocab),
                alive: vec![true; n],
            })),
        }
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.inner.demand(n, max_tokens, demands)
    }
}

/// The inner cursor, moved by the bytes of tokens.
struct CoercedCursor {
    inner: Box<dyn Cursor>,
    vocab: Arc<Vocabulary>,
    /// False once a row has met a token without bytes.
    alive: Vec<bool>,
}

impl CoercedCursor {
    /// A token's bytes as symbols of the inner vocabulary; `None` for special tokens.
    fn bytes(&self, token: TokenId) -> Option<Vec<TokenId>> {
        if token.is_eos() {
            return Some(vec![TokenId::EOS]);
        }
        if !self.vocab.is_member(token) || self.vocab.is_special(token) {
            return None;
        }
        Some(self.vocab.bytes_of(token).iter().map(|byte| TokenId(u32::from(*byte))).collect())
    }

    /// The log-weights of `tokens` after `row`: each spelled out on a copy of the inner row.
    fn tokens(&self, row: usize, tokens: &[TokenId]) -> RowResult<Vec<f64>> {
        let spelled: Vec<Option<Vec<TokenId>>> =
            tokens.iter().map(|token| self.alive[row].then(|| self.bytes(*token)).flatten()).collect();
        let mut scratch = self.inner.fork(&vec![row; tokens.len()]);
        let rows: Vec<usize> = (0..tokens.len()).collect();
        let before = scratch.score(&rows);
        let spans: Vec<&[TokenId]> =
            spelled.iter().map(|bytes| bytes.as_deref().unwrap_or_default()).collect();
        for status in scratch.advance(&rows, &spans) {
            if let Status::Failed(error) = status {
                return Err(error);
            }
        }
        let after = scratch.score(&rows);
        before
            .into_iter()
            .zip(after)
            .zip(&spelled)
            .map(|((before, after), bytes)| {
                let (before, after) = (before?, after?);
                Ok(if bytes.is_none() || before == f64::NEG_INFINITY {
                    f64::NEG_INFINITY
                } else {
                    after - before
                })
            })
            .collect()
    }

    /// The whole row: a walk of the trie on copies of the inner row, level by level.
    fn row(&self, row: usize) -> RowResult<Row> {
        let mut scratch = self.inner.fork(&[row]);
        // Tokens without bytes change nothing, so that only here they would seem live.
        if !self.alive[row] || scratch.score(&[0]).remove(0)? == f64::NEG_INFINITY {
            return Ok(Row::dead());
        }
        let mut weights = vec![f64::NEG_INFINITY; self.vocab.row_len()];
        let trie = self.vocab.trie();
        // (node, log-weight of the bytes to it), one for each row of `scratch`
        let mut frontier = vec![(0_usize, 0.0_f64)];
        let mut at_root = true;
        while !frontier.is_empty() {
            for &(node, weight) in &frontier {
                for token in &trie.ids()[trie.nodes()[node].ids()] {
                    weights[token.index()] = weight;
                }
            }
            let all: Vec<usize> = (0..frontier.len()).collect();
            let (mut parents, mut bytes, mut next) = (Vec::new(), Vec::new(), Vec::new());
            for (i, inner_row) in scratch.logw_next(&all).into_iter().enumerate() {
                let inner_row = inner_row?;
                if at_root {
                    weights[self.vocab.eos_position()] = inner_row.at(Vocabulary::bytes().eos_position());
                }
                let (node, weight) = frontier[i];
                for child in children(trie, node) {
                    let byte = trie.nodes()[child].byte();
                    let step = add(weight, inner_row.at(usize::from(byte)));
                    if step > f64::NEG_INFINITY {
                        parents.push(i);
                        bytes.push([TokenId(u32::from(byte))]);
                        next.push((child, step));
                    }
                }
            }
            at_root = false;
            scratch.select(&parents);
            let all: Vec<usize> = (0..parents.len()).collect();
            let spans: Vec<&[TokenId]> = bytes.iter().map(<[TokenId; 1]>::as_slice).collect();
            for status in scratch.advance(&all, &spans) {
                if let Status::Failed(error) = status {
                    return Err(error);
                }
            }
            frontier = next;
        }
        Ok(Row::dense(weights))
    }

    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        Ok(match want {
            Want::Row => Answer::Row(self.row(row)?),
            Want::Tokens(tokens) => Answer::Tokens(self.tokens(row, &tokens[i])?),
            Want::Hold => Answer::Held,
            Want::Draw(draws) => Answer::Draw(self.row(row)?.draw(
                self.vocab.eos_position(),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }
}

/// The children of a trie's node.
fn children(trie: &TokenTrie, node: usize) -> impl Iterator<Item = usize> + '_ {
    let end = trie.nodes()[node].end();
    let sibling = move |child: usize| (child < end).then_some(child);
    std::iter::successors(sibling(node + 1), move |child| sibling(trie.nodes()[*child].end()))
}

impl Cursor for CoercedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        Ticket::ready(rows.iter().enumerate().map(|(i, row)| self.answer(*row, &want, i)).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut spelled = Vec::with_capacity(rows.len());
        for (&row, span) in rows.iter().zip(spans) {
            let mut bytes = Vec::new();
            for token in *span {
                match self.bytes(*token) {
                    Some(more) => bytes.extend(more),
                    None => self.alive[row] = false,
                }
            }
            spelled.push(bytes);
        }
        let lost: Vec<usize> = rows.iter().copied().filter(|row| !self.alive[*row]).collect();
        self.inner.release(&lost);
        let spans: Vec<&[TokenId]> = spelled.iter().map(Vec::as_slice).collect();
        let mut statuses = self.inner.advance(rows, &spans);
        for (status, row) in statuses.iter_mut().zip(rows) {
            if !self.alive[*row] {
                *status = Status::Dead;
            }
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.score(rows)
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        match rows.iter().find(|row| !self.alive[**row]) {
            None => self.inner.complete(rows),
            Some(_) => rows
                .iter()
                .map(|row| {
                    if !self.alive[*row] {
                        return Ok(f64::NEG_INFINITY);
                    }
                    self.inner.complete(&[*row]).pop().unwrap_or_else(|| Err(closed()))
                })
                .collect(),
        }
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
        self.alive = ancestors.iter().map(|ancestor| self.alive[*ancestor]).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self {
            inner: self.inner.fork(rows),
            vocab: Arc::clone(&self.vocab),
            alive: rows.iter().map(|row| self.alive[*row]).collect(),
        })
    }

    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
    }
}
