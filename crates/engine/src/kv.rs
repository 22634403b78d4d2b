//! Accounting of KV memory: who may use how much.
//!
//! A run reserves its worst case once and atomically, so two runs can never wait for each other's
//! second half. Reservations are granted strictly first come, first served.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::error::EngineError;

/// The bytes an engine may hold, and who waits for some.
#[derive(Debug)]
pub(crate) struct KvBudget {
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reserved: usize,
    queue: VecDeque<u64>,
    next: u64,
}

impl KvBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), changed: Condvar::new() })
    }

    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, EngineError> {
        if bytes > self.limit {
            return Err(EngineError::TooLarge { needed: bytes, limit: self.limit });
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let place = state.next;
        state.next += 1;
        state.queue.push_back(place);
        while state.queue.front() != Some(&place) || state.reserved + bytes > self.limit {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.pop_front();
        state.reserved += bytes;
        drop(state);
        self.changed.notify_all();
        Ok(Reservation { budget: Arc::clone(self), bytes })
    }

    pub(crate) fn reserved(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).reserved
    }
}

/// KV memory that is set aside until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<KvBudget>,
    bytes: usize,
}

impl Reservation {
    /// How much is set aside, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reserved -= self.bytes;
        drop(state);
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn what_never_fits_is_refused_and_what_fits_later_waits_in_order() {
        let budget = KvBudget::new(10);
        assert!(matches!(budget.reserve(11), Err(EngineError::TooLarge { needed: 11, limit: 10 })));
        let first = budget.reserve(8).unwrap();
        let (sent, granted) = mpsc::channel();
        let large = thread::spawn({
            let (budget, sent) = (Arc::clone(&budget), sent.clone());
            move || {
                let kept = budget.reserve(9).unwrap();
                sent.send(9).unwrap();
                drop(kept);
            }
        });
        while budget.state.lock().unwrap().queue.is_empty() {
            thread::yield_now();
        }
        // Two bytes are free, but nobody overtakes the waiting head.
        let small = thread::spawn({
            let budget = Arc::clone(&budget);
            move || {
                let kept = budget.reserve(2).unwrap();
                sent.send(2).unwrap();
                drop(kept);
            }
        });
        while budget.state.lock().unwrap().queue.len() < 2 {
            thread::yield_now();
        }
        assert!(granted.try_recv().is_err());
        drop(first);
        assert_eq!((granted.recv().unwrap(), granted.recv().unwrap()), (9, 2));
        large.join().unwrap();
        small.join().unwrap();
        assert_eq!(budget.reserved(), 0);
    }
}
