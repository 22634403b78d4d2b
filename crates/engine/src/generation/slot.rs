//! A generating row's place in the engine: its state there, and its way out.

use std::sync::Arc;

use lockstep_sample::Logprobs;

use super::constraint::Constraint;
use super::continuation::Continuation;
use super::prompt_cache::EntryId;
use super::row::{Held, Row};
use super::spec::RowSpec;
use super::stream::{Events, FinishReason, Finished, RowEvent, RowId, Usage};
use crate::kv::Reservation;
use crate::model::SeqId;
use crate::sync::Mutex;

/// How often code of a row's own may be late before forwards no longer wait for it.
const LATE_LIMIT: u8 = 2;

/// Where a row is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It reads its prompt, which the rows of its group share.
    Prefill,
    /// Another row of its group reads their prompt.
    Follow,
    /// It draws.
    Decode,
}

/// A row in line or at work.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: RowId,
    pub(crate) stage: Stage,
    /// `None` while it is away to be drawn for.
    pub(crate) row: Option<Box<Row>>,
    /// `None` while it is away too, or if there is none.
    pub(crate) constraint: Option<Box<dyn Constraint>>,
    /// Tokens before the first draw.
    pub(crate) prompt_len: usize,
    pub(crate) adapter: Option<String>,
    pub(crate) continues: Option<Continuation>,
    pub(crate) keep: bool,
    /// Alternatives wanted of each of the prompt's tokens.
    pub(crate) score: Option<usize>,
    pub(crate) scores: Vec<Logprobs>,

    /// The model's sequence, once it has one.
    pub(crate) seq: Option<SeqId>,
    /// Tokens that the sequence holds.
    pub(crate) fed: usize,
    /// Tokens of the prompt that were there already.
    pub(crate) cached: usize,
    /// The stored prompt that its sequence shares pages with.
    pub(crate) pin: Option<EntryId>,
    /// The group's memory.
    pub(crate) reservation: Option<Arc<Mutex<Reservation>>>,
    /// Logits that wait for the mask.
    pub(crate) held: Option<Held>,
    pub(crate) has_ended: bool,

    is_late: bool,
    late: u8,
    seed: u64,
    drawn: usize,
    events: Events,
}

impl Slot {
    pub(crate) fn new(id: RowId, mut spec: RowSpec, seed: u64, events: Events) -> Self {
        let before = spec.continues.as_ref().map_or_else(Vec::new, |continued| {
            continued.held.iter().copied().chain(continued.pending).collect()
        });
        let row = Box::new(Row::new(&mut spec, &before, seed));
        Self {
            id,
            stage: Stage::Prefill,
            prompt_len: row.history.tokens().len(),
            row: Some(row),
            constraint: spec.constraint,
            adapter: spec.adapter,
            continues: spec.continues,
            keep: spec.keep,
            score: spec.prompt_logprobs,
            scores: Vec::new(),
            seq: None,
            fed: 0,
            cached: 0,
            pin: None,
            reservation: None,
            held: None,
            has_ended: false,
            is_late: false,
            late: 0,
            seed,
            drawn: 0,
            events,
        }
    }

    /// Whether it needs no forward at all.
    pub(crate) fn is_done_already(&self) -> bool {
        self.score.is_none() && self.row.as_ref().is_some_and(|row| row.draws_nothing())
    }

    /// Tokens to feed that its history has.
    pub(crate) fn due(&self) -> usize {
        match &self.row {
            Some(row) if self.held.is_none() && !self.has_ended && self.stage != Stage::Follow => {
                row.history.tokens().len() - self.fed
            }
            _ => 0,
        }
    }

    /// Whether it has logits and whatever else a draw needs.
    pub(crate) fn can_draw(&self) -> bool {
        !self.has_ended && self.held.is_some() && self.row.as_ref().is_some_and(|row| !row.awaits_mask())
    }

    /// Whether code of its own keeps it from the next step.
    fn is_away(&self) -> bool {
        self.row.is_none() || (self.held.is_some() && !self.can_draw())
    }

    /// Whether a forward should wait for it.
    pub(crate) fn is_expected(&self) -> bool {
        !self.has_ended && self.is_away() && self.late < LATE_LIMIT
    }

    /// A forward starts.
    pub(crate) fn note_start(&mut self) {
        if self.is_away() {
            self.is_late = true;
            self.late = (self.late + 1).min(LATE_LIMIT);
        }
    }

    /// What kept it is done.
    pub(crate) fn note_return(&mut self) {
        if !std::mem::take(&mut self.is_late) {
            self.late = 0;
        }
    }

    /// Tells its submitter. A submitter that is gone has cancelled it by that.
    pub(crate) fn tell(&mut self, event: RowEvent) {
        if let RowEvent::Token(_) = event {
            self.drawn += 1;
        }
        let _ = self.events.send(event);
    }

    fn usage(&self) -> Usage {
        Usage { prompt_tokens: self.prompt_len, cached_tokens: self.cached, drawn_tokens: self.drawn }
    }

    /// Its last event. What it holds of the model is the caller's to see to.
    pub(crate) fn finish(&mut self, reason: FinishReason, continuation: Option<Continuation>) {
        self.has_ended = true;
        let scored =
            self.score.is_some() && !matches!(reason, FinishReason::Cancelled | FinishReason::Error(_));
        let finished = Finished {
            reason,
            text: self.row.as_mut().map(|row| row.flush()).unwrap_or_default(),
            seed: self.seed,
            usage: self.usage(),
            prompt_logprobs: scored.then(|| std::mem::take(&mut self.scores)),
            continuation,
        };
        self.tell(RowEvent::Finished(finished));
    }
}
