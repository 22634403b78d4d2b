//! The cursor of a language model.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockstep_sample::TokenId;

use super::columns::{Columns, Slot};
use crate::potential::{Cursor, RowResult, Status, Ticket, Want, closed};

/// The cursor. Its tickets share the columns with it. One request is in flight at a time: a second
/// one waits for the first, so whoever wants several things of one cursor asks once.
#[derive(Debug)]
pub(super) struct LlmCursor {
    columns: Arc<Mutex<Columns>>,
}

impl LlmCursor {
    pub(super) fn new(columns: Columns) -> Self {
        Self { columns: Arc::new(Mutex::new(columns)) }
    }
}

impl Cursor for LlmCursor {
    fn len(&self) -> usize {
        lock(&self.columns).slots.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let number = lock(&self.columns).request(rows, want);
        let columns = Arc::clone(&self.columns);
        Ticket::deferred(move || lock(&columns).collect(number))
    }

    fn draws(&self) -> bool {
        true
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
        let score = |row: &usize| match &columns.slots[*row] {
            Slot::Open { history, .. } => Ok(columns.histories[*history].prefix),
            Slot::Closed { score } => Ok(*score),
            Slot::Dead => Ok(f64::NEG_INFINITY),
            Slot::Failed(error) => Err(error.clone()),
        };
        rows.iter().map(score).collect()
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        let mut columns = lock(&self.columns);
        columns.hold(rows);
        let complete = |row: &usize| match &columns.slots[*row] {
            Slot::Open { history, .. } => {
                let eos = columns.held(*row).map_or(f64::NEG_INFINITY, |held| held.logw(TokenId::EOS));
                Ok(columns.histories[*history].prefix + eos)
            }
            Slot::Closed { .. } => Err(closed()),
            Slot::Dead => Ok(f64::NEG_INFINITY),
            Slot::Failed(error) => Err(error.clone()),
        };
        rows.iter().map(complete).collect()
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
