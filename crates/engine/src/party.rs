//! Who steps the engine from outside, and when a forward may start without them.
//!
//! A *party* is a run or a user's loop that submits rows step by step. It is **busy** while its
//! code works and **waiting** while it is blocked on a ticket. A forward starts when rows are
//! ready and no party is busy, or when the straggler wait has passed since the first ready row.
//! A party that was late twice is not waited for until it is in time again. A thread that is
//! blocked on one party's ticket cannot be busy with another's work, so a nested call of the
//! engine never waits for its caller.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// How often a party may be late before it is no longer waited for.
const LATE_LIMIT: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartyId(u64);

#[derive(Debug)]
struct Entry {
    busy: bool,
    thread: ThreadId,
    late: u8,
}

/// All parties of one engine.
#[derive(Debug, Default)]
pub(crate) struct Parties {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: BTreeMap<PartyId, Entry>,
}

impl Parties {
    /// A new party, busy on the calling thread.
    pub(crate) fn join(&self) -> PartyId {
        let mut table = self.lock();
        let id = PartyId(table.next);
        table.next += 1;
        table.entries.insert(id, Entry { busy: true, thread: thread::current().id(), late: 0 });
        id
    }

    pub(crate) fn leave(&self, id: PartyId) {
        self.lock().entries.remove(&id);
    }

    /// Notes that `id` is at work on the calling thread.
    pub(crate) fn touch(&self, id: PartyId) {
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            entry.thread = thread::current().id();
        }
    }

    /// The calling thread is about to block: its busy parties wait from now on.
    pub(crate) fn block_thread(&self) -> Vec<PartyId> {
        let current = thread::current().id();
        let mut blocked = Vec::new();
        for (id, entry) in &mut self.lock().entries {
            if entry.thread == current && entry.busy {
                entry.busy = false;
                blocked.push(*id);
            }
        }
        blocked
    }

    /// The parties that [`Self::block_thread`] put to waiting are at work again.
    pub(crate) fn resume(&self, ids: &[PartyId]) {
        let mut table = self.lock();
        for id in ids {
            if let Some(entry) = table.entries.get_mut(id) {
                entry.busy = true;
            }
        }
    }

    /// Whether a forward should wait for somebody.
    pub(crate) fn any_expected(&self) -> bool {
        self.lock().entries.values().any(|entry| entry.busy && entry.late < LATE_LIMIT)
    }

    /// A forward starts now: whoever is still busy is late, whoever waits is in time.
    pub(crate) fn note_start(&self) {
        for entry in self.lock().entries.values_mut() {
            entry.late = if entry.busy { (entry.late + 1).min(LATE_LIMIT) } else { 0 };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_late_twice_is_not_expected_until_it_is_in_time_again() {
        let parties = Parties::default();
        let slow = parties.join();
        assert!(parties.any_expected());
        parties.note_start();
        assert!(parties.any_expected());
        parties.note_start();
        assert!(!parties.any_expected());
        // It blocks, is served by the next forward, and is expected again.
        assert_eq!(parties.block_thread(), [slow]);
        parties.note_start();
        parties.resume(&[slow]);
        assert!(parties.any_expected());
        parties.leave(slow);
        assert!(!parties.any_expected());
    }

    #[test]
    fn a_blocked_thread_is_busy_with_nothing() {
        let parties = Parties::default();
        let outer = parties.join();
        let nested = parties.join();
        assert_eq!(parties.block_thread(), [outer, nested]);
        assert!(!parties.any_expected());
        parties.resume(&[outer, nested]);
        assert!(parties.any_expected());
    }
}
