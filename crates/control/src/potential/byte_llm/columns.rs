//! Rows over distinct beams, beams over distinct histories of the model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::BeamParams;
use super::beam::{Extended, Hypothesis, ROOT, Reads};
use super::heal::Search;
use crate::error::ControlError;
use crate::potential::{Answer, Answers, Cursor, Row, RowResult, Status, Ticket, Want, closed};

/// What all rows with the same bytes share.
#[derive(Clone, Debug)]
struct Beam {
    /// Σ of row entries along the bytes.
    prefix: f64,
    hypotheses: Vec<Hypothesis>,
    /// Once the model has been asked.
    extended: Option<RowResult<Extended>>,
}

#[derive(Clone, Debug)]
pub(super) enum Slot {
    Open { beam: usize },
    Closed { score: f64 },
    Dead,
}

/// Where a request's answers are put.
pub(super) type Desk = Arc<Mutex<Option<Answers>>>;

/// A request whose rows wait for the model.
struct Flight {
    ticket: Ticket,
    /// The histories that the ticket tells of.
    histories: Vec<usize>,
    /// The beams to extend, and their hypotheses with those at the root.
    beams: Vec<(usize, Vec<Hypothesis>)>,
    rows: Vec<usize>,
    want: Want,
    desk: Desk,
}

pub(super) struct Columns {
    params: BeamParams,
    /// One row for each history.
    inner: Box<dyn Cursor>,
    reads: Reads,
    beams: Vec<Beam>,
    pub(super) slots: Vec<Slot>,
    flight: Option<Flight>,
}

impl Columns {
    /// `n` empty rows over `inner`, the model's cursor with one row.
    pub(super) fn new(inner: Box<dyn Cursor>, vocab: &Vocabulary, params: BeamParams, n: usize) -> Self {
        let start = Beam { prefix: 0.0, hypotheses: vec![Hypothesis::at_root(0, 0.0)], extended: None };
        let (trie, eos_position) = (Arc::clone(vocab.trie()), vocab.eos_position());
        Self {
            params,
            inner,
            reads: Reads { trie, eos_position, rows: vec![None] },
            beams: vec![start],
            slots: vec![Slot::Open { beam: 0 }; n],
            flight: None,
        }
    }

    /// Asks the model for what extends the beams of `rows`; what they want is put on the desk.
    pub(super) fn request(&mut self, rows: &[usize], want: Want) -> Desk {
        self.settle();
        let desk = Desk::default();
        let mut waiting: Vec<usize> = rows.iter().filter_map(|row| self.open(*row)).collect();
        waiting.sort_unstable();
        waiting.dedup();
        waiting.retain(|beam| self.beams[*beam].extended.is_none());
        if waiting.is_empty() {
            put(&desk, self.answers(rows, &want));
            return desk;
        }
        let mut ends: BTreeMap<(usize, TokenId), usize> = BTreeMap::new();
        let first = self.reads.rows.len();
        let mut beams = Vec::with_capacity(waiting.len());
        let mut histories: Vec<usize> = Vec::new();
        for beam in waiting {
            let mut hypotheses = self.beams[beam].hypotheses.clone();
            for hypothesis in &self.beams[beam].hypotheses {
                if self.reads.rows[hypothesis.history].is_none() && !histories.contains(&hypothesis.history) {
                    histories.push(hypothesis.history);
                }
                for (token, logw) in hypothesis.ends(&self.reads) {
                    let next = first + ends.len();
                    let history = *ends.entry((hypothesis.history, token)).or_insert(next);
                    hypotheses.push(Hypothesis::at_root(history, logw));
                }
            }
            beams.push((beam, hypotheses));
        }
        let mut grown: Vec<((usize, TokenId), usize)> = ends.into_iter().collect();
        grown.sort_unstable_by_key(|(_, history)| *history);
        histories.extend(self.grow(&grown.iter().map(|(from, _)| *from).collect::<Vec<_>>()));
        let ticket = self.inner.request(&histories, Want::Row);
        self.flight =
            Some(Flight { ticket, histories, beams, rows: rows.to_vec(), want, desk: Arc::clone(&desk) });
        desk
    }

    /// New histories, each a known one and a token.
    fn grow(&mut self, from: &[(usize, TokenId)]) -> Vec<usize> {
        let first = self.reads.rows.len();
        let ancestors: Vec<usize> = (0..first).chain(from.iter().map(|(history, _)| *history)).collect();
        self.inner.select(&ancestors);
        let rows: Vec<usize> = (first..ancestors.len()).collect();
        let spans: Vec<&[TokenId]> = from.iter().map(|(_, token)| std::slice::from_ref(token)).collect();
        // A row that fails here says so again when it is asked.
        let _ = self.inner.advance(&rows, &spans);
        self.reads.rows.resize(ancestors.len(), None);
        rows
    }

    /// Notes what the model told of `histories`; the errors among it.
    fn note(&mut self, histories: &[usize], answers: Answers) -> BTreeMap<usize, ControlError> {
        let mut errors = BTreeMap::new();
        for (history, answer) in histories.iter().zip(answers) {
            match answer {
                Ok(answer) => self.reads.rows[*history] = Some(answer.into_row()),
                Err(error) => {
                    errors.insert(*history, error);
                }
            }
        }
        errors
    }

    /// Waits for the request in flight, if any, and answers it.
    pub(super) fn settle(&mut self) {
        let Some(Flight { ticket, histories, beams, rows, want, desk }) = self.flight.take() else { return };
        let errors = self.note(&histories, ticket.wait());
        let failed = |hypotheses: &[Hypothesis]| {
            hypotheses.iter().find_map(|hypothesis| errors.get(&hypothesis.history).cloned())
        };
        let mut extending = Vec::with_capacity(beams.len());
        for (beam, hypotheses) in beams {
            match failed(&hypotheses) {
                Some(error) => self.beams[beam].extended = Some(Err(error)),
                None => extending.push((beam, hypotheses)),
            }
        }
        let healed = self.heal(&extending);
        for ((beam, hypotheses), healed) in extending.into_iter().zip(healed) {
            let extended = healed.map(|healed| Extended::new(&self.reads, hypotheses, healed));
            self.beams[beam].extended = Some(extended);
        }
        put(&desk, self.answers(&rows, &want));
    }

    /// For each beam without a hypothesis at the root the best one, if there is any. The beams'
    /// searches ask the model together.
    fn heal(&mut self, beams: &[(usize, Vec<Hypothesis>)]) -> Vec<RowResult<Option<Hypothesis>>> {
        let mut healed = vec![Ok(None); beams.len()];
        let lacking = |(_, (_, hypotheses)): &(usize, &(usize, Vec<Hypothesis>))| {
            self.params.heal && hypotheses.iter().all(|hypothesis| hypothesis.node != ROOT)
        };
        let mut searches: Vec<(usize, Search)> = beams
            .iter()
            .enumerate()
            .filter(lacking)
            .map(|(i, (_, hypotheses))| (i, Search::new(&self.reads, hypotheses)))
            .collect();
        loop {
            let (mut going_on, mut asked) = (Vec::new(), Vec::new());
            for (i, mut search) in searches {
                if let Some(next) = search.next() {
                    going_on.push((i, search));
                    asked.push(next);
                }
            }
            if asked.is_empty() {
                return healed;
            }
            let histories = self.grow(&asked);
            let answers = self.inner.request(&histories, Want::Row).wait();
            let errors = self.note(&histories, answers);
            searches = Vec::with_capacity(going_on.len());
            for ((i, mut search), history) in going_on.into_iter().zip(histories) {
                if let Some(error) = errors.get(&history) {
                    healed[i] = Err(error.clone());
                } else if let Some(found) = search.go_on(&self.reads, history) {
                    healed[i] = Ok(Some(found));
                } else {
                    searches.push((i, search));
                }
            }
        }
    }

    /// The beam of an open row.
    fn open(&self, row: usize) -> Option<usize> {
        match self.slots[row] {
            Slot::Open { beam } => Some(beam),
            Slot::Closed { .. } | Slot::Dead => None,
        }
    }

    /// The row of log-weights over bytes of an extended beam.
    fn weights(&self, beam: usize) -> RowResult<&Row> {
        match self.beams[beam].extended.as_ref().expect("a beam that the model was asked for") {
            Ok(extended) => Ok(&extended.row),
            Err(error) => Err(error.clone()),
        }
    }

    /// `prefix` of an open row, `complete` of one that has ended.
    pub(super) fn score(&self, row: usize) -> RowResult<f64> {
        match self.slots[row] {
            Slot::Open { beam } => match &self.beams[beam].extended {
                Some(Err(error)) => Err(error.clone()),
                _ => Ok(self.beams[beam].prefix),
            },
            Slot::Closed { score } => Ok(score),
            Slot::Dead => Ok(f64::NEG_INFINITY),
        }
    }

    /// `complete` of a row whose beam is extended.
    pub(super) fn complete(&self, row: usize) -> RowResult<f64> {
        match self.slots[row] {
            Slot::Open { beam } => {
                Ok(self.beams[beam].prefix + self.weights(beam)?.at(position(TokenId::EOS)))
            }
            Slot::Closed { .. } => Err(closed()),
            Slot::Dead => Ok(f64::NEG_INFINITY),
        }
    }

    fn answers(&self, rows: &[usize], want: &Want) -> Answers {
        rows.iter().enumerate().map(|(i, row)| self.answer(*row, want, i)).collect()
    }

    fn answer(&self, row: usize, want: &Want, i: usize) -> RowResult<Answer> {
        let dead = Row::dead();
        let weights = match self.slots[row] {
            Slot::Open { beam } => self.weights(beam)?,
            Slot::Closed { .. } => return Err(closed()),
            Slot::Dead => &dead,
        };
        Ok(match want {
            Want::Hold => Answer::Held,
            Want::Row => Answer::Row(weights.clone()),
            Want::Tokens(tokens) => {
                Answer::Tokens(tokens[i].iter().map(|token| weights.at(position(*token))).collect())
            }
            Want::Draw(draws) => Answer::Draw(weights.draw(
                position(TokenId::EOS),
                draws.masks.as_ref().map(|masks| &masks[i]),
                draws.method,
                &draws.keys[i],
            )),
        })
    }

    /// Asks and waits, so that the beams of `rows` are extended.
    pub(super) fn hold(&mut self, rows: &[usize]) {
        let _ = self.request(rows, Want::Hold);
        self.settle();
    }

    /// Advances each row by one byte or the end.
    pub(super) fn advance(&mut self, moves: &[(usize, TokenId)]) -> Vec<Status> {
        self.hold(&moves.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        let mut children: BTreeMap<(usize, u8), usize> = BTreeMap::new();
        let mut statuses = Vec::with_capacity(moves.len());
        for &(row, token) in moves {
            let beam = match self.slots[row] {
                Slot::Open { beam } => beam,
                Slot::Closed { .. } => {
                    statuses.push(Status::Failed(closed()));
                    continue;
                }
                Slot::Dead => {
                    statuses.push(Status::Dead);
                    continue;
                }
            };
            let logw = match self.weights(beam) {
                Ok(weights) => weights.at(position(token)),
                Err(error) => {
                    statuses.push(Status::Failed(error));
                    continue;
                }
            };
            let prefix = self.beams[beam].prefix + logw;
            self.slots[row] = match u8::try_from(token.0) {
                _ if logw == f64::NEG_INFINITY => Slot::Dead,
                Err(_) => Slot::Closed { score: prefix },
                Ok(byte) => {
                    let next = self.beams.len();
                    let child = *children.entry((beam, byte)).or_insert(next);
                    if child == next {
                        self.beams.push(self.after(beam, byte, prefix));
                    }
                    Slot::Open { beam: child }
                }
            };
            statuses.push(if logw == f64::NEG_INFINITY { Status::Dead } else { Status::Live });
        }
        self.forget_unused();
        statuses
    }

    fn after(&self, beam: usize, byte: u8, prefix: f64) -> Beam {
        let hypotheses = match &self.beams[beam].extended {
            Some(Ok(extended)) => extended.after(&self.reads, &self.params, byte),
            _ => Vec::new(),
        };
        Beam { prefix, hypotheses, extended: None }
    }

    /// Drops the beams that no row has any more, and the histories that no beam has.
    pub(super) fn forget_unused(&mut self) {
        let mut used = vec![false; self.beams.len()];
        self.slots.iter().for_each(|slot| {
            if let Slot::Open { beam } = slot {
                used[*beam] = true;
            }
        });
        let places = places(&used);
        let mut keep = used.into_iter();
        self.beams.retain(|_| keep.next().unwrap_or(false));
        for slot in &mut self.slots {
            if let Slot::Open { beam } = slot {
                *beam = places[*beam];
            }
        }
        let mut used = vec![false; self.reads.rows.len()];
        self.beams.iter_mut().for_each(|beam| beam.histories(|history| used[*history] = true));
        let kept: Vec<usize> = (0..used.len()).filter(|history| used[*history]).collect();
        if kept.len() < used.len() {
            let places = self::places(&used);
            self.inner.select(&kept);
            self.reads.rows = kept.iter().map(|history| self.reads.rows[*history].clone()).collect();
            self.beams.iter_mut().for_each(|beam| beam.histories(|history| *history = places[*history]));
        }
    }

    pub(super) fn select(&mut self, ancestors: &[usize]) {
        self.settle();
        self.slots = ancestors.iter().map(|ancestor| self.slots[*ancestor].clone()).collect();
        self.forget_unused();
    }

    pub(super) fn fork(&mut self, rows: &[usize]) -> Self {
        self.settle();
        let all: Vec<usize> = (0..self.reads.rows.len()).collect();
        let mut copy = Self {
            params: self.params,
            inner: self.inner.fork(&all),
            reads: self.reads.clone(),
            beams: self.beams.clone(),
            slots: self.slots.clone(),
            flight: None,
        };
        copy.select(rows);
        copy
    }
}

impl Beam {
    /// Visits the histories that it needs.
    fn histories(&mut self, visit: impl FnMut(&mut usize)) {
        let extended = self.extended.as_mut().and_then(|extended| extended.as_mut().ok());
        let extended = extended
            .into_iter()
            .flat_map(|extended| extended.hypotheses.iter_mut().chain(&mut extended.healed));
        self.hypotheses.iter_mut().chain(extended).map(|hypothesis| &mut hypothesis.history).for_each(visit);
    }
}

/// Where each used item is once the others are gone.
fn places(used: &[bool]) -> Vec<usize> {
    let count = |kept: &mut usize, used: &bool| {
        let place = *kept;
        *kept += usize::from(*used);
        Some(place)
    };
    used.iter().scan(0, count).collect()
}

/// Where a byte or the end stands in a row; behind it, where nothing is, for anything else.
fn position(token: TokenId) -> usize {
    match token {
        TokenId::EOS => 256,
        TokenId(byte) if byte < 256 => byte as usize,
        _ => usize::MAX,
    }
}

fn put(desk: &Desk, answers: Answers) {
    *desk.lock().unwrap_or_else(PoisonError::into_inner) = Some(answers);
}
