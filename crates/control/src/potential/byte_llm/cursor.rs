//! The cursor over bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockstep_sample::TokenId;

use super::columns::{Columns, Slot};
use crate::potential::{Cursor, RowResult, Status, Ticket, Want};

/// The cursor. Its tickets share the columns with it. One request is in flight at a time.
pub(super) struct ByteCursor {
    columns: Arc<Mutex<Columns>>,
}

impl ByteCursor {
    pub(super) fn new(columns: Columns) -> Self {
        Self { columns: Arc::new(Mutex::new(columns)) }
    }
}

impl Cursor for ByteCursor {
    fn len(&self) -> usize {
        lock(&self.columns).slots.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let desk = lock(&self.columns).request(rows, want);
        let columns = Arc::clone(&self.columns);
        Ticket::deferred(move || {
            let take = || desk.lock().unwrap_or_else(PoisonError::into_inner).take();
            take().unwrap_or_else(|| {
                lock(&columns).settle();
                take().unwrap_or_default()
            })
        })
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        let mut columns = lock(&self.columns);
        let mut statuses = vec![Status::Live; rows.len()];
        let longest = spans.iter().map(|span| span.len()).max().unwrap_or(0);
        for at in 0..longest {
            let (which, moves): (Vec<usize>, Vec<(usize, TokenId)>) =
                spans.iter().enumerate().filter_map(|(i, span)| Some((i, (rows[i], *span.get(at)?)))).unzip();
            for (i, status) in which.into_iter().zip(columns.advance(&moves)) {
                statuses[i] = status;
            }
        }
        statuses
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let mut columns = lock(&self.columns);
        columns.settle();
        rows.iter().map(|row| columns.score(*row)).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let mut columns = lock(&self.columns);
        columns.hold(rows);
        rows.iter().map(|row| columns.complete(*row)).collect()
    }

    fn select(&mut self, ancestors: &[usize]) {
        lock(&self.columns).select(ancestors);
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self::new(lock(&self.columns).fork(rows)))
    }

    fn release(&mut self, rows: &[usize]) {
        let mut columns = lock(&self.columns);
        columns.settle();
        for row in rows {
            columns.slots[*row] = Slot::Dead;
        }
        columns.forget_unused();
    }
}

fn lock(columns: &Mutex<Columns>) -> MutexGuard<'_, Columns> {
    columns.lock().unwrap_or_else(PoisonError::into_inner)
}
