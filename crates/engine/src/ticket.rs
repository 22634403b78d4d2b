//! Tickets: submitted rows that have not been answered yet.

use crate::error::EngineError;
use crate::party::{Blocked, Parties, PartyId};
use crate::row::{RowRequest, RowResult};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Rows on their way. Dropping it gives up the answers, not the rows.
#[derive(Debug)]
pub struct Ticket {
    slot: Arc<Slot>,
    parties: Arc<Parties>,
    party: PartyId,
}

impl Ticket {
    /// A ticket for `requests`, and what goes to the scheduler.
    pub(crate) fn new(
        requests: Vec<RowRequest>,
        parties: Arc<Parties>,
        party: PartyId,
    ) -> (Self, Vec<QueuedRow>) {
        let state = State {
            wishes: requests.iter().map(|request| request.wishes.len()).collect(),
            results: vec![Vec::new(); requests.len()],
            missing: requests.len(),
            cancelled: false,
            blocked: Blocked::default(),
        };
        let slot = Arc::new(Slot { state: Mutex::new(state), done: Condvar::new() });
        let queued = |(index, request)| QueuedRow { index, request, slot: Some(Arc::clone(&slot)) };
        let rows = requests.into_iter().enumerate().map(queued).collect();
        (Self { slot, parties, party }, rows)
    }

    /// Blocks until every row is answered: for each row, in order, a result for each of its wishes.
    /// They are [`EngineError::Cancelled`] if the party was cancelled before.
    ///
    /// While it blocks, the calling thread's parties count as waiting.
    #[must_use]
    pub fn wait(self) -> Vec<Vec<RowResult>> {
        let mut state = self.slot.lock();
        if state.missing > 0 {
            self.parties.touch(self.party);
            state.blocked = Blocked::here();
            while state.missing > 0 {
                state = self.slot.done.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if state.cancelled {
            return state.wishes.iter().map(|wishes| vec![Err(EngineError::Cancelled); *wishes]).collect();
        }
        std::mem::take(&mut state.results)
    }
}

/// A party's tickets that are not answered yet, to be ended when it is cancelled.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    cancelled: bool,
    slots: Vec<Weak<Slot>>,
}

impl Waits {
    /// Notes a ticket, unless the party is cancelled.
    pub(crate) fn note(&self, ticket: &Ticket) -> Result<(), EngineError> {
        let mut pending = self.lock();
        if pending.cancelled {
            return Err(EngineError::Cancelled);
        }
        pending.slots.retain(|slot| slot.strong_count() > 0);
        pending.slots.push(Arc::downgrade(&ticket.slot));
        Ok(())
    }

    /// Ends all waits, also those to come.
    pub(crate) fn cancel(&self) {
        let slots = {
            let mut pending = self.lock();
            pending.cancelled = true;
            std::mem::take(&mut pending.slots)
        };
        slots.iter().filter_map(Weak::upgrade).for_each(|slot| slot.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row that waits for a forward. Dropped, it answers that it never got there.
#[derive(Debug)]
pub(crate) struct QueuedRow {
    pub(crate) request: RowRequest,
    index: usize,
    /// `None` once it is answered.
    slot: Option<Arc<Slot>>,
}

impl QueuedRow {
    /// The parties that wait for it are at work again: it is about to be answered. Whoever answers
    /// several rows says so to all of them first. Otherwise the first to be answered could find the
    /// others still waiting, and go on without them wherever it meets them next.
    pub(crate) fn resume(&self) {
        if let Some(slot) = &self.slot {
            std::mem::take(&mut slot.lock().blocked).resume();
        }
    }

    /// Answers it.
    pub(crate) fn answer(mut self, results: Vec<RowResult>) {
        if let Some(slot) = self.slot.take() {
            slot.answer(self.index, results);
        }
    }

    /// Answers it with an error.
    pub(crate) fn fail(self, error: &EngineError) {
        let results = self.request.all_fail(error);
        self.answer(results);
    }
}

impl Drop for QueuedRow {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let error = EngineError::Stopped("its thread has ended".into());
            slot.answer(self.index, self.request.all_fail(&error));
        }
    }
}

/// Where the answers of one ticket go.
#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
struct State {
    /// For each row, how many results it gets.
    wishes: Vec<usize>,
    results: Vec<Vec<RowResult>>,
    missing: usize,
    cancelled: bool,
    blocked: Blocked,
}

impl Slot {
    /// Answers row `index`.
    fn answer(&self, index: usize, results: Vec<RowResult>) {
        let mut state = self.lock();
        if state.cancelled {
            return;
        }
        state.results[index] = results;
        state.missing -= 1;
        if state.missing == 0 {
            std::mem::take(&mut state.blocked).resume();
            drop(state);
            self.done.notify_all();
        }
    }

    /// Ends the wait without the rows that are not answered yet.
    fn cancel(&self) {
        let mut state = self.lock();
        if state.missing > 0 {
            state.cancelled = true;
            state.missing = 0;
            std::mem::take(&mut state.blocked).resume();
            drop(state);
            self.done.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SeqId;
    use crate::row::Wish;
    use crate::testkit::vocabulary;

    #[test]
    fn rows_that_get_nowhere_are_answered() {
        let parties = Arc::new(Parties::new(|| {}));
        let party = parties.join();
        let request = RowRequest {
            seq: SeqId(0),
            tokens: Vec::new(),
            temperature: 1.0,
            vocab: vocabulary(&["a"], &[]),
            wishes: vec![Wish::Row, Wish::Hold],
        };
        let (ticket, mut rows) = Ticket::new(vec![request.clone(), request], parties, party);
        rows.remove(0).answer(Vec::new());
        drop(rows);
        let answers = ticket.wait();
        assert!(answers[0].is_empty() && answers[1].len() == 2);
        assert!(answers[1].iter().all(|answer| matches!(answer, Err(EngineError::Stopped(_)))));
    }
}
