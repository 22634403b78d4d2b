//! All generating rows of an engine: the line before it, and those at work.
//!
//! Rows enter strictly in order, when there is a place and memory for them; a group enters whole.
//! Those at work stay ordered by id.

use std::collections::VecDeque;
use std::mem;

use lockstep_sample::{Logprobs, RowError, SampleError, Sampled, TokenId};

use super::PromptCache;
use super::row::{Held, Mask, Row};
use super::slot::{Slot, Stage};
use super::stream::{FinishReason, RowEvent, RowId, RowToken};
use super::work::{self, Worked};
use crate::config::RowLimits;
use crate::error::EngineError;
use crate::kv::{KvBudget, Place};
use crate::model::{Capabilities, Model, SeqId};
use crate::scheduler::Command;
use crate::stats::Stats;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, PoisonError, Sender, Weak};

/// Rows in line and at work.
pub(crate) struct Rows {
    pub(super) limits: RowLimits,
    pub(super) capabilities: Capabilities,
    pub(super) kv: Arc<KvBudget>,
    pub(super) next_seq: Arc<AtomicU64>,
    pub(super) cache: PromptCache,
    pub(super) queue: VecDeque<Group>,
    pub(super) active: Vec<Slot>,
    pub(super) commands: Weak<Sender<Command>>,
    /// Rows whose own code draws next, by id.
    leaving: Vec<(RowId, Held)>,
    pub(super) stats: Arc<Mutex<Stats>>,
}

/// Rows that enter together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) slots: Vec<Slot>,
    /// Bytes that it may take, without any help of stored prompts.
    pub(crate) bytes: usize,
    pub(crate) place: Option<Place>,
}

/// A row's share of a forward: tokens `start..end` of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feed {
    /// Which of the rows at work.
    pub(crate) at: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether it is part of a prompt.
    pub(crate) is_prompt: bool,
}

/// What a row of logits is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The next token of a row at work.
    Draw(usize),
    /// The log-probability of a prompt's token, and of so many others.
    Score { at: usize, token: TokenId, top: usize },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Got {
    Sampled(Result<Sampled, RowError>),
    Held(Held),
    Scored(Result<Logprobs, RowError>),
}

impl Rows {
    pub(crate) fn new(
        limits: RowLimits,
        cache_bytes: usize,
        capabilities: Capabilities,
        kv: Arc<KvBudget>,
        next_seq: Arc<AtomicU64>,
        stats: Arc<Mutex<Stats>>,
        commands: Weak<Sender<Command>>,
    ) -> Self {
        Self {
            limits,
            cache: PromptCache::new(cache_bytes, capabilities.truncates),
            capabilities,
            kv,
            next_seq,
            queue: VecDeque::new(),
            active: Vec::new(),
            commands,
            leaving: Vec::new(),
            stats,
        }
    }

    /// Whether a step would do anything for a row.
    pub(crate) fn any_ready(&self) -> bool {
        self.active.iter().any(|slot| slot.due() > 0 || slot.can_draw())
    }

    /// Whether a forward should wait for code of a row's own.
    pub(crate) fn any_expected(&self) -> bool {
        self.active.iter().any(Slot::is_expected)
    }

    pub(crate) fn note_start(&mut self) {
        self.active.iter_mut().for_each(Slot::note_start);
    }

    /// Counts, before anybody is told.
    pub(super) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The row at `at`.
    pub(crate) fn row(&self, at: usize) -> Option<&Row> {
        self.active[at].row.as_deref()
    }

    /// The sequence of the row at `at`.
    pub(crate) fn seq(&self, at: usize) -> SeqId {
        self.active[at].seq.expect("a row at work has a sequence")
    }

    /// The shares of the next step: a token for each row that draws, and at most `budget` of prompts,
    /// oldest first.
    pub(crate) fn plan(&self, budget: usize) -> Vec<Feed> {
        let due = |(at, slot): (usize, &Slot)| {
            let n = slot.due();
            let is_prompt = slot.stage == Stage::Prefill;
            (n > 0).then_some(Feed { at, start: slot.fed, end: slot.fed + n, is_prompt })
        };
        let mut left = budget;
        let feeds = self.active.iter().enumerate().filter_map(due);
        feeds
            .filter_map(|feed| {
                if !feed.is_prompt {
                    return Some(feed);
                }
                let n = left.min(feed.end - feed.start);
                left -= n;
                (n > 0).then_some(Feed { end: feed.start + n, ..feed })
            })
            .collect()
    }

    /// Whether any row draws in the next step.
    pub(crate) fn any_decoding(&self) -> bool {
        self.active.iter().any(|slot| slot.stage == Stage::Decode && slot.due() > 0)
    }

    /// What the logits of a feed's positions are for: (position among the feed's, purpose), in order.
    /// If any, all positions' logits are needed if `true`, else the last one's.
    pub(crate) fn purposes(&self, feed: &Feed) -> (Vec<(usize, Purpose)>, bool) {
        let slot = &self.active[feed.at];
        let row = slot.row.as_ref().expect("a row that is fed is here");
        let (n, is_last) = (feed.end - feed.start, feed.end == row.history.tokens().len());
        let mut purposes = Vec::new();
        if let Some(top) = slot.score.filter(|_| feed.is_prompt) {
            let next = (feed.start + 1..=feed.end).map_while(|at| row.history.tokens().get(at));
            purposes
                .extend(next.enumerate().map(|(i, &token)| (i, Purpose::Score { at: feed.at, token, top })));
        }
        let scores = slot.score.is_some() && feed.is_prompt;
        if is_last && !row.draws_nothing() {
            let place = if scores { n - 1 } else { 0 };
            let followers = (feed.at + 1..self.active.len())
                .take_while(|at| self.active[*at].stage == Stage::Follow)
                .filter(|_| feed.is_prompt);
            let drawing = std::iter::once(feed.at).chain(followers);
            purposes.extend(drawing.map(|at| (place, Purpose::Draw(at))));
        }
        (purposes, scores)
    }

    /// The forward that held `feed` is done.
    pub(crate) fn fed(&mut self, feed: &Feed, model: &mut dyn Model) {
        if feed.is_prompt {
            self.count(|stats| stats.prompt_tokens += (feed.end - feed.start) as u64);
        }
        let slot = &mut self.active[feed.at];
        slot.fed = feed.end;
        if slot.stage == Stage::Prefill && slot.fed == slot.prompt_len {
            slot.stage = Stage::Decode;
            self.fork_followers(feed.at, model);
            self.store_prompt(feed.at, model);
        }
    }

    /// Gives the followers of the row at `at` copies of its sequence.
    fn fork_followers(&mut self, at: usize, model: &mut dyn Model) {
        let (parent, fed) = (self.seq(at), self.active[at].fed);
        for follower in at + 1..self.active.len() {
            if self.active[follower].stage != Stage::Follow {
                break;
            }
            let child = self.new_seq();
            let forked = model.fork(parent, child);
            let slot = &mut self.active[follower];
            (slot.stage, slot.fed, slot.cached) = (Stage::Decode, fed, slot.prompt_len);
            match forked {
                Ok(()) => {
                    slot.seq = Some(child);
                    self.count(|stats| stats.cached_tokens += fed as u64);
                }
                Err(error) => self.end(follower, FinishReason::Error(error.into()), model),
            }
        }
    }

    pub(super) fn new_seq(&self) -> SeqId {
        SeqId(self.next_seq.fetch_add(1, Ordering::Relaxed))
    }

    /// Rows whose logits waited for their masks, and can be drawn for by the chain. Those with code of
    /// their own leave for it.
    pub(crate) fn held(&mut self) -> Vec<(usize, Held)> {
        let mut held = Vec::new();
        for (at, slot) in self.active.iter_mut().enumerate().filter(|(_, slot)| slot.can_draw()) {
            let logits = slot.held.take().expect("a row that can draw holds its logits");
            if slot.row.as_ref().is_some_and(|row| row.is_custom()) {
                self.leaving.push((slot.id, logits));
            } else {
                held.push((at, logits));
            }
        }
        held
    }

    /// Takes in what came of a step's logits, in order, and sends off what others must do.
    pub(crate) fn settle(&mut self, got: Vec<(Purpose, Got)>, step: u64, model: &mut dyn Model) {
        for (purpose, got) in got {
            match (purpose, got) {
                (Purpose::Draw(at), Got::Sampled(Ok(sampled))) => self.accept(at, &sampled, step, model),
                (Purpose::Draw(at), Got::Held(held)) if !self.active[at].has_ended => {
                    let slot = &mut self.active[at];
                    if slot.row.as_ref().is_some_and(|row| row.awaits_mask()) {
                        slot.held = Some(held);
                    } else {
                        self.leaving.push((slot.id, held));
                    }
                }
                (Purpose::Score { at, .. }, Got::Scored(Ok(logprobs))) => {
                    self.active[at].scores.push(logprobs)
                }
                (Purpose::Draw(at), Got::Sampled(Err(error)))
                | (Purpose::Score { at, .. }, Got::Scored(Err(error))) => {
                    self.end(at, FinishReason::Error(error.into()), model);
                }
                (Purpose::Draw(_), _) | (Purpose::Score { .. }, _) => {}
            }
        }
        for at in 0..self.active.len() {
            let slot = &self.active[at];
            let scored_only = slot.row.as_ref().is_some_and(|row| row.draws_nothing());
            if scored_only && slot.stage == Stage::Decode {
                self.end(at, FinishReason::Length, model);
            }
        }
        self.leave();
        self.sweep();
    }

    /// Sends rows with code of their own off to it.
    fn leave(&mut self) {
        let mut rows = Vec::new();
        for (id, held) in mem::take(&mut self.leaving) {
            let slot = self.find(id).filter(|slot| !slot.has_ended);
            if let Some(row) = slot.and_then(|slot| slot.row.take()) {
                rows.push((id, row, held));
            }
        }
        work::draw(rows, &self.commands);
    }

    /// Takes back what was away.
    pub(crate) fn take_back(&mut self, worked: Worked, step: u64, model: &mut dyn Model) {
        match worked {
            Worked::Drawn { rows, calls } => {
                self.count(|stats| stats.opaque_calls += calls);
                for (id, row, result) in rows {
                    // A row that was cancelled meanwhile is dropped here.
                    let Ok(at) = self.active.binary_search_by_key(&id, |slot| slot.id) else { continue };
                    self.active[at].note_return();
                    self.active[at].row = Some(row);
                    match result {
                        Ok(sampled) => self.accept(at, &sampled, step, model),
                        Err(SampleError::Row(error)) => {
                            self.end(at, FinishReason::Error(EngineError::Row(error)), model);
                        }
                        Err(error) => self.end(at, FinishReason::Error(error.into()), model),
                    }
                }
            }
            Worked::Masked { row, constraint, mask } => {
                let Ok(at) = self.active.binary_search_by_key(&row, |slot| slot.id) else { return };
                let slot = &mut self.active[at];
                slot.note_return();
                slot.constraint = Some(constraint);
                // A row without its constraint draws nothing: it is either here or has ended.
                let Some(row) = &mut slot.row else { return };
                let length = row.vocab.len();
                let mask = mask.and_then(|mask| {
                    let fits = mask.len() == length;
                    let message = || format!("its mask has {} ids but the row has {length}", mask.len());
                    if fits { Ok(mask) } else { Err(message()) }
                });
                match mask {
                    Ok(mask) => row.mask = Mask::Ready(mask),
                    Err(message) => {
                        self.end(at, FinishReason::Error(EngineError::Constraint(message)), model);
                    }
                }
            }
        }
        self.leave();
        self.sweep();
    }

    /// A row at work has drawn a token.
    fn accept(&mut self, at: usize, sampled: &Sampled, step: u64, model: &mut dyn Model) {
        let slot = &mut self.active[at];
        if slot.has_ended {
            return;
        }
        let row = slot.row.as_mut().expect("a row that is drawn for is here");
        let taken = row.take(sampled);
        let constraint = slot.constraint.take();
        if constraint.is_some() {
            row.mask = Mask::Pending;
        }
        let Sampled { token, logp, .. } = *sampled;
        let logprobs = sampled.logprobs.clone();
        self.count(|stats| stats.drawn_tokens += 1);
        let token = RowToken { token, logp, text: taken.text, logprobs, step };
        self.active[at].tell(RowEvent::Token(token));
        if let Some(by) = taken.stopped {
            self.end(at, FinishReason::Stop(by), model);
        } else if taken.is_full {
            self.end(at, FinishReason::Length, model);
        } else if let Some(constraint) = constraint {
            work::advance(self.active[at].id, constraint, Some(sampled.token), &self.commands);
        }
    }

    /// Starts the constraint of a row that enters.
    pub(super) fn start_constraint(&mut self, at: usize) {
        if let Some(constraint) = self.active[at].constraint.take() {
            work::advance(self.active[at].id, constraint, None, &self.commands);
        }
    }

    fn find(&mut self, id: RowId) -> Option<&mut Slot> {
        let at = self.active.binary_search_by_key(&id, |slot| slot.id).ok()?;
        Some(&mut self.active[at])
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows")
            .field("queued", &self.queue.len())
            .field("active", &self.active.len())
            .finish_non_exhaustive()
    }
}
