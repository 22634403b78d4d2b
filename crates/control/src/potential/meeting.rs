//! Where the calls that concurrent runs make of one potential become one call.
//!
//! Under the engine's party rule: a batch is made once somebody waits and no party is busy, or
//! after the straggler wait. The last to arrive makes it, on its own thread, for everybody.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use lockstep_engine::StragglerWait;
use lockstep_engine::party::{Blocked, Parties, PartyId};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::{Claims, RowResult, guarded};
use crate::error::{ControlError, ErrorKind};

/// A potential whose calls are dear and batch well: a remote scorer, a network of one's own.
pub trait BatchPotential: Send + Sync {
    /// The tokens it reads.
    fn vocab(&self) -> &Arc<Vocabulary>;

    /// What it promises.
    fn claims(&self) -> Claims {
        Claims::default()
    }

    /// `ln ψ` of each context, which holds no end symbol: one result for each, in order.
    ///
    /// # Errors
    /// If the batch fails as a whole; its contexts are then asked for one by one. A batch that was
    /// cancelled ([`ErrorKind::Cancelled`]) is not asked for again.
    fn batch_prefix(&self, contexts: &[&[TokenId]]) -> Result<Vec<RowResult<f64>>, ControlError>;

    /// `ln ψ(context · EOS)` of each context.
    ///
    /// # Errors
    /// As for [`Self::batch_prefix`].
    fn batch_complete(&self, contexts: &[&[TokenId]]) -> Result<Vec<RowResult<f64>>, ControlError>;
}

/// One value that somebody wants.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Prefix(Vec<TokenId>),
    Complete(Vec<TokenId>),
}

/// The meeting point of all cursors over one potential.
pub(super) struct Meeting<P> {
    pub(super) potential: P,
    pub(super) parties: Arc<Parties>,
    straggler_wait: StragglerWait,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: Vec<Arc<Call>>,
    since: Option<Instant>,
    driving: bool,
    /// Parties whose waits are over, until they leave.
    cancelled: BTreeSet<PartyId>,
    recent: VecDeque<Duration>,
}

/// The asks of one caller, and where their answers go.
#[derive(Debug)]
pub(super) struct Call {
    asks: Vec<Ask>,
    outcome: Mutex<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    answers: Option<Vec<RowResult<f64>>>,
    blocked: Blocked,
}

/// Batches that the median is taken of, and the longest wait for stragglers.
const RECENT: usize = 31;
const LONGEST_WAIT: Duration = Duration::from_millis(20);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: BatchPotential> Meeting<P> {
    pub(super) fn new(potential: P, straggler_wait: StragglerWait) -> Self {
        let shared = Arc::new(Shared::default());
        let handle: Weak<Shared> = Arc::downgrade(&shared);
        let wake = move || {
            if let Some(shared) = handle.upgrade() {
                // Under the lock, so that nobody is between looking and waiting.
                drop(lock(&shared.state));
                shared.changed.notify_all();
            }
        };
        Self { potential, parties: Arc::new(Parties::new(wake)), straggler_wait, shared }
    }

    /// Ends the waits of `party`, also those to come.
    pub(super) fn cancel(&self, party: PartyId) {
        lock(&self.shared.state).cancelled.insert(party);
        self.shared.changed.notify_all();
    }

    /// `party` is gone.
    pub(super) fn leave(&self, party: PartyId) {
        lock(&self.shared.state).cancelled.remove(&party);
        self.parties.leave(party);
    }

    /// Puts asks in the queue.
    pub(super) fn submit(&self, party: PartyId, asks: Vec<Ask>) -> Arc<Call> {
        self.parties.touch(party);
        let call = Arc::new(Call { asks, outcome: Mutex::default() });
        let mut state = lock(&self.shared.state);
        state.since.get_or_insert_with(Instant::now);
        state.queue.push(Arc::clone(&call));
        call
    }

    /// Waits for the answers to `call`, making the batch that has them if it falls to this caller.
    pub(super) fn wait(&self, party: PartyId, call: &Arc<Call>) -> Vec<RowResult<f64>> {
        self.parties.touch(party);
        let mut outcome = lock(&call.outcome);
        if let Some(answers) = outcome.answers.take() {
            return answers;
        }
        // Under the lock, so that whoever answers knows whom to call back to work.
        outcome.blocked = Blocked::here();
        drop(outcome);
        let mut state = lock(&self.shared.state);
        loop {
            let mut outcome = lock(&call.outcome);
            if let Some(answers) = outcome.answers.take() {
                return answers;
            }
            if state.cancelled.contains(&party) {
                std::mem::take(&mut outcome.blocked).resume();
                state.queue.retain(|queued| !Arc::ptr_eq(queued, call));
                let error = ControlError::new(ErrorKind::Cancelled, "the run was cancelled");
                return call.asks.iter().map(|_| Err(error.clone())).collect();
            }
            drop(outcome);
            if state.driving {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = self.time_left(&state);
            if left.is_some_and(|left| left.is_zero()) || !self.parties.any_expected() {
                let batch = std::mem::take(&mut state.queue);
                state.since = None;
                state.driving = true;
                drop(state);
                self.parties.note_start();
                self.drive(&batch, call);
                state = lock(&self.shared.state);
                continue;
            }
            state = match left {
                None => self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.shared.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// How long stragglers are still waited for; `None` without limit.
    fn time_left(&self, state: &State) -> Option<Duration> {
        let wait = match self.straggler_wait {
            StragglerWait::Unlimited => return None,
            StragglerWait::Fixed(wait) => wait,
            StragglerWait::Adaptive => {
                let mut recent: Vec<Duration> = state.recent.iter().copied().collect();
                recent.sort_unstable();
                recent.get(recent.len() / 2).map_or(LONGEST_WAIT, |median| (*median / 4).min(LONGEST_WAIT))
            }
        };
        Some(state.since.map_or(Duration::ZERO, |since| wait.saturating_sub(since.elapsed())))
    }

    /// Makes a batch and delivers its answers. Nobody is left waiting, whatever happens to it.
    fn drive(&self, batch: &[Arc<Call>], own: &Arc<Call>) {
        let start = Instant::now();
        let asks: Vec<&Ask> = batch.iter().flat_map(|call| &call.asks).collect();
        let outcome = self.answers(&asks);
        let cancelled = outcome.as_ref().err().cloned();
        let mut answers = outcome.unwrap_or_default().into_iter();
        // All are at work again before the first has its answer, so that nobody goes on without the others.
        for call in batch {
            std::mem::take(&mut lock(&call.outcome).blocked).resume();
        }
        for call in batch {
            let results = match &cancelled {
                None => answers.by_ref().take(call.asks.len()).collect(),
                Some(cause) => {
                    let error = if Arc::ptr_eq(call, own) {
                        cause.clone()
                    } else {
                        let message = format!("the batch was abandoned by the run that made it: {cause}");
                        ControlError::new(ErrorKind::BatchAbandoned, message)
                    };
                    call.asks.iter().map(|_| Err(error.clone())).collect()
                }
            };
            let mut outcome = lock(&call.outcome);
            outcome.answers = Some(results);
            std::mem::take(&mut outcome.blocked).resume();
        }
        let mut state = lock(&self.shared.state);
        state.driving = false;
        if state.recent.len() == RECENT {
            state.recent.pop_front();
        }
        state.recent.push_back(start.elapsed());
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The answers to all asks, in order; an error only if the batch was cancelled.
    fn answers(&self, asks: &[&Ask]) -> Result<Vec<RowResult<f64>>, ControlError> {
        let (mut prefixes, mut completes) = (Vec::new(), Vec::new());
        for ask in asks {
            match ask {
                Ask::Prefix(context) => prefixes.push(context.as_slice()),
                Ask::Complete(context) => completes.push(context.as_slice()),
            }
        }
        let mut prefixes =
            in_one_call(&prefixes, |contexts| self.potential.batch_prefix(contexts))?.into_iter();
        let mut completes =
            in_one_call(&completes, |contexts| self.potential.batch_complete(contexts))?.into_iter();
        let next = |ask: &&Ask| match ask {
            Ask::Prefix(_) => prefixes.next(),
            Ask::Complete(_) => completes.next(),
        };
        Ok(asks.iter().filter_map(next).collect())
    }
}

type Batch = Result<Vec<RowResult<f64>>, ControlError>;

/// One call for all contexts; if it fails as a whole, one for each.
fn in_one_call(contexts: &[&[TokenId]], call: impl Fn(&[&[TokenId]]) -> Batch) -> Batch {
    if contexts.is_empty() {
        return Ok(Vec::new());
    }
    match checked(contexts, &call) {
        Err(error) if error.kind() == ErrorKind::Cancelled => Err(error),
        Err(error) if contexts.len() == 1 => Ok(vec![Err(error)]),
        Err(_) => contexts
            .iter()
            .map(|context| match checked(&[*context], &call) {
                Err(error) if error.kind() == ErrorKind::Cancelled => Err(error),
                Err(error) => Ok(Err(error)),
                Ok(mut results) => Ok(results.pop().unwrap_or(Ok(f64::NEG_INFINITY))),
            })
            .collect(),
        Ok(results) => Ok(results),
    }
}

/// A call of user code: its panics are errors, and so is another number of results.
fn checked(contexts: &[&[TokenId]], call: impl Fn(&[&[TokenId]]) -> Batch) -> Batch {
    let results = guarded("the potential", || call(contexts))?;
    if results.len() != contexts.len() {
        return Err(ControlError::new(
            ErrorKind::Contract,
            format!("a batch of {} contexts got {} results", contexts.len(), results.len()),
        ));
    }
    Ok(results)
}
