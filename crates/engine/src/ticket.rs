//! Tickets: submitted rows that have not been answered yet.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::party::{Parties, PartyId};
use crate::row::RowResult;

/// Rows on their way. Dropping it gives up the answers, not the rows.
#[derive(Debug)]
pub struct Ticket {
    slot: Arc<Slot>,
    parties: Arc<Parties>,
    poke: Box<dyn Poke>,
}

/// Tells the scheduler that somebody's state changed.
pub(crate) trait Poke: Send + Sync + std::fmt::Debug {
    fn poke(&self);
}

impl Ticket {
    pub(crate) fn new(rows: usize, parties: Arc<Parties>, poke: Box<dyn Poke>) -> (Self, Arc<Slot>) {
        let state = State { results: vec![Vec::new(); rows], missing: rows, blocked: Vec::new() };
        let slot = Arc::new(Slot { state: Mutex::new(state), done: Condvar::new() });
        (Self { slot: Arc::clone(&slot), parties, poke }, slot)
    }

    /// Blocks until every row is answered: for each row, in order, a result for each of its wishes.
    ///
    /// While it blocks, the calling thread's parties count as waiting.
    #[must_use]
    pub fn wait(self) -> Vec<Vec<RowResult>> {
        let mut state = self.slot.lock();
        if state.missing > 0 {
            state.blocked = self.parties.block_thread();
            self.poke.poke();
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
    blocked: Vec<PartyId>,
}

impl Slot {
    /// Answers row `index`. With the last row, the parties that wait for it are at work again,
    /// before the scheduler can look whether anybody is.
    pub(crate) fn answer(&self, index: usize, results: Vec<RowResult>, parties: &Parties) {
        let mut state = self.lock();
        state.results[index] = results;
        state.missing -= 1;
        if state.missing == 0 {
            parties.resume(&std::mem::take(&mut state.blocked));
            drop(state);
            self.done.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
