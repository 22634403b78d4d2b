//! Which passes over rows are shared among threads.

use rayon::prelude::*;

/// Ids to draw from, all rows together, from which a pass is shared among threads: with fewer, these
/// take about as long to wake as the work itself.
pub const SHARED_FROM: usize = 32_768;

/// `work` on every row, in order; on all threads of the current pool, if that pays. `ids` is what a
/// row costs: as much as a draw from so many ids.
pub(crate) fn map<T: Sync, R: Send>(
    rows: &[T],
    ids: impl Fn(&T) -> usize,
    work: impl Fn(&T) -> R + Send + Sync,
) -> Vec<R> {
    let is_shared = rows.len() > 1
        && rayon::current_num_threads() > 1
        && rows.iter().map(ids).sum::<usize>() >= SHARED_FROM;
    // Rows cost more or less according to their settings, so that no thread is given several at once.
    if is_shared {
        rows.par_iter().with_max_len(1).map(work).collect()
    } else {
        rows.iter().map(work).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    /// Whether rows of so many ids are all done by the thread that asks, in a pool of so many.
    fn stays(threads: usize, rows: &[usize]) -> bool {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let seen = Mutex::new(HashSet::from([thread::current().id()]));
            let work = |&ids: &usize| {
                let mut seen = seen.lock().unwrap();
                seen.insert(thread::current().id());
                ids
            };
            assert_eq!(map(rows, |&ids| ids, work), rows);
            seen.into_inner().unwrap().len() == 1
        })
    }

    #[test]
    fn what_does_not_pay_stays_on_its_thread() {
        assert!(stays(8, &[SHARED_FROM * 100]));
        assert!(stays(8, &[1; 1000]));
        assert!(stays(1, &[SHARED_FROM; 1000]));
    }
}
