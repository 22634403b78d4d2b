//! Log-weighted finite-state automata over bytes.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::{Forward, RegexError, RegexOptions, WeightedArc};
use lockstep_sample::TokenId;

use super::{Answer, Claims, Cursor, Potential, Row, RowResult, Run, Status, Ticket, Want, closed};
use crate::error::ControlError;

/// The weights of a log-weighted automaton over the 256 bytes: `complete` is the sum over a text's
/// paths, `prefix` the total weight of all texts that begin so.
///
/// Every state can reach acceptance, so a live prefix has a completion.
#[derive(Clone, Debug)]
pub struct Wfsa {
    wfsa: Arc<lockstep_grammar::Wfsa>,
    vocab: Arc<Vocabulary>,
}

impl Wfsa {
    /// The weights of an automaton.
    #[must_use]
    pub fn new(wfsa: impl Into<Arc<lockstep_grammar::Wfsa>>) -> Self {
        Self { wfsa: wfsa.into(), vocab: Vocabulary::bytes() }
    }

    /// The automaton with these arcs, initial and final weights (state, natural logarithm).
    ///
    /// # Errors
    /// As [`lockstep_grammar::Wfsa::from_arcs`]: among others if the texts from some state weigh
    /// infinitely much; the error names the state.
    pub fn from_arcs(
        arcs: &[WeightedArc],
        initial: &[(u32, f64)],
        finals: &[(u32, f64)],
    ) -> Result<Self, RegexError> {
        Ok(Self::new(lockstep_grammar::Wfsa::from_arcs(arcs, initial, finals)?))
    }

    /// The texts that `pattern` matches as a whole, generated character by character, each option
    /// of a state as likely as any other. Characters are those of [`RegexOptions::charset`], by
    /// default the 100 printable ASCII characters of Python's `string.printable`.
    ///
    /// # Errors
    /// Naming the construct and its offset in the pattern, or the limit that was exceeded; an
    /// empty language is an error too.
    pub fn from_regex(pattern: &str, options: &RegexOptions) -> Result<Self, RegexError> {
        Ok(Self::new(lockstep_grammar::Wfsa::from_regex(pattern, options)?))
    }

    /// The automaton.
    #[must_use]
    pub fn weights(&self) -> &Arc<lockstep_grammar::Wfsa> {
        &self.wfsa
    }
}

impl Potential for Wfsa {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        Claims { tight: true, mass_exact: true, monotone: true, ..Claims::default() }
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let start = State::Open(Arc::new(self.wfsa.start().clone()));
        Ok(Box::new(WfsaCursor { potential: self.clone(), rows: vec![start; n] }))
    }
}

#[derive(Clone, Debug)]
enum State {
    Open(Arc<Forward>),
    /// The weight of the text that has ended.
    Closed(f64),
    Dead,
}

/// Forward weights in a column, shared by rows of equal origin.
#[derive(Clone, Debug)]
struct WfsaCursor {
    potential: Wfsa,
    rows: Vec<State>,
}

impl WfsaCursor {
    /// The next-token log-weights after `forward`, as ascending positions and weights.
    fn next(&self, forward: &Forward) -> (Vec<u32>, Vec<f64>) {
        let wfsa = &self.potential.wfsa;
        let (mut positions, mut weights): (Vec<u32>, Vec<f64>) =
            wfsa.log_shares(forward).into_iter().map(|(byte, share)| (u32::from(byte), share)).unzip();
        let stop = wfsa.complete(forward) - forward.log_total();
        if stop > f64::NEG_INFINITY {
            // The end stands behind all bytes.
            positions.extend(u32::try_from(self.potential.vocab.eos_position()));
            weights.push(stop);
        }
        (positions, weights)
    }

    fn row(&self, row: usize) -> RowResult<Row> {
        match &self.rows[row] {
            State::Open(forward) => {
                let (positions, weights) = self.next(forward);
                Ok(Row::sparse(positions, weights))
            }
            State::Dead => Ok(Row::dead()),
            State::Closed(_) => Err(closed()),
        }
    }

    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        let vocab = &self.potential.vocab;
        let next = self.row(row)?;
        Ok(match want {
            Want::Row => Answer::Row(next),
            Want::Hold => Answer::Held,
            Want::Tokens(tokens) => {
                let weight = |token: &TokenId| {
                    let known = token.is_eos() || vocab.is_member(*token);
                    if known { next.at(vocab.position_of(*token)) } else { f64::NEG_INFINITY }
                };
                Answer::Tokens(tokens[i].iter().map(weight).collect())
            }
            Want::Draw(draws) => Answer::Draw(next.draw(
                vocab.eos_position(),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }

    /// The state of a row after one more token.
    fn step(&self, forward: &Forward, token: TokenId) -> State {
        if token.is_eos() {
            let weight = self.potential.wfsa.complete(forward);
            return if weight > f64::NEG_INFINITY { State::Closed(weight) } else { State::Dead };
        }
        let Ok(byte) = u8::try_from(token.0) else { return State::Dead };
        let next = self.potential.wfsa.next(forward, byte);
        if next.log_total() > f64::NEG_INFINITY { State::Open(Arc::new(next)) } else { State::Dead }
    }
}

impl Cursor for WfsaCursor {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        Ticket::ready(rows.iter().enumerate().map(|(i, row)| self.answer(*row, &want, i)).collect())
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut statuses = Vec::with_capacity(rows.len());
        for (&row, span) in rows.iter().zip(spans) {
            let mut status = Status::Live;
            for token in *span {
                match &self.rows[row] {
                    State::Open(forward) => self.rows[row] = self.step(forward, *token),
                    State::Closed(_) => status = Status::Failed(closed()),
                    State::Dead => {}
                }
            }
            if matches!(self.rows[row], State::Dead) {
                status = Status::Dead;
            }
            statuses.push(status);
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let score = |row: &usize| match &self.rows[*row] {
            State::Open(forward) => Ok(forward.log_total()),
            State::Closed(weight) => Ok(*weight),
            State::Dead => Ok(f64::NEG_INFINITY),
        };
        rows.iter().map(score).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let complete = |row: &usize| match &self.rows[*row] {
            State::Open(forward) => Ok(self.potential.wfsa.complete(forward)),
            State::Closed(_) => Err(closed()),
            State::Dead => Ok(f64::NEG_INFINITY),
        };
        rows.iter().map(complete).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor].clone()).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        Box::new(Self { potential: self.potential.clone(), rows })
    }

    fn release(&mut self, rows: &[usize]) {
        for row in rows {
            self.rows[*row] = State::Dead;
        }
    }
}
