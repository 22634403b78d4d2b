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
    pub(crate) fn new(rows: &[RowRequest], parties: Arc<Parties>, party: PartyId) -> (Self, Arc<Slot>) {
        let state = State {
            wishes: rows.iter().map(|row| row.wishes.len()).collect(),
            results: vec![Vec::new(); rows.len()],
            missing: rows.len(),
            cancelled: false,
            blocked: Blocked::default(),
        };
        let slot = Arc::new(Slot { state: Mutex::new(state), done: Condvar::new() });
        (Self { slot: Arc::clone(&slot), parties, party }, slot)
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
    pub(crate) fn note(&self, slot: &Arc<Slot>) -> Result<(), EngineError> {
        let mut pending = self.lock();
        if pending.cancelled {
            return Err(EngineError::Cancelled);
        }
        pending.slots.retain(|slot| slot.strong_count() > 0);
        pending.slots.push(Arc::downgrade(slot));
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

/// Where the scheduler puts the answers of one ticket.
#[derive(Debug)]
pub(crate) struct Slot {
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
    /// The parties that wait for it are at work again: it is about to be answered. Whoever answers
    /// several slots says so to all of them first. Otherwise the first to be answered could find
    /// the others still waiting, and go on without them wherever it meets them next.
    pub(crate) fn resume(&self) {
        std::mem::take(&mut self.lock().blocked).resume();
    }

    /// Answers row `index`.
    pub(crate) fn answer(&self, index: usize, results: Vec<RowResult>) {
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
