//! A potential to a power: `p ** β`.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::Dfa;
use lockstep_sample::TokenId;

use super::{Answer, Claims, Cursor, Demands, Potential, RowResult, Run, Status, Ticket, Want, entrywise};
use crate::error::ControlError;

/// `ψ(x)^β`: every log-weight times β; `-inf` stays `-inf` for every β, 0 and negatives included.
///
/// This is no temperature of a model: the weights are not normalised again (see
/// [`Normalized`](super::Normalized)), so they say how much of the mass the power leaves.
#[derive(Clone)]
pub struct Tempered {
    inner: Arc<dyn Potential>,
    beta: f64,
}

impl Tempered {
    /// `inner` to the power of `beta`.
    ///
    /// # Errors
    /// Unless `beta` is finite.
    pub fn new(inner: Arc<dyn Potential>, beta: f64) -> Result<Self, ControlError> {
        if !beta.is_finite() {
            return Err(ControlError::argument(format!("beta: {beta} must be finite")));
        }
        Ok(Self { inner, beta })
    }

    /// Whether all values are the inner potential's: 0 and `-inf` are their own powers.
    fn changes_nothing(&self) -> bool {
        self.beta == 1.0 || self.inner.claims().boolean
    }
}

impl std::fmt::Debug for Tempered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tempered").field("beta", &self.beta).finish_non_exhaustive()
    }
}

impl Potential for Tempered {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.inner.vocab()
    }

    fn claims(&self) -> Claims {
        let inner = self.inner.claims();
        if self.changes_nothing() {
            return inner;
        }
        Claims {
            // The power 0 of any positive weight is 1.
            boolean: self.beta == 0.0,
            // The same sequences are live.
            tight: inner.tight,
            // Powers do not add up.
            mass_exact: false,
            // A boolean potential never rises, by soundness; a power below 0 reverses the order.
            monotone: self.beta == 0.0 || (inner.monotone && self.beta > 0.0),
            // β · 0 = 0.
            terminal_only: inner.terminal_only,
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let inner = self.inner.open(n, run)?;
        if self.changes_nothing() {
            return Ok(inner);
        }
        Ok(Box::new(TemperedCursor { inner, power: Power(self.beta), vocab: Arc::clone(self.inner.vocab()) }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.inner.demand(n, max_tokens, demands)
    }

    fn automaton(&self) -> Option<&Arc<Dfa>> {
        self.inner.automaton().filter(|_| self.changes_nothing())
    }
}

#[derive(Clone, Copy)]
struct Power(f64);

impl Power {
    fn of(self, log_weight: f64) -> f64 {
        if log_weight == f64::NEG_INFINITY {
            return log_weight;
        }
        // The product must not overflow to an infinity; adding 0 makes of -0 a plain 0.
        (self.0 * log_weight).clamp(f64::MIN, f64::MAX) + 0.0
    }
}

/// The inner cursor, whose every answer is raised. It never draws itself: the inner law is another.
struct TemperedCursor {
    inner: Box<dyn Cursor>,
    power: Power,
    vocab: Arc<Vocabulary>,
}

impl TemperedCursor {
    fn raise(&self, weights: Vec<RowResult<f64>>) -> Vec<RowResult<f64>> {
        weights.into_iter().map(|weight| weight.map(|weight| self.power.of(weight))).collect()
    }
}

impl Cursor for TemperedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let (power, vocab) = (self.power, Arc::clone(&self.vocab));
        let asked = if let Want::Draw(_) = want { Want::Row } else { want.clone() };
        let ticket = self.inner.request(rows, asked);
        Ticket::deferred(move || {
            let raise = |(i, answer): (usize, RowResult<Answer>)| {
                Ok(match (answer?, &want) {
                    (Answer::Row(row), Want::Draw(draws)) => {
                        Answer::Draw(entrywise::map(&row, vocab.row_len(), |w| power.of(w)).draw(
                            vocab.eos_position(),
                            draws.masks.as_ref().map(|masks| &masks[i]),
                            draws.method,
                            &draws.keys[i],
                        ))
                    }
                    (Answer::Row(row), _) => {
                        Answer::Row(entrywise::map(&row, vocab.row_len(), |w| power.of(w)))
                    }
                    (Answer::Tokens(weights), _) => {
                        Answer::Tokens(weights.into_iter().map(|weight| power.of(weight)).collect())
                    }
                    (other, _) => other,
                })
            };
            ticket.wait().into_iter().enumerate().map(raise).collect()
        })
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        self.inner.advance(rows, spans)
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let scores = self.inner.score(rows);
        self.raise(scores)
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let completed = self.inner.complete(rows);
        self.raise(completed)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), power: self.power, vocab: Arc::clone(&self.vocab) })
    }

    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
    }
}
