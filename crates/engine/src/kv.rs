//! Accounting of KV memory: who may use how much.
//!
//! A run or row reserves its worst case once and atomically, so two can never wait for each other's
//! second half. Reservations are granted strictly first come, first served. Stored prompts take
//! what is left and go before anybody waits.
//!
//! Invariant: reserved + stored bytes never exceed the limit.

use std::collections::VecDeque;

use crate::error::EngineError;
use crate::party::Blocked;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The bytes an engine may hold, and who waits for some.
pub(crate) struct KvBudget {
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Called when stored prompts are in somebody's way, or the head of the queue may be served.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    reserved: usize,
    stored: usize,
    queue: VecDeque<Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    place: Place,
    bytes: usize,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl KvBudget {
    pub(crate) fn new(limit: usize, wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), changed: Condvar::new(), wake: Box::new(wake) })
    }

    /// What fits at all.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes `bytes` if nobody waits and they fit.
    fn reserve_now(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut state = self.lock();
        let fits = state.queue.is_empty() && state.reserved + state.stored + bytes <= self.limit;
        fits.then(|| {
            state.reserved += bytes;
            Reservation { budget: Arc::clone(self), bytes }
        })
    }

    /// Takes `bytes` if nobody waits and they fit, or else lines up for them. Never blocks.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Result<PendingReservation, EngineError> {
        if bytes > self.limit {
            return Err(EngineError::TooLarge { needed: bytes, limit: self.limit });
        }
        let state = match self.reserve_now(bytes) {
            Some(reservation) => Pending::Granted(reservation),
            None => Pending::Waiting { budget: Arc::clone(self), place: self.line_up(bytes), bytes },
        };
        Ok(PendingReservation(Some(state)))
    }

    /// Waits until `place` is at the head and `bytes` can be had, or it has been given up.
    fn wait(self: &Arc<Self>, place: Place, bytes: usize) -> Result<Reservation, EngineError> {
        let mut woken = false;
        let mut state = self.lock();
        loop {
            if state.take(place, bytes, self.limit) {
                drop(state);
                self.announce();
                return Ok(Reservation { budget: Arc::clone(self), bytes });
            }
            if state.queue.iter().all(|waiting| waiting.place != place) {
                return Err(EngineError::Cancelled);
            }
            if !woken && state.shortage(self.limit).is_some() {
                woken = true;
                (self.wake)();
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Joins the queue's end.
    pub(crate) fn line_up(&self, bytes: usize) -> Place {
        let mut state = self.lock();
        let place = Place(state.next);
        state.next += 1;
        state.queue.push_back(Waiting { place, bytes });
        place
    }

    /// Takes `bytes` if `place` is at the head and they fit; does not wait.
    pub(crate) fn try_take(self: &Arc<Self>, place: Place, bytes: usize) -> Option<Reservation> {
        let taken = self.lock().take(place, bytes, self.limit);
        taken.then(|| {
            self.announce();
            Reservation { budget: Arc::clone(self), bytes }
        })
    }

    /// Leaves the queue.
    pub(crate) fn give_up(&self, place: Place) {
        self.lock().queue.retain(|waiting| waiting.place != place);
        self.announce();
    }

    /// Bytes of stored prompts that stand between the queue's head and what it waits for.
    pub(crate) fn shortage(&self) -> Option<usize> {
        self.lock().shortage(self.limit)
    }

    /// Counts `bytes` as stored, if they fit.
    pub(crate) fn store(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        let fits = state.reserved + state.stored + bytes <= self.limit;
        state.stored += if fits { bytes } else { 0 };
        fits
    }

    /// Stored bytes are gone.
    pub(crate) fn unstore(&self, bytes: usize) {
        self.lock().stored -= bytes;
        self.announce();
    }

    pub(crate) fn reserved(&self) -> usize {
        self.lock().reserved
    }

    pub(crate) fn stored(&self) -> usize {
        self.lock().stored
    }

    /// The head of the queue, a thread or the scheduler, should look again.
    fn announce(&self) {
        let somebody_waits = !self.lock().queue.is_empty();
        self.changed.notify_all();
        if somebody_waits {
            (self.wake)();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, place: Place, bytes: usize, limit: usize) -> bool {
        let Some(head) = self.queue.front_mut().filter(|head| head.place == place) else { return false };
        head.bytes = bytes;
        if self.reserved + self.stored + bytes > limit {
            return false;
        }
        self.queue.pop_front();
        self.reserved += bytes;
        true
    }

    fn shortage(&self, limit: usize) -> Option<usize> {
        let head = self.queue.front()?;
        let over = (self.reserved + self.stored + head.bytes).saturating_sub(limit);
        (over > 0 && self.stored > 0 && self.reserved + head.bytes <= limit).then_some(over)
    }
}

impl std::fmt::Debug for KvBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvBudget")
            .field("limit", &self.limit)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A reservation that may have to wait its turn. Dropping it gives the turn up.
#[derive(Debug)]
pub struct PendingReservation(Option<Pending>);

#[derive(Debug)]
enum Pending {
    Granted(Reservation),
    Waiting { budget: Arc<KvBudget>, place: Place, bytes: usize },
}

impl PendingReservation {
    /// Blocks until the memory is there. Meanwhile the calling thread's parties count as waiting;
    /// who need not wait stays busy throughout, so that others' forwards wait for it.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] if its turn was given up through [`Self::canceller`].
    pub fn wait(mut self) -> Result<Reservation, EngineError> {
        match self.0.take().expect("it is waited for once") {
            Pending::Granted(reservation) => Ok(reservation),
            Pending::Waiting { budget, place, bytes } => {
                let blocked = Blocked::here();
                let reservation = budget.wait(place, bytes);
                blocked.resume();
                reservation
            }
        }
    }

    /// Whether it has to wait for others, or had to when it lined up.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.0, Some(Pending::Waiting { .. }))
    }

    /// What gives the turn up, from any thread and at any time: whoever waits is told so at once, and
    /// those behind move up. It changes nothing once the memory is there.
    pub fn canceller(&self) -> impl Fn() + Send + Sync + use<> {
        let waiting = match &self.0 {
            Some(Pending::Waiting { budget, place, .. }) => Some((Arc::clone(budget), *place)),
            Some(Pending::Granted(_)) | None => None,
        };
        move || {
            if let Some((budget, place)) = &waiting {
                budget.give_up(*place);
            }
        }
    }
}

impl Drop for PendingReservation {
    fn drop(&mut self) {
        if let Some(Pending::Waiting { budget, place, .. }) = &self.0 {
            budget.give_up(*place);
        }
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

    /// Takes over what `other` has set aside.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.budget.lock().reserved -= less;
            self.budget.announce();
        }
    }

    /// Turns `bytes` of it into stored ones, which are `stored` in all, if the rest of them fits.
    pub(crate) fn store(&mut self, bytes: usize, stored: usize) -> bool {
        let mut state = self.budget.lock();
        let bytes = bytes.min(self.bytes);
        if state.reserved - bytes + state.stored + stored > self.budget.limit {
            return false;
        }
        state.reserved -= bytes;
        state.stored += stored;
        drop(state);
        self.bytes -= bytes;
        self.budget.announce();
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.lock().reserved -= self.bytes;
        self.budget.announce();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn what_never_fits_is_refused_and_what_fits_later_waits_in_order() {
        let budget = KvBudget::new(10, || {});
        assert!(matches!(budget.reserve(11), Err(EngineError::TooLarge { needed: 11, limit: 10 })));
        let first = budget.reserve(8).unwrap().wait().unwrap();
        let (sent, granted) = mpsc::channel();
        let large = thread::spawn({
            let (budget, sent) = (Arc::clone(&budget), sent.clone());
            move || {
                let kept = budget.reserve(9).unwrap().wait().unwrap();
                sent.send(9).unwrap();
                drop(kept);
            }
        });
        while budget.lock().queue.is_empty() {
            thread::yield_now();
        }
        // Two bytes are free, but nobody overtakes the waiting head.
        let small = thread::spawn({
            let budget = Arc::clone(&budget);
            move || {
                let kept = budget.reserve(2).unwrap().wait().unwrap();
                sent.send(2).unwrap();
                drop(kept);
            }
        });
        while budget.lock().queue.len() < 2 {
            thread::yield_now();
        }
        assert!(granted.try_recv().is_err());
        drop(first);
        assert_eq!((granted.recv().unwrap(), granted.recv().unwrap()), (9, 2));
        large.join().unwrap();
        small.join().unwrap();
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_turn_that_is_given_up_lets_those_behind_move_up() {
        let budget = KvBudget::new(10, || {});
        let first = budget.reserve(8).unwrap();
        let granted = first.canceller();
        let (large, small) = (budget.reserve(9).unwrap(), budget.reserve(2).unwrap());
        let (cancel, late) = (large.canceller(), small.canceller());
        let waiting = thread::spawn(move || large.wait());
        let behind = thread::spawn(move || small.wait());
        // Two bytes are free for the second in line, once the first has left; whether they wait already
        // or not is all the same.
        cancel();
        assert!(matches!(waiting.join().unwrap(), Err(EngineError::Cancelled)));
        let second = behind.join().unwrap().unwrap();
        cancel();
        late();
        granted();
        assert_eq!(budget.reserved(), 10);
        drop((first.wait().unwrap(), second));
        // Who does not wait after all is in nobody's way.
        let (first, second) = (budget.reserve(10).unwrap(), budget.reserve(1).unwrap());
        drop(second);
        assert!(budget.lock().queue.is_empty());
        drop(first);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn stored_bytes_count_and_are_named_when_they_stand_in_the_way() {
        let budget = KvBudget::new(10, || {});
        assert!(budget.reserve_now(11).is_none());
        let mut first = budget.reserve_now(6).unwrap();
        assert!(budget.store(4) && !budget.store(1));
        let place = budget.line_up(3);
        assert!(budget.try_take(place, 3).is_none() && budget.reserve_now(0).is_none());
        assert_eq!(budget.shortage(), Some(3));
        budget.unstore(4);
        let second = budget.try_take(place, 3).unwrap();
        assert_eq!((budget.reserved(), budget.stored(), budget.shortage()), (9, 0, None));
        // A prompt of 5 bytes is stored, 4 of which its row had reserved.
        assert!(!first.store(3, 5) && first.store(4, 5));
        assert_eq!((first.bytes(), budget.reserved(), budget.stored()), (2, 5, 5));
        drop((first, second));
        assert_eq!(budget.reserved(), 0);
        // What waits for memory that others hold has no shortage to blame on stored prompts.
        let third = budget.reserve_now(5).unwrap();
        let place = budget.line_up(9);
        assert_eq!(budget.shortage(), None);
        budget.give_up(place);
        drop(third);
    }
}
