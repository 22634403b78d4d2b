//! A potential that measures the time spent in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep::control::potential::{Claims, Cursor, RowResult, Run, Status, Ticket, Want};
use lockstep::control::{ControlError, Potential};
use lockstep::engine::TokenId;
use lockstep::engine::vocab::Vocabulary;
use lockstep::sample::Bitset;

/// Time, added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        let spent = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(spent, Ordering::Relaxed);
        result
    }
}

/// A constraint (it answers at once) with a clock on every call of its cursors.
pub(crate) struct Timed<P> {
    inner: P,
    clock: Clock,
}

impl<P> Timed<P> {
    pub(crate) fn new(inner: P, clock: Clock) -> Self {
        Self { inner, clock }
    }
}

impl<P: Potential> Potential for Timed<P> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.inner.vocab()
    }

    fn claims(&self) -> Claims {
        self.inner.claims()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(Box::new(TimedCursor { inner: self.inner.open(n, run)?, clock: self.clock.clone() }))
    }
}

struct TimedCursor {
    inner: Box<dyn Cursor>,
    clock: Clock,
}

impl Cursor for TimedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        self.clock.time(|| self.inner.request(rows, want))
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        self.clock.time(|| self.inner.masks(rows))
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        self.clock.time(|| self.inner.advance(rows, spans))
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.clock.time(|| self.inner.score(rows))
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.clock.time(|| self.inner.complete(rows))
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.clock.time(|| self.inner.select(ancestors));
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), clock: self.clock.clone() })
    }

    fn release(&mut self, rows: &[usize]) {
        self.clock.time(|| self.inner.release(rows));
    }
}
