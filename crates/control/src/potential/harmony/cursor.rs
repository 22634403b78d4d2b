//! The cursor of a constrained Harmony response.

use std::sync::Arc;

use lockstep_sample::{Bitset, TokenId};

use super::Format;
use super::state::{Channel, Place};
use crate::potential::row::add;
use crate::potential::{Answer, Cursor, Draws, Row, RowResult, Status, Ticket, Want, closed};

#[derive(Clone, Debug)]
enum State {
    Open(Place),
    Closed,
    Dead,
}

/// A place for each row, and the base's weights of the messages that have ended.
pub(super) struct HarmonyCursor {
    /// Row i reads the open message of row i; one more, the last, never reads anything.
    base: Box<dyn Cursor>,
    format: Arc<Format>,
    states: Vec<State>,
    ended: Vec<f64>,
    /// The base's weight of an empty message.
    start: RowResult<f64>,
}

impl HarmonyCursor {
    /// Over `base`, which has n + 1 empty rows.
    pub(super) fn new(mut base: Box<dyn Cursor>, format: Arc<Format>, n: usize) -> Self {
        let start = base.score(&[n]).remove(0);
        Self { base, format, states: vec![State::Open(Place::Free); n], ended: vec![0.0; n], start }
    }

    /// The constrained channel that `row` is in.
    fn inside(&self, row: usize) -> Option<Channel> {
        match self.states[row] {
            State::Open(Place::Inside(channel)) => Some(channel),
            _ => None,
        }
    }

    /// The log-weight of `token` where nothing is constrained yet.
    fn free(&self, place: &Place, start: f64, token: TokenId) -> f64 {
        if place.enters(&self.format.control, &self.format.constrained, token).is_some() {
            start
        } else if self.format.is_known(token) {
            0.0
        } else {
            f64::NEG_INFINITY
        }
    }

    fn free_row(&self, place: &Place, start: f64) -> Row {
        let vocab = &self.format.vocab;
        let enters = |position: &usize| {
            let token = vocab.token_at(*position);
            place.enters(&self.format.control, &self.format.constrained, token).is_some()
        };
        match self.format.all.iter().find(enters).filter(|_| start != 0.0) {
            None => Row::bits(Arc::clone(&self.format.all)),
            Some(entry) => {
                let mut weights = Row::bits(Arc::clone(&self.format.all)).to_dense();
                weights[entry] = start;
                Row::dense(weights)
            }
        }
    }

    /// The answer for a row whose base need not be asked.
    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        let weights = match &self.states[row] {
            State::Closed => return Err(closed()),
            State::Dead => Row::dead(),
            State::Open(place) => match want {
                Want::Tokens(tokens) => {
                    let start = self.start.clone()?;
                    let weigh = |token: &TokenId| self.free(place, start, *token);
                    return Ok(Answer::Tokens(tokens[i].iter().map(weigh).collect()));
                }
                _ => self.free_row(place, self.start.clone()?),
            },
        };
        Ok(match want {
            Want::Hold => Answer::Held,
            Want::Row => Answer::Row(weights),
            Want::Tokens(tokens) => Answer::Tokens(vec![f64::NEG_INFINITY; tokens[i].len()]),
            Want::Draw(draws) => draw(&weights, &self.format, draws, i),
        })
    }

    /// Advances each row by one token.
    fn step(&mut self, moves: &[(usize, TokenId)]) -> Vec<Status> {
        let mut statuses: Vec<Status> = moves.iter().map(|_| Status::Live).collect();
        // Indices into `moves`.
        let (mut entering, mut reading, mut ending) = (Vec::new(), Vec::new(), Vec::new());
        for (i, &(row, token)) in moves.iter().enumerate() {
            let place = match &mut self.states[row] {
                State::Closed => {
                    statuses[i] = Status::Failed(closed());
                    continue;
                }
                State::Dead => {
                    statuses[i] = Status::Dead;
                    continue;
                }
                State::Open(place) => place,
            };
            let (control, format) = (&self.format.control, &self.format);
            match place {
                Place::Inside(Channel::Final) if token.is_eos() => ending.push(i),
                Place::Inside(Channel::Final) => reading.push(i),
                Place::Inside(_) if token == control.end => ending.push(i),
                Place::Inside(_) if !token.is_eos() => reading.push(i),
                Place::Inside(_) => self.states[row] = State::Dead,
                _ if !format.is_known(token) => self.states[row] = State::Dead,
                _ if token.is_eos() => self.states[row] = State::Closed,
                place => match place.enters(control, &format.constrained, token) {
                    Some(channel) => {
                        *place = Place::Inside(channel);
                        entering.push(i);
                    }
                    None => {
                        let before = std::mem::replace(place, Place::Free);
                        *place = before.after(control, &format.vocab, token);
                    }
                },
            }
        }
        self.enter(moves, &entering, &mut statuses);
        let rows: Vec<usize> = reading.iter().map(|i| moves[*i].0).collect();
        let spans: Vec<&[TokenId]> = reading.iter().map(|i| std::slice::from_ref(&moves[*i].1)).collect();
        let read = self.base.advance(&rows, &spans);
        for (i, status) in reading.into_iter().zip(read) {
            if let Status::Dead = status {
                self.states[moves[i].0] = State::Dead;
            }
            statuses[i] = status;
        }
        let rows: Vec<usize> = ending.iter().map(|i| moves[*i].0).collect();
        let completed = self.base.complete(&rows);
        for (i, completed) in ending.into_iter().zip(completed) {
            let (row, token) = moves[i];
            match completed {
                Err(error) => statuses[i] = Status::Failed(error),
                Ok(f64::NEG_INFINITY) => self.states[row] = State::Dead,
                Ok(weight) => {
                    self.ended[row] += weight;
                    self.states[row] = if token.is_eos() { State::Closed } else { State::Open(Place::Free) };
                }
            }
        }
        for (status, (row, _)) in statuses.iter_mut().zip(moves) {
            if let (State::Dead, Status::Live) = (&self.states[*row], &status) {
                *status = Status::Dead;
            }
        }
        statuses
    }

    /// Gives the rows that enter a message an empty row of the base.
    fn enter(&mut self, moves: &[(usize, TokenId)], entering: &[usize], statuses: &mut [Status]) {
        if entering.is_empty() {
            return;
        }
        let n = self.states.len();
        let mut ancestors: Vec<usize> = (0..=n).collect();
        for i in entering {
            ancestors[moves[*i].0] = n;
            if let Err(error) = &self.start {
                statuses[*i] = Status::Failed(error.clone());
            }
        }
        self.base.select(&ancestors);
    }
}

impl Cursor for HarmonyCursor {
    fn len(&self) -> usize {
        self.states.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let mut asked = Vec::new();
        let mut answers = Vec::with_capacity(rows.len());
        for (i, row) in rows.iter().enumerate() {
            match self.inside(*row) {
                Some(channel) => {
                    asked.push((i, *row, channel));
                    answers.push(None);
                }
                None => answers.push(Some(self.answer(*row, &want, i))),
            }
        }
        if asked.is_empty() {
            return Ticket::ready(answers.into_iter().flatten().collect());
        }
        let inner = match &want {
            Want::Hold => Want::Hold,
            Want::Row | Want::Draw(_) => Want::Row,
            Want::Tokens(tokens) => {
                let ask = |(i, _, channel): &(usize, usize, Channel)| {
                    tokens[*i].iter().map(|token| self.format.asked(*channel, *token)).collect()
                };
                Want::Tokens(asked.iter().map(ask).collect())
            }
        };
        let inside: Vec<usize> = asked.iter().map(|(_, row, _)| *row).collect();
        let ticket = self.base.request(&inside, inner);
        let format = Arc::clone(&self.format);
        Ticket::deferred(move || {
            for ((i, _, channel), answer) in asked.into_iter().zip(ticket.wait()) {
                answers[i] = Some(answer.map(|answer| format.answered(channel, answer, &want, i)));
            }
            answers.into_iter().flatten().collect()
        })
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        let (eos, end) = (self.format.vocab.eos_position(), self.format.end_position());
        let inside: Vec<usize> = rows.iter().copied().filter(|row| self.inside(*row).is_some()).collect();
        // Asked even if no row needs it: a base that cannot tell makes no mask at all.
        let pristine = self.states.len();
        self.base.masks(&[pristine])?;
        let mut of_base = self.base.masks(&inside)?.into_iter();
        let nothing = Arc::new(Bitset::new(self.format.vocab.row_len()));
        let mask = |row: &usize| match self.states[*row] {
            State::Open(Place::Inside(Channel::Final)) => of_base.next(),
            State::Open(Place::Inside(_)) => {
                let own = of_base.next()?;
                let mut mask = Bitset::clone(&own);
                if mask.contains(eos) {
                    mask.insert(end)
                } else {
                    mask.remove(end)
                }
                mask.remove(eos);
                Some(Arc::new(mask))
            }
            State::Open(_) => Some(Arc::clone(&self.format.all)),
            State::Closed | State::Dead => Some(Arc::clone(&nothing)),
        };
        rows.iter().map(mask).collect()
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut statuses = vec![Status::Live; rows.len()];
        let longest = spans.iter().map(|span| span.len()).max().unwrap_or(0);
        for at in 0..longest {
            let (which, moves): (Vec<usize>, Vec<(usize, TokenId)>) =
                spans.iter().enumerate().filter_map(|(i, span)| Some((i, (rows[i], *span.get(at)?)))).unzip();
            for (i, status) in which.into_iter().zip(self.step(&moves)) {
                statuses[i] = status;
            }
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let base = self.base.score(rows);
        let score = |(row, base): (&usize, RowResult<f64>)| match self.states[*row] {
            State::Dead => Ok(f64::NEG_INFINITY),
            State::Open(Place::Inside(_)) => Ok(add(self.ended[*row], base?)),
            State::Open(_) | State::Closed => Ok(self.ended[*row]),
        };
        rows.iter().zip(base).map(score).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let last = |row: &usize| self.inside(*row) == Some(Channel::Final);
        let asked: Vec<usize> = rows.iter().copied().filter(last).collect();
        let mut completed = self.base.complete(&asked).into_iter();
        let mut complete = |row: &usize| match self.states[*row] {
            State::Dead | State::Open(Place::Inside(Channel::Analysis | Channel::Commentary)) => {
                Ok(f64::NEG_INFINITY)
            }
            State::Open(Place::Inside(Channel::Final)) => {
                Ok(add(self.ended[*row], completed.next().unwrap_or_else(|| Err(closed()))?))
            }
            State::Open(_) => Ok(self.ended[*row]),
            State::Closed => Err(closed()),
        };
        rows.iter().map(&mut complete).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        let pristine = self.states.len();
        self.base.select(&[ancestors, &[pristine]].concat());
        self.states = ancestors.iter().map(|ancestor| self.states[*ancestor].clone()).collect();
        self.ended = ancestors.iter().map(|ancestor| self.ended[*ancestor]).collect();
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        let pristine = self.states.len();
        Box::new(Self {
            base: self.base.fork(&[rows, &[pristine]].concat()),
            format: Arc::clone(&self.format),
            states: rows.iter().map(|row| self.states[*row].clone()).collect(),
            ended: rows.iter().map(|row| self.ended[*row]).collect(),
            start: self.start.clone(),
        })
    }

    fn release(&mut self, rows: &[usize]) {
        self.base.release(rows);
        rows.iter().for_each(|row| self.states[*row] = State::Dead);
    }
}

impl Format {
    /// What to ask the base for, where `token` is wanted in a message of `channel`. Whatever weighs
    /// nothing there is asked as an id that the base does not have.
    fn asked(&self, channel: Channel, token: TokenId) -> TokenId {
        match channel {
            Channel::Final => token,
            _ if token == self.control.end => TokenId::EOS,
            _ if token.is_eos() => TokenId(u32::MAX - 1),
            _ => token,
        }
    }

    /// The base's answer for a row in a message of `channel`, as this potential's.
    fn answered(&self, channel: Channel, answer: Answer, want: &Want, i: usize) -> Answer {
        match want {
            Want::Hold | Want::Tokens(_) => answer,
            Want::Row => Answer::Row(self.moved(channel, answer.into_row())),
            Want::Draw(draws) => draw(&self.moved(channel, answer.into_row()), self, draws, i),
        }
    }

    /// The base's row, with the end's weight where `channel` has its end.
    fn moved(&self, channel: Channel, row: Row) -> Row {
        if channel == Channel::Final {
            return row;
        }
        let (eos, end) = (self.vocab.eos_position(), self.end_position());
        let entries = row.entries();
        let kept = entries.log_weights().iter().enumerate().map(|(i, w)| (entries.position(i), *w));
        let mut kept: Vec<(u32, f64)> = kept
            .filter(|(position, w)| *w > f64::NEG_INFINITY && ![eos, end].contains(position))
            .filter_map(|(position, w)| Some((u32::try_from(position).ok()?, w)))
            .collect();
        let weight = row.at(eos);
        if let (true, Ok(end)) = (weight > f64::NEG_INFINITY, u32::try_from(end)) {
            kept.insert(kept.partition_point(|(position, _)| *position < end), (end, weight));
        }
        let (positions, weights): (Vec<u32>, Vec<f64>) = kept.into_iter().unzip();
        Row::sparse(positions, weights)
    }
}

fn draw(row: &Row, format: &Format, draws: &Draws, i: usize) -> Answer {
    let mask = draws.masks.as_ref().map(|masks| &masks[i]);
    Answer::Draw(row.draw(format.vocab.eos_position(), mask, draws.method, &draws.keys[i]))
}
