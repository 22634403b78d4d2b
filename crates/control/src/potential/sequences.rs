//! Potentials given as functions of whole sequences, with the default cursor.
//!
//! Whoever writes a potential needs no cursor: `prefix` and `complete` of a whole sequence are
//! enough. The default cursor keeps each row's tokens and its last prefix weight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::{Answer, Claims, Cursor, Potential, Row, RowResult, Run, Status, Ticket, Want, closed, guarded};
use crate::error::ControlError;

/// A potential as a function of whole sequences. Values are natural logs; see the laws of
/// [`crate::potential`].
pub trait SequencePotential: Send + Sync {
    /// The tokens it reads.
    fn vocab(&self) -> &Arc<Vocabulary>;

    /// What it promises.
    fn claims(&self) -> Claims {
        Claims::default()
    }

    /// `ln ψ(context)`. The context holds no end symbol.
    ///
    /// # Errors
    /// Whatever keeps it from telling.
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError>;

    /// `ln ψ(context · EOS)`.
    ///
    /// # Errors
    /// Whatever keeps it from telling.
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError>;
}

/// A [`SequencePotential`] as a [`Potential`], with the default cursor.
///
/// A panic in the wrapped potential is an error of the row that it happened to. A whole row of
/// next-token weights takes a call for each token; over more than 1,000 of them the first one logs
/// the advice to use AWRS, which asks for few.
#[derive(Debug)]
pub struct FromSequences<P> {
    potential: Arc<P>,
    /// Whether its users have been told that rows are dear.
    advised: Arc<AtomicBool>,
}

/// Rows of more tokens than this are dear.
const DEAR_ROW: usize = 1000;

impl<P: SequencePotential + 'static> FromSequences<P> {
    /// Wraps `potential`.
    #[must_use]
    pub fn new(potential: P) -> Self {
        Self { potential: Arc::new(potential), advised: Arc::default() }
    }
}

impl<P: SequencePotential + 'static> Potential for FromSequences<P> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.potential.vocab()
    }

    fn claims(&self) -> Claims {
        self.potential.claims()
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let weight = guarded("the potential", || self.potential.prefix(&[]));
        let row = Column { tokens: Vec::new(), weight, closed: false };
        let (potential, advised) = (Arc::clone(&self.potential), Arc::clone(&self.advised));
        Ok(Box::new(SequencesCursor { potential, advised, rows: vec![row; n] }))
    }
}

#[derive(Clone)]
struct Column {
    tokens: Vec<TokenId>,
    /// `prefix` while open, `complete` once closed.
    weight: RowResult<f64>,
    closed: bool,
}

struct SequencesCursor<P> {
    potential: Arc<P>,
    advised: Arc<AtomicBool>,
    rows: Vec<Column>,
}

impl<P: SequencePotential> SequencesCursor<P> {
    /// `logw_next` of `token` after `row`.
    fn next(&self, row: &Column, token: TokenId) -> RowResult<f64> {
        let before = row.weight.clone()?;
        if before == f64::NEG_INFINITY {
            return Ok(before);
        }
        if row.closed {
            return Err(closed());
        }
        Ok(self.extended(&row.tokens, token)? - before)
    }

    /// The weight of `tokens` and one more.
    fn extended(&self, tokens: &[TokenId], token: TokenId) -> RowResult<f64> {
        if token.is_eos() {
            return guarded("the potential", || self.potential.complete(tokens));
        }
        if !self.potential.vocab().is_member(token) {
            return Ok(f64::NEG_INFINITY);
        }
        guarded("the potential", || self.potential.prefix(&[tokens, &[token]].concat()))
    }

    fn row(&self, row: &Column) -> RowResult<Row> {
        let vocab = self.potential.vocab();
        if vocab.len() > DEAR_ROW && !self.advised.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a row of a potential without a cursor of its own takes {} calls: use the sampler awrs, which asks for few tokens",
                vocab.row_len()
            );
        }
        let weights: RowResult<Vec<f64>> =
            (0..vocab.row_len()).map(|position| self.next(row, vocab.token_at(position))).collect();
        Ok(Row::dense(weights?))
    }

    fn answer(&self, row: &Column, want: &Want, i: usize) -> RowResult<Answer> {
        Ok(match want {
            Want::Hold => Answer::Held,
            Want::Row => Answer::Row(self.row(row)?),
            Want::Tokens(tokens) => Answer::Tokens(
                tokens[i].iter().map(|token| self.next(row, *token)).collect::<RowResult<_>>()?,
            ),
            Want::Draw(draws) => Answer::Draw(self.row(row)?.draw(
                self.potential.vocab().eos_position(),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }
}

impl<P: SequencePotential + 'static> Cursor for SequencesCursor<P> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let answers = rows.iter().enumerate().map(|(i, row)| self.answer(&self.rows[*row], &want, i));
        Ticket::ready(answers.collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut statuses = Vec::with_capacity(rows.len());
        for (&row, span) in rows.iter().zip(spans) {
            let mut column = self.rows[row].clone();
            // Only the end of a span is weighed: what a prefix cannot reach, its extension cannot.
            let dead = column.weight.as_ref().is_ok_and(|weight| *weight == f64::NEG_INFINITY);
            if let Some((last, before)) = span.split_last().filter(|_| !dead) {
                if column.closed || before.iter().any(|token| token.is_eos()) {
                    column.weight = Err(closed());
                } else if before.iter().any(|token| !self.potential.vocab().is_member(*token)) {
                    column.weight = Ok(f64::NEG_INFINITY);
                } else if column.weight.is_ok() {
                    column.tokens.extend(before);
                    column.weight = self.extended(&column.tokens, *last);
                    column.closed = last.is_eos();
                    if !column.closed {
                        column.tokens.push(*last);
                    }
                }
            }
            statuses.push(Status::of(&column.weight));
            self.rows[row] = column;
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        rows.iter().map(|row| self.rows[*row].weight.clone()).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let complete = |row: &usize| {
            let column = &self.rows[*row];
            match column.weight.clone()? {
                f64::NEG_INFINITY => Ok(f64::NEG_INFINITY),
                _ if column.closed => Err(closed()),
                _ => self.extended(&column.tokens, TokenId::EOS),
            }
        };
        rows.iter().map(complete).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        Box::new(Self { potential: Arc::clone(&self.potential), advised: Arc::clone(&self.advised), rows })
    }

    fn release(&mut self, rows: &[usize]) {
        for row in rows {
            self.rows[*row] = Column { tokens: Vec::new(), weight: Ok(f64::NEG_INFINITY), closed: false };
        }
    }
}
