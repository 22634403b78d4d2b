//! A condition that counts what is asked of it: the price of a way of drawing, besides tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockstep::control::ControlError;
use lockstep::control::potential::{
    Claims, Cursor, Demands, Potential, RowResult, Run, Status, Ticket, Want,
};
use lockstep::engine::TokenId;
use lockstep::engine::vocab::Vocabulary;
use lockstep::grammar::Dfa;
use lockstep::sample::Bitset;

/// How often a condition was asked.
#[derive(Debug, Default)]
pub(super) struct Counts {
    masks: AtomicU64,
    probes: AtomicU64,
}

impl Counts {
    /// Rows that it was asked about every token of.
    pub(super) fn masks(&self) -> u64 {
        self.masks.load(Ordering::Relaxed)
    }

    /// Single tokens that it was asked about, those fetched ahead included.
    pub(super) fn probes(&self) -> u64 {
        self.probes.load(Ordering::Relaxed)
    }
}

/// A potential, and how often its cursors are asked.
pub(super) struct Counted {
    inner: Arc<dyn Potential>,
    counts: Arc<Counts>,
}

impl Counted {
    pub(super) fn new(inner: Arc<dyn Potential>) -> Self {
        Self { inner, counts: Arc::default() }
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Potential for Counted {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.inner.vocab()
    }

    fn claims(&self) -> Claims {
        self.inner.claims()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(Box::new(CountedCursor { inner: self.inner.open(n, run)?, counts: self.counts() }))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.inner.demand(n, max_tokens, demands)
    }

    fn automaton(&self) -> Option<&Arc<Dfa>> {
        self.inner.automaton()
    }
}

struct CountedCursor {
    inner: Box<dyn Cursor>,
    counts: Arc<Counts>,
}

impl CountedCursor {
    fn count_masks(&self, rows: &[usize]) {
        self.counts.masks.fetch_add(rows.len() as u64, Ordering::Relaxed);
    }
}

impl Cursor for CountedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        match &want {
            Want::Tokens(tokens) => {
                let probes = tokens.iter().map(|tokens| tokens.len() as u64).sum();
                self.counts.probes.fetch_add(probes, Ordering::Relaxed);
            }
            Want::Row | Want::Draw(_) => self.count_masks(rows),
            Want::Hold => {}
        }
        self.inner.request(rows, want)
    }

    fn draws(&self) -> bool {
        self.inner.draws()
    }

    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<Bitset>>> {
        let masks = self.inner.masks(rows)?;
        self.count_masks(rows);
        Some(masks)
    }

    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        self.inner.advance(rows, spans)
    }

    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.score(rows)
    }

    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.complete(rows)
    }

    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
    }

    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), counts: Arc::clone(&self.counts) })
    }

    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
    }
}

#[cfg(test)]
mod tests {
    use lockstep::control::BoolFsa;

    use super::*;

    #[test]
    fn rows_and_single_tokens_are_counted_apart() {
        let counted = Counted::new(Arc::new(BoolFsa::from_regex("[ab]{2}").unwrap()));
        let counts = counted.counts();
        let mut cursor = counted.open(3, &Run::default()).unwrap();
        assert!(cursor.masks(&[0, 2]).is_some());
        assert!(cursor.logw_next(&[1])[0].is_ok());
        assert_eq!((counts.masks(), counts.probes()), (3, 0));
        let byte = TokenId(u32::from(b'a'));
        let answers = cursor.fork(&[0, 0]).probe(&[0, 1], vec![vec![byte, TokenId::EOS], vec![byte]]);
        assert_eq!(answers.len(), 2);
        let _ = cursor.request(&[0, 1, 2], Want::Hold).wait();
        assert_eq!((counts.masks(), counts.probes()), (3, 3));
    }
}
