//! How rows leave, and what becomes of what they hold.

use std::mem;

use super::rows::{Feed, Rows};
use super::slot::Stage;
use super::stream::{FinishReason, RowId};
use super::{Continuation, LooseSequence};
use crate::error::EngineError;
use crate::kv::Place;
use crate::model::Model;
use crate::stats::Stats;
use crate::sync::{Arc, Mutex, PoisonError, Weak};

impl Rows {
    /// Cancels rows, in line or at work; others are ignored.
    pub(crate) fn cancel(&mut self, ids: &[RowId], model: &mut dyn Model) {
        for &id in ids {
            if let Ok(at) = self.active.binary_search_by_key(&id, |slot| slot.id) {
                self.end(at, FinishReason::Cancelled, model);
                self.sweep();
                continue;
            }
            for group in &mut self.queue {
                for slot in group.slots.iter_mut().filter(|slot| slot.id == id) {
                    count_finish(&self.stats, &FinishReason::Cancelled);
                    slot.finish(FinishReason::Cancelled, None);
                }
                group.slots.retain(|slot| !slot.has_ended);
            }
            let places: Vec<Place> = self
                .queue
                .iter()
                .filter(|group| group.slots.is_empty())
                .filter_map(|group| group.place)
                .collect();
            places.into_iter().for_each(|place| self.kv.give_up(place));
            self.queue.retain(|group| !group.slots.is_empty());
        }
    }

    /// Everybody ends with `why`.
    pub(crate) fn end_all(&mut self, why: &EngineError, model: &mut dyn Model) {
        for at in 0..self.active.len() {
            self.end(at, FinishReason::Error(why.clone()), model);
        }
        self.sweep();
        for mut group in mem::take(&mut self.queue) {
            for slot in &mut group.slots {
                let reason = FinishReason::Error(why.clone());
                count_finish(&self.stats, &reason);
                slot.finish(reason, None);
            }
            group.place.into_iter().for_each(|place| self.kv.give_up(place));
        }
    }

    /// The row at `at` is done, for `reason`. Its slot stays until the next sweep.
    pub(super) fn end(&mut self, at: usize, reason: FinishReason, model: &mut dyn Model) {
        if self.active[at].has_ended {
            return;
        }
        count_finish(&self.stats, &reason);
        if self.active[at].stage == Stage::Prefill {
            self.hand_over(at);
        }
        let continuation = self.part(at, &reason, model);
        self.active[at].finish(reason, continuation);
    }

    /// The next row of its group reads the prompt in place of the one at `at`.
    fn hand_over(&mut self, at: usize) {
        let mut followers =
            (at + 1..self.active.len()).take_while(|at| self.active[*at].stage == Stage::Follow);
        let Some(next) = followers.find(|at| !self.active[*at].has_ended) else { return };
        let slot = &mut self.active[at];
        let (seq, pin) = (slot.seq.take(), slot.pin.take());
        let (fed, cached) = (mem::take(&mut slot.fed), slot.cached);
        let next = &mut self.active[next];
        (next.stage, next.seq, next.pin, next.fed, next.cached) = (Stage::Prefill, seq, pin, fed, cached);
    }

    /// Sees to what an ending row holds: its sequence is kept for its submitter, stored, or freed.
    fn part(&mut self, at: usize, reason: &FinishReason, model: &mut dyn Model) -> Option<Continuation> {
        let slot = &mut self.active[at];
        let (seq, pin) = (slot.seq.take(), slot.pin.take());
        let reservation = slot.reservation.take();
        slot.held = None;
        if let Some(pin) = pin {
            self.cache.unpin(pin);
        }
        let seq = seq?;
        let slot = &self.active[at];
        let whole = !matches!(reason, FinishReason::Error(_));
        let Some(row) = slot.row.as_ref().filter(|_| whole) else {
            model.free(seq);
            return None;
        };
        let (fed, adapter) = (slot.fed, slot.adapter.clone());
        let held = row.history.tokens()[..fed].to_vec();
        if slot.keep {
            // A row that can be continued is alone in its group.
            let reservation = reservation.and_then(Arc::into_inner).expect("a row at work has memory");
            let mut reservation = reservation.into_inner().unwrap_or_else(PoisonError::into_inner);
            reservation.shrink_to(self.capabilities.kv_bytes(fed));
            let pending = row.history.tokens().get(fed).copied().filter(|_| slot.stage == Stage::Decode);
            let sequence = LooseSequence::new(seq, Weak::clone(&self.commands));
            return Some(Continuation { sequence, held, pending, adapter, reservation });
        }
        if matches!(reason, FinishReason::Cancelled) {
            model.free(seq);
        } else {
            drop(reservation);
            self.store(adapter.as_deref(), held, seq, model);
        }
        None
    }

    /// Rows that have ended leave.
    pub(super) fn sweep(&mut self) {
        self.active.retain(|slot| !slot.has_ended);
    }

    /// The forward that held `feed` failed.
    pub(crate) fn failed(&mut self, feed: &Feed, error: &EngineError, model: &mut dyn Model) {
        let followers = self.active[feed.at + 1..].iter().take_while(|slot| slot.stage == Stage::Follow);
        let last = feed.at + if feed.is_prompt { followers.count() } else { 0 };
        // The followers first: they have nobody to follow.
        for at in (feed.at..=last).rev() {
            self.end(at, FinishReason::Error(error.clone()), model);
        }
    }
}

/// Counts a row's end, before its submitter is told.
fn count_finish(stats: &Mutex<Stats>, reason: &FinishReason) {
    let mut stats = stats.lock().unwrap_or_else(PoisonError::into_inner);
    *match reason {
        FinishReason::Stop(_) => &mut stats.finished_stop,
        FinishReason::Length => &mut stats.finished_length,
        FinishReason::Cancelled => &mut stats.finished_cancelled,
        FinishReason::Error(_) => &mut stats.finished_error,
    } += 1;
}
