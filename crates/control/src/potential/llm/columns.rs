//! Rows over distinct histories of a language model, and the requests on their way.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_engine::row::{LogitRow, Reply, RowRequest, Wish};
use lockstep_engine::{EngineError, Party, Sequence, Ticket as EngineTicket};
use lockstep_sample::{Drawn, RowError, TokenId};

use super::PromptedLlm;
use crate::error::{ControlError, ErrorKind};
use crate::potential::{Answer, Answers, Row, RowResult, Status, Want, closed};

/// What all rows with one history share.
#[derive(Debug)]
pub(super) struct History {
    seq: Sequence,
    /// Tokens that `seq` holds once the forwards asked for so far are done.
    fed: usize,
    /// Tokens that the next forward feeds.
    pending: Vec<TokenId>,
    /// The last token, prompt included.
    last: TokenId,
    /// The logits after the last token, if they were kept.
    held: Option<LogitRow>,
    /// Σ ln p of the tokens after the prompt.
    pub(super) prefix: f64,
}

impl History {
    fn then(&self, token: TokenId, logw: f64) -> Self {
        Self {
            seq: self.seq.fork(),
            fed: self.fed,
            pending: vec![token],
            last: token,
            held: None,
            prefix: self.prefix + logw,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Slot {
    Open { history: usize, drawn: Option<Drawn> },
    Closed { score: f64 },
    Dead,
    Failed(ControlError),
}

/// A submitted request: which engine row and wish answers each cursor row.
#[derive(Debug)]
struct Flight {
    ticket: EngineTicket,
    histories: Vec<usize>,
    /// For each requested row: its index, and where its reply lies (engine row, wish).
    places: Vec<(usize, Place)>,
    want: Want,
    number: u64,
}

#[derive(Debug)]
enum Place {
    Reply(usize, usize),
    Ready(RowResult<Answer>),
}

#[derive(Debug)]
pub(super) struct Columns {
    llm: PromptedLlm,
    party: Arc<Party>,
    pub(super) histories: Vec<History>,
    pub(super) slots: Vec<Slot>,
    flight: Option<Flight>,
    /// Answers that have arrived and were not collected, by request number.
    arrived: BTreeMap<u64, Answers>,
    requests: u64,
}

impl Columns {
    pub(super) fn new(llm: PromptedLlm, n: usize, party: Arc<Party>) -> Self {
        let start = History {
            seq: party.open(llm.adapter.as_deref()),
            fed: 0,
            pending: llm.prompt.to_vec(),
            last: *llm.prompt.last().expect("a prompt is never empty"),
            held: None,
            prefix: 0.0,
        };
        Self {
            llm,
            party,
            histories: vec![start],
            slots: vec![Slot::Open { history: 0, drawn: None }; n],
            flight: None,
            arrived: BTreeMap::new(),
            requests: 0,
        }
    }

    /// Submits what `rows` want, answering from kept rows where it can. One forward row serves all
    /// rows of a history.
    pub(super) fn request(&mut self, rows: &[usize], want: Want) -> u64 {
        self.settle();
        self.requests += 1;
        let mut requests: Vec<RowRequest> = Vec::new();
        let mut histories = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        let mut request_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (i, &row) in rows.iter().enumerate() {
            let place = match &self.slots[row] {
                Slot::Open { history, .. } => match &self.histories[*history].held {
                    Some(held) => Place::Ready(Ok(from_held(held, &want, i))),
                    None => {
                        let history = *history;
                        let at = *request_of.entry(history).or_insert_with(|| {
                            histories.push(history);
                            requests.push(self.next_forward(history));
                            requests.len() - 1
                        });
                        requests[at].wishes.push(wish(&want, i));
                        Place::Reply(at, requests[at].wishes.len() - 1)
                    }
                },
                Slot::Dead => Place::Ready(Ok(dead(&want, i))),
                Slot::Closed { .. } => Place::Ready(Err(closed())),
                Slot::Failed(error) => Place::Ready(Err(error.clone())),
            };
            places.push((row, place));
        }
        let number = self.requests;
        if requests.is_empty() {
            self.arrived.insert(number, places.into_iter().map(|(_, place)| ready(place)).collect());
            return number;
        }
        match self.party.submit(requests) {
            Ok(ticket) => self.flight = Some(Flight { ticket, histories, places, want, number }),
            Err(error) => {
                let answers = places.into_iter().map(|(_, place)| match place {
                    Place::Ready(answer) => answer,
                    Place::Reply(..) => Err(error.clone().into()),
                });
                self.arrived.insert(number, answers.collect());
            }
        }
        number
    }

    /// The request that computes a history's logits. If nothing is pending (a draw came without
    /// its row), the last token is fed once more.
    fn next_forward(&mut self, history: usize) -> RowRequest {
        let history = &mut self.histories[history];
        if history.pending.is_empty() {
            history.fed -= 1;
            history.seq.truncate(history.fed);
            history.pending.push(history.last);
        }
        RowRequest {
            seq: history.seq.id(),
            tokens: history.pending.clone(),
            temperature: self.llm.temperature,
            vocab: Arc::clone(&self.llm.vocab),
            wishes: Vec::new(),
        }
    }

    /// Waits for the request in flight and notes what it brought.
    pub(super) fn settle(&mut self) {
        let Some(Flight { ticket, histories, places, want, number }) = self.flight.take() else { return };
        let replies = ticket.wait();
        for (history, replies) in histories.iter().zip(&replies) {
            let history = &mut self.histories[*history];
            // Only a model's failure leaves the tokens unfed.
            if !replies.iter().any(|reply| matches!(reply, Err(EngineError::Model(_)))) {
                history.fed += history.pending.len();
                history.pending.clear();
            }
            if let Some(row) = replies.iter().find_map(|reply| match reply {
                Ok(Reply::Row(row)) => Some(row),
                _ => None,
            }) {
                history.held = Some(row.clone());
            }
        }
        let mut answers = Vec::with_capacity(places.len());
        for (i, (row, place)) in places.into_iter().enumerate() {
            let answer = match place {
                Place::Ready(answer) => answer,
                Place::Reply(at, wish) => from_reply(&replies[at][wish], &want, i),
            };
            match (&answer, &mut self.slots[row]) {
                (Ok(Answer::Draw(draw)), Slot::Open { drawn, .. }) => *drawn = *draw,
                // A row that has ended keeps its score, whatever is asked of it.
                (Err(error), slot @ Slot::Open { .. }) => *slot = Slot::Failed(error.clone()),
                _ => {}
            }
            answers.push(answer);
        }
        self.arrived.insert(number, answers);
    }

    pub(super) fn collect(&mut self, number: u64) -> Answers {
        if !self.arrived.contains_key(&number) {
            self.settle();
        }
        self.arrived.remove(&number).unwrap_or_default()
    }

    /// Fetches the logits of every open row among `rows` that is without, in one forward.
    pub(super) fn hold(&mut self, rows: &[usize]) {
        self.settle();
        let lacking: Vec<usize> = rows.iter().copied().filter(|row| self.held(*row).is_none()).collect();
        let lacking: Vec<usize> =
            lacking.into_iter().filter(|row| matches!(self.slots[*row], Slot::Open { .. })).collect();
        if !lacking.is_empty() {
            let number = self.request(&lacking, Want::Hold);
            self.collect(number);
        }
    }

    pub(super) fn held(&self, row: usize) -> Option<&LogitRow> {
        match &self.slots[row] {
            Slot::Open { history, .. } => self.histories[*history].held.as_ref(),
            _ => None,
        }
    }

    /// The log-weight of `token` after an open row, if it is known without a forward.
    fn known(&self, row: usize, token: TokenId) -> Option<f64> {
        match &self.slots[row] {
            Slot::Open { drawn: Some(drawn), .. } if drawn.token == token => {
                Some(drawn.logp + drawn.log_mass)
            }
            _ => self.held(row).map(|held| held.logw(token)),
        }
    }

    /// Advances each row by one token.
    pub(super) fn advance(&mut self, moves: &[(usize, TokenId)]) -> Vec<Status> {
        self.settle();
        let unknown: Vec<usize> = moves
            .iter()
            .filter(|(row, token)| self.known(*row, *token).is_none())
            .map(|(row, _)| *row)
            .collect();
        self.hold(&unknown);
        let mut children: BTreeMap<(usize, TokenId), usize> = BTreeMap::new();
        let mut statuses = Vec::with_capacity(moves.len());
        for &(row, token) in moves {
            let history = match &self.slots[row] {
                Slot::Open { history, .. } => *history,
                Slot::Closed { .. } => {
                    statuses.push(Status::Failed(closed()));
                    continue;
                }
                Slot::Dead => {
                    statuses.push(Status::Dead);
                    continue;
                }
                Slot::Failed(error) => {
                    statuses.push(Status::Failed(error.clone()));
                    continue;
                }
            };
            let logw = self.known(row, token).unwrap_or(f64::NEG_INFINITY);
            self.slots[row] = if logw == f64::NEG_INFINITY {
                Slot::Dead
            } else if token.is_eos() {
                Slot::Closed { score: self.histories[history].prefix + logw }
            } else {
                let child = *children.entry((history, token)).or_insert_with(|| {
                    self.histories.push(self.histories[history].then(token, logw));
                    self.histories.len() - 1
                });
                Slot::Open { history: child, drawn: None }
            };
            statuses.push(if logw == f64::NEG_INFINITY { Status::Dead } else { Status::Live });
        }
        self.forget_unused();
        statuses
    }

    /// Drops the histories that no row has any more.
    pub(super) fn forget_unused(&mut self) {
        let mut used = vec![false; self.histories.len()];
        for slot in &self.slots {
            if let Slot::Open { history, .. } = slot {
                used[*history] = true;
            }
        }
        let mut new_index = Vec::with_capacity(used.len());
        let mut kept = 0;
        for used in &used {
            new_index.push(kept);
            kept += usize::from(*used);
        }
        let mut used = used.into_iter();
        self.histories.retain(|_| used.next().unwrap_or(false));
        for slot in &mut self.slots {
            if let Slot::Open { history, .. } = slot {
                *history = new_index[*history];
            }
        }
    }

    pub(super) fn select(&mut self, ancestors: &[usize]) {
        self.settle();
        self.slots = ancestors.iter().map(|ancestor| self.slots[*ancestor].clone()).collect();
        self.forget_unused();
    }

    pub(super) fn fork(&mut self, rows: &[usize]) -> Self {
        self.settle();
        let histories = self
            .histories
            .iter()
            .map(|history| History {
                seq: history.seq.fork(),
                pending: history.pending.clone(),
                held: history.held.clone(),
                ..*history
            })
            .collect();
        let mut copy = Self {
            llm: self.llm.clone(),
            party: Arc::clone(&self.party),
            histories,
            slots: self.slots.clone(),
            flight: None,
            arrived: BTreeMap::new(),
            requests: 0,
        };
        copy.select(rows);
        copy
    }
}

fn wish(want: &Want, i: usize) -> Wish {
    match want {
        Want::Draw(draws) => Wish::Draw {
            key: draws.keys[i],
            method: draws.method,
            mask: draws.masks.as_ref().map(|masks| Arc::clone(&masks[i])),
        },
        Want::Row => Wish::Row,
        Want::Tokens(tokens) => Wish::Tokens(tokens[i].clone()),
        Want::Hold => Wish::Hold,
    }
}

fn from_held(held: &LogitRow, want: &Want, i: usize) -> Answer {
    match want {
        Want::Row => Answer::Row(Row::logits(held.clone())),
        Want::Hold => Answer::Held,
        Want::Tokens(tokens) => Answer::Tokens(tokens[i].iter().map(|token| held.logw(*token)).collect()),
        Want::Draw(draws) => Answer::Draw(Row::logits(held.clone()).draw(
            held.vocab().eos_position(),
            draws.masks.as_ref().map(|masks| &masks[i]),
            draws.method,
            &draws.keys[i],
        )),
    }
}

fn from_reply(reply: &Result<Reply, EngineError>, want: &Want, i: usize) -> RowResult<Answer> {
    match reply {
        Ok(Reply::Drawn(drawn)) => Ok(Answer::Draw(Some(*drawn))),
        Ok(Reply::Row(row)) => Ok(Answer::Row(Row::logits(row.clone()))),
        Ok(Reply::Tokens(weights)) => Ok(Answer::Tokens(weights.clone())),
        // Nothing that is allowed has any mass: the row is dead, which is no error.
        Err(EngineError::Row(RowError::EmptySupport)) => Ok(dead(want, i)),
        Err(error) => Err(error.clone().into()),
    }
}

fn dead(want: &Want, i: usize) -> Answer {
    match want {
        Want::Draw(_) => Answer::Draw(None),
        Want::Row => Answer::Row(Row::dead()),
        Want::Tokens(tokens) => Answer::Tokens(vec![f64::NEG_INFINITY; tokens[i].len()]),
        Want::Hold => Answer::Held,
    }
}

fn ready(place: Place) -> RowResult<Answer> {
    match place {
        Place::Ready(answer) => answer,
        Place::Reply(..) => Err(ControlError::new(ErrorKind::Engine, "the engine gave no answer")),
    }
}
