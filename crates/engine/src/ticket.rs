//! Tickets: submitted rows that have not been answered yet.

use crate::party::{Blocked, Parties, PartyId};
use crate::row::RowResult;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Rows on their way. Dropping it gives up the answers, not the rows.
#[derive(Debug)]
pub struct Ticket {
    slot: Arc<Slot>,
    parties: Arc<Parties>,
    party: PartyId,
}

impl Ticket {
    pub(crate) fn new(rows: usize, parties: Arc<Parties>, party: PartyId) -> (Self, Arc<Slot>) {
        let state = State { results: vec![Vec::new(); rows], missing: rows, blocked: Blocked::default() };
        let slot = Arc::new(Slot { state: Mutex::new(state), done: Condvar::new() });
        (Self { slot: Arc::clone(&slot), parties, party }, slot)
    }

    /// Blocks until every row is answered: for each row, in order, a result for each of its wishes.
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
        std::mem::take(&mut state.results)
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
    results: Vec<Vec<RowResult>>,
    missing: usize,
    blocked: Blocked,
}

impl Slot {
    /// Answers row `index`. With the last row, the parties that wait for it are at work again,
    /// before the scheduler can look whether anybody is.
    pub(crate) fn answer(&self, index: usize, results: Vec<RowResult>) {
        let mut state = self.lock();
        state.results[index] = results;
        state.missing -= 1;
        if state.missing == 0 {
            std::mem::take(&mut state.blocked).resume();
            drop(state);
            self.done.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
