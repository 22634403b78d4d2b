//! A potential that measures the time spent in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep::control::potential::{Claims, Cursor, Demands, RowResult, Run, Status, Ticket, Want};
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

/// A potential with a clock on every call of its cursors. Nothing that waits for a forward is timed.
pub(crate) struct Timed<P> {
    inner: P,
    clocks: Clocks,
}

/// Where the time of a potential's calls goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    /// Every call but selections.
    pub(crate) calls: Clock,
    /// Selections.
    pub(crate) selects: Clock,
}

impl<P> Timed<P> {
    pub(crate) fn new(inner: P, clocks: Clocks) -> Self {
        Self { inner, clocks }
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
        Ok(Box::new(TimedCursor { inner: self.inner.open(n, run)?, clocks: self.clocks.clone() }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.inner.demand(n, max_tokens, demands)
    }
}

struct TimedCursor {
    inner: Box<dyn Cursor>,
    clocks: Clocks,
}

impl Cursor for TimedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        self.clocks.calls.time(|| self.inner.request(rows, want))
    }

    fn draws(&self) -> bool {
        self.inner.draws()
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        self.clocks.calls.time(|| self.inner.masks(rows))
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        self.clocks.calls.time(|| self.inner.advance(rows, spans))
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.clocks.calls.time(|| self.inner.score(rows))
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.clocks.calls.time(|| self.inner.complete(rows))
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.clocks.selects.time(|| self.inner.select(ancestors));
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), clocks: self.clocks.clone() })
    }

    fn release(&mut self, rows: &[usize]) {
        self.clocks.calls.time(|| self.inner.release(rows));
    }
}
