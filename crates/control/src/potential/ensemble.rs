//! Two potentials joined by a mean, or by an extreme.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::ensemble_op::EnsembleOp;
use super::{
    Answer, Claims, Cursor, Demands, Potential, Row, RowResult, Run, Status, Ticket, Want, entrywise,
    score_after,
};
use crate::error::{ControlError, ErrorKind};

/// `prefix = op(prefix₁, prefix₂)`, the same for `complete`; rows are differences of it.
///
/// Unlike a product's factor, a component of weight zero need not end a sequence: under a mean with
/// p > 0 the other one carries on.
#[derive(Clone)]
pub struct Ensemble {
    first: Arc<dyn Potential>,
    second: Arc<dyn Potential>,
    join: Join,
}

#[derive(Clone, Copy, Debug)]
struct Join {
    op: EnsembleOp,
    a: f64,
}

impl Join {
    fn of(self, (x, y): (f64, f64)) -> f64 {
        self.op.join(x, y, self.a)
    }

    /// The log-weight of a step from a joint weight to a pair of weights.
    fn step(self, before: f64, after: (f64, f64)) -> f64 {
        let after = self.of(after);
        if before == f64::NEG_INFINITY || after == f64::NEG_INFINITY {
            return f64::NEG_INFINITY;
        }
        after - before
    }

    /// What a live joint weight says of its components.
    fn support(self) -> Support {
        match self.op {
            EnsembleOp::Power(p) if p > 0.0 => Support::Either,
            EnsembleOp::Max if self.a < 0.5 => Support::First,
            EnsembleOp::Max if self.a > 0.5 => Support::Second,
            EnsembleOp::Max => Support::Either,
            EnsembleOp::Power(_) | EnsembleOp::Min => Support::Both,
        }
    }
}

/// Which components live where the ensemble does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Support {
    Both,
    Either,
    First,
    Second,
}

impl Ensemble {
    /// `op(first, second)` at the share `a`; ½ treats both alike.
    ///
    /// # Errors
    /// Unless `a` is in (0, 1) and the exponent of a power mean is finite, or if the vocabularies
    /// differ.
    pub fn new(
        first: Arc<dyn Potential>,
        second: Arc<dyn Potential>,
        op: EnsembleOp,
        a: f64,
    ) -> Result<Self, ControlError> {
        if !(a > 0.0 && a < 1.0) {
            return Err(ControlError::argument(format!("a: {a} must be between 0 and 1, both excluded")));
        }
        if let EnsembleOp::Power(p) = op
            && !p.is_finite()
        {
            return Err(ControlError::argument(format!("op: the exponent {p} must be finite")));
        }
        if !first.vocab().same_tokens(second.vocab()) || first.vocab().eos() != second.vocab().eos() {
            return Err(ControlError::new(
                ErrorKind::Vocabulary,
                "the components of an ensemble have different vocabularies: coerce one to the other's",
            ));
        }
        Ok(Self { first, second, join: Join { op, a } })
    }

    /// The log-weights that the components give `context`, each its `complete` if that ends with
    /// EOS, else its `prefix`.
    ///
    /// # Errors
    /// Whatever keeps a component from telling.
    pub fn component_logws(&self, context: &[TokenId], run: &Run) -> Result<(f64, f64), ControlError> {
        let weigh = |component: &dyn Potential| {
            let mut cursor = component.open(1, run)?;
            score_after(&mut *cursor, &[0], &[context]).pop().expect("a weight for the one row")
        };
        Ok((weigh(&*self.first)?, weigh(&*self.second)?))
    }
}

impl std::fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ensemble").field("join", &self.join).finish_non_exhaustive()
    }
}

impl Potential for Ensemble {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.first.vocab()
    }

    fn claims(&self) -> Claims {
        let (a, b) = (self.first.claims(), self.second.claims());
        let mean = matches!(self.join.op, EnsembleOp::Power(p) if p > 0.0);
        Claims {
            // A mean of 0 and 1 is neither, unless it is 0.
            boolean: a.boolean && b.boolean && !mean,
            // The completion of a component that carries the prefix carries it too. Two that are
            // both needed may have no completion in common.
            tight: match self.join.support() {
                Support::Either => a.tight && b.tight,
                Support::First => a.tight,
                Support::Second => b.tight,
                Support::Both => false,
            },
            // Only the arithmetic mean is linear.
            mass_exact: self.join.op == EnsembleOp::SUM && a.mass_exact && b.mass_exact,
            // Every operation grows with both weights.
            monotone: a.monotone && b.monotone,
            // Every operation gives 0 for twice 0.
            terminal_only: a.terminal_only && b.terminal_only,
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let mut cursor = EnsembleCursor {
            first: self.first.open(n, run)?,
            second: self.second.open(n, run)?,
            weights: Vec::new(),
            join: self.join,
            boolean: self.claims().boolean,
            vocab: Arc::clone(self.vocab()),
        };
        let rows: Vec<usize> = (0..n).collect();
        cursor.weights = cursor.scores(&rows);
        Ok(Box::new(cursor))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.first.demand(n, max_tokens, demands)?;
        self.second.demand(n, max_tokens, demands)
    }
}

/// Both components' cursors, always at the same sequences, and what these weigh.
struct EnsembleCursor {
    first: Box<dyn Cursor>,
    second: Box<dyn Cursor>,
    weights: Vec<RowResult<(f64, f64)>>,
    join: Join,
    boolean: bool,
    vocab: Arc<Vocabulary>,
}

impl EnsembleCursor {
    fn scores(&mut self, rows: &[usize]) -> Vec<RowResult<(f64, f64)>> {
        let scores = self.first.score(rows).into_iter().zip(self.second.score(rows));
        scores.map(|(a, b)| Ok((a?, b?))).collect()
    }

    /// The row of steps from components that weigh `before`.
    fn row(join: Join, before: (f64, f64), a: &Row, b: &Row, len: usize) -> Row {
        let joint = join.of(before);
        if joint == f64::NEG_INFINITY {
            return Row::dead();
        }
        entrywise::combine(a, b, len, |a, b| join.step(joint, (before.0 + a, before.1 + b)))
    }
}

impl Cursor for EnsembleCursor {
    fn len(&self) -> usize {
        self.first.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let asked = if let Want::Draw(_) = want { Want::Row } else { want.clone() };
        let (first, second) = (self.first.request(rows, asked.clone()), self.second.request(rows, asked));
        let weights: Vec<_> = rows.iter().map(|row| self.weights[*row].clone()).collect();
        let (join, vocab) = (self.join, Arc::clone(&self.vocab));
        let answer = move |i: usize, before: RowResult<(f64, f64)>, a: Answer, b: Answer| {
            let before = before?;
            Ok(match &want {
                Want::Hold => Answer::Held,
                Want::Tokens(_) => {
                    let pairs = a.into_tokens().into_iter().zip(b.into_tokens());
                    let joint = join.of(before);
                    let step = |(a, b)| join.step(joint, (before.0 + a, before.1 + b));
                    Answer::Tokens(pairs.map(step).collect())
                }
                Want::Row => {
                    Answer::Row(Self::row(join, before, &a.into_row(), &b.into_row(), vocab.row_len()))
                }
                Want::Draw(draws) => {
                    Answer::Draw(Self::row(join, before, &a.into_row(), &b.into_row(), vocab.row_len()).draw(
                        vocab.eos_position(),
                        draws.masks.as_ref().map(|masks| &masks[i]),
                        draws.method,
                        &draws.keys[i],
                    ))
                }
            })
        };
        Ticket::deferred(move || {
            let answers = first.wait().into_iter().zip(second.wait()).zip(weights);
            answers.enumerate().map(|(i, ((a, b), before))| answer(i, before, a?, b?)).collect()
        })
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        if !self.boolean {
            return None;
        }
        match self.join.support() {
            Support::First => self.first.masks(rows),
            Support::Second => self.second.masks(rows),
            support => {
                let (first, second) = (self.first.masks(rows)?, self.second.masks(rows)?);
                let join = |(a, b): (Arc<Bitset>, Arc<Bitset>)| {
                    let mut joint = Bitset::clone(&a);
                    match support {
                        Support::Both => joint.intersect(&b),
                        _ => b.iter().for_each(|position| joint.insert(position)),
                    }
                    Arc::new(joint)
                };
                Some(first.into_iter().zip(second).map(join).collect())
            }
        }
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let first = self.first.advance(rows, spans);
        let second = self.second.advance(rows, spans);
        let scores = self.scores(rows);
        let mut dead = Vec::new();
        let mut statuses = Vec::with_capacity(rows.len());
        for (((a, b), score), row) in first.into_iter().zip(second).zip(scores).zip(rows) {
            statuses.push(match (a.and(b), &score) {
                (Status::Failed(error), _) => Status::Failed(error),
                (_, Err(error)) => Status::Failed(error.clone()),
                (_, Ok(weights)) if self.join.of(*weights) == f64::NEG_INFINITY => {
                    dead.push(*row);
                    Status::Dead
                }
                _ => Status::Live,
            });
            self.weights[*row] = score;
        }
        // A component that still lives needs its memory no more.
        self.release(&dead);
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        rows.iter().map(|row| Ok(self.join.of(self.weights[*row].clone()?))).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let completed = self.first.complete(rows).into_iter().zip(self.second.complete(rows));
        completed.map(|(a, b)| Ok(self.join.of((a?, b?)))).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.first.select(ancestors);
        self.second.select(ancestors);
        self.weights = ancestors.iter().map(|ancestor| self.weights[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self {
            first: self.first.fork(rows),
            second: self.second.fork(rows),
            weights: rows.iter().map(|row| self.weights[*row].clone()).collect(),
            join: self.join,
            boolean: self.boolean,
            vocab: Arc::clone(&self.vocab),
        })
    }

    fn release(&mut self, rows: &[usize]) {
        self.first.release(rows);
        self.second.release(rows);
        for row in rows {
            self.weights[*row] = Ok((f64::NEG_INFINITY, f64::NEG_INFINITY));
        }
    }
}
