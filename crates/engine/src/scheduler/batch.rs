//! What a step feeds, cut into batches.

use crate::generation::Feed;

/// Who a share of a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A party's row, by its place in the step.
    Request(usize),
    /// A generating row.
    Row(Feed),
}

/// A share of one batch: `start..end` of its owner's tokens; `is_last` if that is the end of what the
/// step feeds of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) owner: Owner,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) is_last: bool,
}

/// Cuts shares, given as (owner, start, end), into batches of at most `limit` tokens, long ones into
/// chunks. A share's chunks lie in consecutive batches, so no sequence occurs twice in one.
pub(super) fn cut(shares: impl IntoIterator<Item = (Owner, usize, usize)>, limit: usize) -> Vec<Vec<Part>> {
    let mut batches = vec![Vec::new()];
    let mut room = limit;
    for (owner, mut start, stop) in shares {
        while start < stop {
            if room == 0 {
                batches.push(Vec::new());
                room = limit;
            }
            let end = stop.min(start + room);
            room -= end - start;
            // A generating row's chunk is a feed of its own.
            let owner = match owner {
                Owner::Row(feed) => Owner::Row(Feed { start, end, ..feed }),
                Owner::Request(_) => owner,
            };
            if let Some(batch) = batches.last_mut() {
                batch.push(Part { owner, start, end, is_last: end == stop });
            }
            start = end;
        }
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_shares_are_cut_and_no_owner_is_twice_in_a_batch() {
        let feed = Feed { at: 0, start: 4, end: 9, is_prompt: true };
        let shares = [(Owner::Request(0), 0, 1), (Owner::Row(feed), 4, 9), (Owner::Request(1), 0, 1)];
        let batches = cut(shares, 3);
        let sizes: Vec<Vec<(usize, usize, bool)>> = batches
            .iter()
            .map(|batch| batch.iter().map(|part| (part.start, part.end, part.is_last)).collect())
            .collect();
        assert_eq!(sizes, [vec![(0, 1, true), (4, 6, false)], vec![(6, 9, true)], vec![(0, 1, true)]]);
        assert_eq!(batches[0][1].owner, Owner::Row(Feed { end: 6, ..feed }));
        assert!(cut([], 3).is_empty());
    }
}
