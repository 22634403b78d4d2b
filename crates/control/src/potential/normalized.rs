//! A potential whose next-token weights are made to sum to 1.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Drawn, TokenId};

use super::{
    Answer, Claims, Cursor, Demands, Draws, Potential, Row, RowResult, Run, Status, Ticket, Want, closed,
    entrywise,
};
use crate::error::ControlError;

/// Rows minus their log-sum-exp (LSE): `prefix(x) = inner.prefix(x) - Σ_{i < |x|} LSE_i`, and
/// `complete` subtracts one more; `prefix(ε)` is the inner one. A row without live entries stays so.
///
/// A step that the inner potential forces weighs nothing here: this is the locally normalised model.
/// Each step needs its row's sum. If the inner cursor draws, an unmasked draw brings it, and the row
/// never leaves the engine; otherwise the row is looked at.
#[derive(Clone)]
pub struct Normalized {
    inner: Arc<dyn Potential>,
}

impl Normalized {
    /// `inner`, normalised.
    #[must_use]
    pub fn new(inner: Arc<dyn Potential>) -> Self {
        Self { inner }
    }
}

impl std::fmt::Debug for Normalized {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Normalized").field("claims", &self.claims()).finish_non_exhaustive()
    }
}

impl Potential for Normalized {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.inner.vocab()
    }

    fn claims(&self) -> Claims {
        let inner = self.inner.claims();
        // Whatever is mass-exact is normalised already.
        if inner.mass_exact {
            return inner;
        }
        Claims {
            boolean: false,
            // The same sequences are live.
            tight: inner.tight,
            // A row sums to 1 unless it is dead, and only a live prefix without completion has such.
            mass_exact: inner.tight,
            // No entry of a normalised row is above 0.
            monotone: true,
            // Sums are taken off at every step.
            terminal_only: false,
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let inner = self.inner.open(n, run)?;
        if self.inner.claims().mass_exact {
            return Ok(inner);
        }
        // All rows are the same sequence still, so they share their sum.
        let column = Column { total: Arc::default(), passed: Ok(0.0) };
        Ok(Box::new(NormalizedCursor {
            inner,
            columns: vec![column; n],
            vocab: Arc::clone(self.inner.vocab()),
        }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.inner.demand(n, max_tokens, demands)
    }
}

#[derive(Clone)]
struct Column {
    /// The LSE of the row's next-token weights, once known. Copies of a row share it until they
    /// move, and tickets write to it whenever they are waited for.
    total: Arc<OnceLock<f64>>,
    /// The sum of the LSEs passed, or why one could not be had.
    passed: RowResult<f64>,
}

struct NormalizedCursor {
    inner: Box<dyn Cursor>,
    columns: Vec<Column>,
    vocab: Arc<Vocabulary>,
}

impl NormalizedCursor {
    /// The LSE of each of `rows`; the rows of those that lack it are asked for together.
    fn learn(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let lacks = |row: &usize| self.columns[*row].total.get().is_none();
        let lacking: Vec<usize> = rows.iter().copied().filter(lacks).collect();
        let mut failed = BTreeMap::new();
        if !lacking.is_empty() {
            for (row, answer) in lacking.iter().zip(self.inner.logw_next(&lacking)) {
                match answer {
                    Ok(answer) => {
                        self.columns[*row].total.get_or_init(|| answer.log_total());
                    }
                    Err(error) => {
                        failed.insert(*row, error);
                    }
                }
            }
        }
        let total = |row: &usize| {
            let known = self.columns[*row].total.get().copied();
            known.ok_or_else(|| failed.remove(row).unwrap_or_else(closed))
        };
        rows.iter().map(total).collect()
    }

    /// Whether the LSE of each of `rows` is known.
    fn knows(&self, rows: &[usize]) -> bool {
        rows.iter().all(|row| self.columns[*row].total.get().is_some())
    }
}

/// A log-weight less the LSE of its row.
fn less(log_weight: f64, total: f64) -> f64 {
    if log_weight == f64::NEG_INFINITY { log_weight } else { log_weight - total }
}

/// The answer to `want` for row `i` of a request, from the inner cursor's.
fn answer(inner: Answer, column: &Column, want: &Want, i: usize, vocab: &Vocabulary) -> RowResult<Answer> {
    column.passed.clone()?;
    let normalized = |row: &Row| {
        let total = *column.total.get_or_init(|| row.log_total());
        entrywise::map(row, vocab.row_len(), |weight| less(weight, total))
    };
    let total = || column.total.get().copied().ok_or_else(closed);
    Ok(match (inner, want) {
        (Answer::Row(row), Want::Draw(draws)) => Answer::Draw(normalized(&row).draw(
            vocab.eos_position(),
            draws.masks.as_ref().map(|masks| &masks[i]),
            draws.method,
            &draws.keys[i],
        )),
        (Answer::Row(row), Want::Tokens(tokens)) => {
            let row = normalized(&row);
            let weight = |token: &TokenId| match token.is_eos() || vocab.is_member(*token) {
                true => row.at(vocab.position_of(*token)),
                false => f64::NEG_INFINITY,
            };
            Answer::Tokens(tokens[i].iter().map(weight).collect())
        }
        (Answer::Row(row), _) => Answer::Row(normalized(&row)),
        (Answer::Tokens(weights), _) => {
            let total = total()?;
            Answer::Tokens(weights.into_iter().map(|weight| less(weight, total)).collect())
        }
        (Answer::Draw(drawn), Want::Draw(Draws { masks: None, .. })) => {
            column.total.get_or_init(|| drawn.map_or(f64::NEG_INFINITY, |drawn| drawn.log_mass));
            Answer::Draw(drawn.map(|drawn| Drawn { log_mass: 0.0, ..drawn }))
        }
        (Answer::Draw(drawn), _) => {
            let total = total()?;
            Answer::Draw(drawn.map(|drawn| Drawn { log_mass: less(drawn.log_mass, total), ..drawn }))
        }
        (Answer::Held, _) => Answer::Held,
    })
}

impl Cursor for NormalizedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let asked = match &want {
            Want::Hold => Want::Hold,
            // The mass that an unmasked draw tells is the sum itself.
            Want::Draw(draws) if self.inner.draws() && (draws.masks.is_none() || self.knows(rows)) => {
                want.clone()
            }
            Want::Tokens(_) if self.knows(rows) => want.clone(),
            _ => Want::Row,
        };
        let columns: Vec<Column> = rows.iter().map(|row| self.columns[*row].clone()).collect();
        let (ticket, vocab) = (self.inner.request(rows, asked), Arc::clone(&self.vocab));
        Ticket::deferred(move || {
            let answers = ticket.wait().into_iter().zip(&columns).enumerate();
            answers.map(|(i, (inner, column))| answer(inner?, column, &want, i, &vocab)).collect()
        })
    }

    fn draws(&self) -> bool {
        self.inner.draws()
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut statuses = vec![Status::Live; rows.len()];
        let longest = spans.iter().map(|span| span.len()).max().unwrap_or(0);
        for at in 0..longest {
            let which: Vec<usize> = (0..rows.len()).filter(|i| at < spans[*i].len()).collect();
            let moving: Vec<usize> = which.iter().map(|i| rows[*i]).collect();
            let steps: Vec<&[TokenId]> = which.iter().map(|i| &spans[*i][at..=at]).collect();
            let totals = self.learn(&moving);
            let moved = self.inner.advance(&moving, &steps);
            for ((i, total), status) in which.into_iter().zip(totals).zip(moved) {
                let column = &mut self.columns[rows[i]];
                if !matches!(status, Status::Failed(_)) {
                    column.total = Arc::default();
                }
                statuses[i] = match status {
                    Status::Live => {
                        column.passed = column.passed.clone().and_then(|passed| Ok(passed + total?));
                        column.passed.clone().map_or_else(Status::Failed, |_| Status::Live)
                    }
                    other => other,
                };
            }
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let scores = rows.iter().zip(self.inner.score(rows));
        scores.map(|(row, score)| Ok(less(score?, self.columns[*row].passed.clone()?))).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let totals = self.learn(rows);
        let completed = rows.iter().zip(self.inner.complete(rows)).zip(totals);
        completed
            .map(|((row, complete), total)| {
                Ok(less(less(complete?, self.columns[*row].passed.clone()?), total?))
            })
            .collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
        self.columns = ancestors.iter().map(|ancestor| self.columns[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self {
            inner: self.inner.fork(rows),
            columns: rows.iter().map(|row| self.columns[*row].clone()).collect(),
            vocab: Arc::clone(&self.vocab),
        })
    }

    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
        for row in rows {
            self.columns[*row] = Column { total: Arc::default(), passed: Ok(0.0) };
        }
    }
}
