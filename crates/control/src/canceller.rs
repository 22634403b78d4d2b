//! Ending a run from another thread.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ends a run, from any thread and more than once. Clones end the same run.
///
/// Whatever the run waits for in an engine, memory included, or in a merged call ends at once; user code that it is in
/// is not interrupted, but can look at [`is_cancelled`](Self::is_cancelled). The run then ends with
/// an error of kind [`Cancelled`](crate::ErrorKind::Cancelled) and gives everything back.
#[derive(Clone, Default)]
pub struct Canceller(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cancelled: bool,
    next: u64,
    hooks: Vec<(u64, Hook)>,
}

type Hook = Arc<dyn Fn() + Send + Sync>;

impl Canceller {
    /// Cancels the run.
    pub fn cancel(&self) {
        let hooks = {
            let mut state = self.lock();
            state.cancelled = true;
            state.hooks.clone()
        };
        hooks.iter().for_each(|(_, hook)| hook());
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// Calls `hook` when the run is cancelled, at once if it is already, until the answer is
    /// dropped. For whatever makes the run's thread wait: the hook ends the wait.
    pub fn on_cancel(&self, hook: impl Fn() + Send + Sync + 'static) -> OnCancel {
        let hook: Hook = Arc::new(hook);
        let (id, cancelled) = {
            let mut state = self.lock();
            let id = state.next;
            state.next += 1;
            state.hooks.push((id, Arc::clone(&hook)));
            (id, state.cancelled)
        };
        if cancelled {
            hook();
        }
        OnCancel { canceller: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// A hook of [`Canceller::on_cancel`], until this is dropped.
#[derive(Debug)]
#[must_use = "the hook is gone when this is dropped"]
pub struct OnCancel {
    canceller: Canceller,
    id: u64,
}

impl Drop for OnCancel {
    fn drop(&mut self) {
        self.canceller.lock().hooks.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn hooks_are_called_while_they_are_held_and_at_once_when_late() {
        let canceller = Canceller::default();
        let calls = Arc::new(AtomicU32::new(0));
        let count = |by: u32| {
            let calls = Arc::clone(&calls);
            move || {
                calls.fetch_add(by, Ordering::SeqCst);
            }
        };
        let held = canceller.on_cancel(count(1));
        drop(canceller.on_cancel(count(100)));
        assert!(!canceller.is_cancelled());
        canceller.clone().cancel();
        assert!(canceller.is_cancelled() && calls.load(Ordering::SeqCst) == 1);
        let late = canceller.on_cancel(count(10));
        assert_eq!(calls.load(Ordering::SeqCst), 11);
        drop((held, late));
        assert!(canceller.lock().hooks.is_empty());
    }
}
