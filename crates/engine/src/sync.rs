//! What threads share, from one place: under `--cfg shuttle` the tests of the scheduler put an
//! explorer of interleavings in its place.

use std::time::Instant;

#[cfg(not(shuttle))]
mod parts {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
    pub(crate) use std::thread::{self, ThreadId};
    pub(crate) use std::thread_local;

    /// Runs `job` on a thread that may block for as long as it likes.
    pub(crate) fn spawn_blocking(job: impl FnOnce() + Send + 'static) {
        blocking::unblock(job).detach();
    }

    /// The next message, if it comes before `deadline`.
    pub(crate) fn recv_deadline<T>(
        queue: &Receiver<T>,
        deadline: super::Instant,
    ) -> Result<T, RecvTimeoutError> {
        queue.recv_timeout(deadline.saturating_duration_since(super::Instant::now()))
    }
}

#[cfg(shuttle)]
mod parts {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use shuttle::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
    pub(crate) use shuttle::thread::{self, ThreadId};
    pub(crate) use shuttle::thread_local;

    pub(crate) fn spawn_blocking(job: impl FnOnce() + Send + 'static) {
        thread::spawn(job);
    }

    /// Time is a number of turns that others get.
    pub(crate) fn recv_deadline<T>(queue: &Receiver<T>, _: super::Instant) -> Result<T, RecvTimeoutError> {
        for _ in 0..4 {
            match queue.try_recv() {
                Ok(message) => return Ok(message),
                Err(mpsc::TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(mpsc::TryRecvError::Empty) => thread::yield_now(),
            }
        }
        Err(RecvTimeoutError::Timeout)
    }
}

pub(crate) use parts::*;
