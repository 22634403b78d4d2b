//! Who steps the engine from outside, and when a forward may start without them.
//!
//! A *party* is a run or a user's loop that submits rows step by step. It is **busy** while its
//! code works and **waiting** while it is blocked on a ticket. A forward starts when rows are
//! ready and no party is busy, or when the straggler wait has passed since the first ready row.
//! A party that was late twice is not waited for until it is in time again. A thread that is
//! blocked on one party's ticket cannot be busy with another's work, in whatever table, so a
//! nested call of the engine never waits for its caller.
//!
//! An engine has one table of parties; whoever else merges the calls of concurrent runs has one
//! of their own, under the same rule.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, ThreadId, Weak, thread, thread_local};

/// How often a party may be late before it is no longer waited for.
const LATE_LIMIT: u8 = 2;

thread_local! {
    /// The tables in which this thread has, or had, parties.
    static TABLES: RefCell<Vec<Weak<Parties>>> = const { RefCell::new(Vec::new()) };
}

/// A party of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartyId(u64);

#[derive(Debug)]
struct Entry {
    busy: bool,
    thread: ThreadId,
    late: u8,
}

/// All parties of one engine, or of one meeting point of other calls.
pub struct Parties {
    table: Mutex<Table>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: BTreeMap<PartyId, Entry>,
}

impl Parties {
    /// An empty table. `wake` is called when a party waits or leaves: whoever waits for the
    /// parties looks again.
    #[must_use]
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { table: Mutex::default(), wake: Box::new(wake) }
    }

    /// A new party, busy on the calling thread.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> PartyId {
        self.note_thread();
        let mut table = self.lock();
        let id = PartyId(table.next);
        table.next += 1;
        table.entries.insert(id, Entry { busy: true, thread: thread::current().id(), late: 0 });
        id
    }

    /// The party is gone.
    pub fn leave(&self, id: PartyId) {
        self.lock().entries.remove(&id);
        (self.wake)();
    }

    /// Notes that `id` is at work on the calling thread.
    pub fn touch(self: &Arc<Self>, id: PartyId) {
        self.note_thread();
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            entry.thread = thread::current().id();
        }
    }

    /// Remembers that the calling thread has parties here.
    fn note_thread(self: &Arc<Self>) {
        TABLES.with(|tables| {
            let mut tables = tables.borrow_mut();
            if !tables.iter().any(|table| std::ptr::eq(table.as_ptr(), Arc::as_ptr(self))) {
                tables.retain(|table| table.strong_count() > 0);
                tables.push(Arc::downgrade(self));
            }
        });
    }

    fn block_thread(&self) -> Vec<PartyId> {
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

    fn resume(&self, ids: &[PartyId]) {
        let mut table = self.lock();
        for id in ids {
            if let Some(entry) = table.entries.get_mut(id) {
                entry.busy = true;
            }
        }
    }

    /// Whether a forward should wait for somebody.
    #[must_use]
    pub fn any_expected(&self) -> bool {
        self.lock().entries.values().any(|entry| entry.busy && entry.late < LATE_LIMIT)
    }

    /// A forward starts now: whoever is still busy is late, whoever waits is in time.
    pub fn note_start(&self) {
        for entry in self.lock().entries.values_mut() {
            entry.late = if entry.busy { (entry.late + 1).min(LATE_LIMIT) } else { 0 };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Parties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parties").field("table", &self.table).finish_non_exhaustive()
    }
}

/// The busy parties of a thread that blocks, in every table: they wait until it goes on.
#[derive(Debug, Default)]
pub struct Blocked(Vec<(Arc<Parties>, Vec<PartyId>)>);

impl Blocked {
    /// The calling thread is about to block: all its busy parties wait from now on.
    #[must_use]
    pub fn here() -> Self {
        let tables: Vec<Arc<Parties>> =
            TABLES.with(|tables| tables.borrow().iter().filter_map(Weak::upgrade).collect());
        let blocked = tables.into_iter().map(|table| {
            let ids = table.block_thread();
            (table, ids)
        });
        let blocked = Self(blocked.filter(|(_, ids)| !ids.is_empty()).collect());
        for (table, _) in &blocked.0 {
            (table.wake)();
        }
        blocked
    }

    /// The parties are at work again. Whoever wakes the thread calls this first, so that nobody
    /// can take it for waiting in between.
    pub fn resume(self) {
        for (table, ids) in self.0 {
            table.resume(&ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_late_twice_is_not_expected_until_it_is_in_time_again() {
        let parties = Arc::new(Parties::new(|| {}));
        let slow = parties.join();
        assert!(parties.any_expected());
        parties.note_start();
        assert!(parties.any_expected());
        parties.note_start();
        assert!(!parties.any_expected());
        // It blocks, is served by the next forward, and is expected again.
        let blocked = Blocked::here();
        parties.note_start();
        blocked.resume();
        assert!(parties.any_expected());
        parties.leave(slow);
        assert!(!parties.any_expected());
    }

    #[test]
    fn a_blocked_thread_is_busy_with_nothing_in_any_table() {
        let (engine, elsewhere) = (Arc::new(Parties::new(|| {})), Arc::new(Parties::new(|| {})));
        let _parties = (engine.join(), engine.join(), elsewhere.join());
        let other = thread::spawn({
            let engine = Arc::clone(&engine);
            move || engine.join()
        });
        let other = other.join().unwrap();
        let blocked = Blocked::here();
        assert!(engine.any_expected() && !elsewhere.any_expected());
        engine.leave(other);
        assert!(!engine.any_expected());
        blocked.resume();
        assert!(engine.any_expected() && elsewhere.any_expected());
    }
}
