//! The cursor of potentials that read one token at a time: a column of their states.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::{Answer, Cursor, Row, RowResult, Status, Ticket, Want, closed};

/// The allowed positions in a state.
pub(super) type MaskOf<M> = fn(&M, &<M as Machine>::State) -> Arc<Bitset>;

/// A potential as a machine that steps from state to state. Its answers never fail.
pub(super) trait Machine: Clone + Send + 'static {
    /// What is known of a sequence that is live and has not ended.
    type State: Clone + Send;

    /// What is allowed, if it is boolean and can tell at once.
    const MASK: Option<MaskOf<Self>> = None;

    /// The tokens it reads.
    fn vocab(&self) -> &Vocabulary;

    /// `prefix`, greater than `-inf`.
    fn prefix(&self, state: &Self::State) -> f64;

    /// `complete`.
    fn complete(&self, state: &Self::State) -> f64;

    /// The state after `token`, which is not the end; `None` if that has weight zero.
    fn step(&self, state: &Self::State, token: TokenId) -> Option<Self::State>;

    /// The log-weights of all tokens and the end.
    fn row(&self, state: &Self::State) -> Row;

    /// The log-weights of some tokens, the end among them perhaps.
    fn tokens(&self, state: &Self::State, tokens: &[TokenId]) -> Vec<f64> {
        let (row, vocab) = (self.row(state), self.vocab());
        let weight = |token: &TokenId| match token.is_eos() || vocab.is_member(*token) {
            true => row.at(vocab.position_of(*token)),
            false => f64::NEG_INFINITY,
        };
        tokens.iter().map(weight).collect()
    }
}

#[derive(Clone, Debug)]
enum Slot<S> {
    Open(S),
    /// With its final weight.
    Closed(f64),
    Dead,
}

/// The sequences of a machine.
pub(super) struct States<M: Machine> {
    machine: M,
    rows: Vec<Slot<M::State>>,
}

impl<M: Machine> States<M> {
    /// A cursor of `n` sequences in state `start`.
    pub(super) fn open(machine: M, start: M::State, n: usize) -> Box<dyn Cursor> {
        Box::new(Self { machine, rows: vec![Slot::Open(start); n] })
    }

    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        let state = match &self.rows[row] {
            Slot::Open(state) => Some(state),
            Slot::Dead => None,
            Slot::Closed(_) => return Err(closed()),
        };
        let row = || state.map_or_else(Row::dead, |state| self.machine.row(state));
        Ok(match want {
            Want::Hold => Answer::Held,
            Want::Row => Answer::Row(row()),
            Want::Tokens(tokens) => Answer::Tokens(match state {
                Some(state) => self.machine.tokens(state, &tokens[i]),
                None => vec![f64::NEG_INFINITY; tokens[i].len()],
            }),
            Want::Draw(draws) => Answer::Draw(row().draw(
                self.machine.vocab().eos_position(),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }

    fn read(&mut self, row: usize, span: &[TokenId]) -> Status {
        let mut status = Status::Live;
        for token in span {
            let next = match &self.rows[row] {
                Slot::Open(state) if token.is_eos() => match self.machine.complete(state) {
                    f64::NEG_INFINITY => Slot::Dead,
                    weight => Slot::Closed(weight),
                },
                Slot::Open(state) => self.machine.step(state, *token).map_or(Slot::Dead, Slot::Open),
                Slot::Closed(_) => {
                    status = Status::Failed(closed());
                    continue;
                }
                Slot::Dead => break,
            };
            self.rows[row] = next;
        }
        if let Slot::Dead = self.rows[row] { Status::Dead } else { status }
    }
}

impl<M: Machine> Cursor for States<M> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        Ticket::ready(rows.iter().enumerate().map(|(i, row)| self.answer(*row, &want, i)).collect())
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        let mask = M::MASK?;
        let of = |row: &usize| match &self.rows[*row] {
            Slot::Open(state) => mask(&self.machine, state),
            Slot::Closed(_) | Slot::Dead => Arc::new(Bitset::new(self.machine.vocab().row_len())),
        };
        Some(rows.iter().map(of).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        rows.iter().zip(spans).map(|(row, span)| self.read(*row, span)).collect()
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let score = |row: &usize| match &self.rows[*row] {
            Slot::Open(state) => Ok(self.machine.prefix(state)),
            Slot::Closed(weight) => Ok(*weight),
            Slot::Dead => Ok(f64::NEG_INFINITY),
        };
        rows.iter().map(score).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let complete = |row: &usize| match &self.rows[*row] {
            Slot::Open(state) => Ok(self.machine.complete(state)),
            Slot::Closed(_) => Err(closed()),
            Slot::Dead => Ok(f64::NEG_INFINITY),
        };
        rows.iter().map(complete).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        Box::new(Self { machine: self.machine.clone(), rows })
    }

    fn release(&mut self, rows: &[usize]) {
        for row in rows {
            self.rows[*row] = Slot::Dead;
        }
    }
}
