//! Potentials that read their sequence symbol by symbol, each row into a state of its own.
//!
//! Whoever writes one gives a state that can read, tell its weight and be cloned. A row's state is
//! fed only the row's new symbols. Copies of a row share one state until one of them reads on; only
//! then is it cloned, so that a selection costs nothing and a step costs its own symbols.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::{Answer, Claims, Cursor, Potential, Row, RowResult, Run, Status, Ticket, Want, closed, guarded};
use crate::error::{ControlError, ErrorKind};

/// What one sequence has been read into.
pub trait ParticleState: Send + Sync {
    /// Reads further symbols, none of them the end.
    ///
    /// # Errors
    /// Whatever keeps it from reading. The row fails, and the state is not used again.
    fn update(&mut self, new: &[TokenId]) -> Result<(), ControlError>;

    /// Reads the end.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    fn finish(&mut self) -> Result<(), ControlError>;

    /// The log-weight (nats) of what was read: `prefix`, and after [`finish`](Self::finish)
    /// `complete`. Never `+inf` or NaN.
    fn score(&self) -> f64;

    /// A copy that reads on independently.
    fn clone_box(&self) -> Box<dyn ParticleState>;
}

/// A potential made of [`ParticleState`]s.
///
/// A panic in a state is an error of the row that it happened to.
#[derive(Clone)]
pub struct Stateful {
    vocab: Arc<Vocabulary>,
    claims: Claims,
    start: Arc<dyn Fn() -> Box<dyn ParticleState> + Send + Sync>,
}

impl Stateful {
    /// A potential over `vocab` that promises `claims`; `start` makes the state of an empty sequence.
    ///
    /// # Errors
    /// If the empty sequence weighs nothing, or no weight can be told of it.
    pub fn new(
        vocab: Arc<Vocabulary>,
        claims: Claims,
        start: impl Fn() -> Box<dyn ParticleState> + Send + Sync + 'static,
    ) -> Result<Self, ControlError> {
        let this = Self { vocab, claims, start: Arc::new(start) };
        if this.empty().weight? == f64::NEG_INFINITY {
            return Err(ControlError::new(
                ErrorKind::Contract,
                "start: the empty sequence has weight zero, so that nothing is accepted",
            ));
        }
        Ok(this)
    }

    fn empty(&self) -> Column {
        match guarded("the potential", || {
            let state = (self.start)();
            let weight = told(&*state)?;
            Ok((state, weight))
        }) {
            Ok((state, weight)) => Column { state: Some(Arc::new(state)), weight: Ok(weight), closed: false },
            Err(error) => Column { state: None, weight: Err(error), closed: false },
        }
    }
}

impl std::fmt::Debug for Stateful {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stateful").field("claims", &self.claims).finish_non_exhaustive()
    }
}

impl Potential for Stateful {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        self.claims
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(Box::new(StatefulCursor { vocab: Arc::clone(&self.vocab), rows: vec![self.empty(); n] }))
    }
}

#[derive(Clone)]
struct Column {
    /// None once nothing more can be read: the row has ended, died or failed.
    state: Option<Arc<Box<dyn ParticleState>>>,
    /// `prefix` while open, `complete` once closed.
    weight: RowResult<f64>,
    closed: bool,
}

impl Column {
    fn dead() -> Self {
        Self { state: None, weight: Ok(f64::NEG_INFINITY), closed: false }
    }

    /// Reads a span. Of several tokens only the last is weighed: what a prefix cannot reach, its
    /// extension cannot. A row that has ended keeps its weight, whatever else it should read.
    fn read(&mut self, vocab: &Vocabulary, span: &[TokenId]) -> Status {
        let end = span.iter().position(|token| token.is_eos());
        let symbols = &span[..end.unwrap_or(span.len())];
        let is_live = self.weight.as_ref().is_ok_and(|weight| *weight > f64::NEG_INFINITY);
        if is_live && !self.closed && !span.is_empty() {
            if symbols.iter().any(|token| !vocab.is_member(*token)) {
                *self = Self::dead();
            } else if let Some(state) = self.state.take() {
                self.feed(state, symbols, end.is_some());
            }
        }
        match Status::of(&self.weight) {
            Status::Live if self.closed && end.is_none_or(|end| end + 1 < span.len()) => {
                Status::Failed(closed())
            }
            status => status,
        }
    }

    fn feed(&mut self, mut state: Arc<Box<dyn ParticleState>>, symbols: &[TokenId], ends: bool) {
        self.weight = guarded("the potential", || {
            if Arc::get_mut(&mut state).is_none() {
                state = Arc::new(state.clone_box());
            }
            let own = Arc::get_mut(&mut state).expect("a state that nobody else has");
            if !symbols.is_empty() {
                own.update(symbols)?;
            }
            if ends {
                own.finish()?;
            }
            told(&**own)
        });
        self.closed = ends;
        if !ends && self.weight.as_ref().is_ok_and(|weight| *weight > f64::NEG_INFINITY) {
            self.state = Some(state);
        }
    }

    /// `logw_next` of `token`: the row's own state stays as it is.
    fn next(&self, vocab: &Vocabulary, token: TokenId) -> RowResult<f64> {
        let before = self.weight.clone()?;
        if before == f64::NEG_INFINITY {
            return Ok(before);
        }
        if self.closed {
            return Err(closed());
        }
        let mut copy = self.clone();
        let _ = copy.read(vocab, &[token]);
        Ok(copy.weight? - before)
    }
}

struct StatefulCursor {
    vocab: Arc<Vocabulary>,
    rows: Vec<Column>,
}

impl StatefulCursor {
    fn row(&self, row: usize) -> RowResult<Row> {
        let column = &self.rows[row];
        if column.weight.as_ref().is_ok_and(|weight| *weight == f64::NEG_INFINITY) {
            return Ok(Row::dead());
        }
        let next = |position| column.next(&self.vocab, self.vocab.token_at(position));
        Ok(Row::dense((0..self.vocab.row_len()).map(next).collect::<RowResult<Vec<f64>>>()?))
    }

    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        Ok(match want {
            Want::Hold => Answer::Held,
            Want::Row => Answer::Row(self.row(row)?),
            Want::Tokens(tokens) => {
                let next = |token: &TokenId| self.rows[row].next(&self.vocab, *token);
                Answer::Tokens(tokens[i].iter().map(next).collect::<RowResult<_>>()?)
            }
            Want::Draw(draws) => Answer::Draw(self.row(row)?.draw(
                self.vocab.eos_position(),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }
}

impl Cursor for StatefulCursor {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        Ticket::ready(rows.iter().enumerate().map(|(i, row)| self.answer(*row, &want, i)).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let read = |(row, span): (&usize, &&[TokenId])| self.rows[*row].read(&self.vocab, span);
        rows.iter().zip(spans).map(read).collect()
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
                _ => {
                    let mut copy = column.clone();
                    let _ = copy.read(&self.vocab, &[TokenId::EOS]);
                    copy.weight
                }
            }
        };
        rows.iter().map(complete).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        Box::new(Self { vocab: Arc::clone(&self.vocab), rows })
    }

    fn release(&mut self, rows: &[usize]) {
        for row in rows {
            self.rows[*row] = Column::dead();
        }
    }
}

/// A state's weight, if it is one that may be.
fn told(state: &dyn ParticleState) -> RowResult<f64> {
    let weight = state.score();
    if weight < f64::INFINITY {
        return Ok(weight);
    }
    Err(ControlError::new(
        ErrorKind::Contract,
        format!("a state's score is {weight}: a log-weight is finite or -inf"),
    ))
}
