//! Which tokens may stand next to each other, from the merges of byte-level BPE.
//!
//! Encoding merges the adjacent pair of lowest rank first, the leftmost of equals. Let the *time*
//! of a token be the rank of the merge that makes it, 0 for bytes. If u and v encode to themselves,
//! then u · v encodes to (u, v) iff no merge ever crosses their boundary. Next to the boundary lie
//! in turn the tokens of u's *right spine* (its last byte, ..., u: each the right part of the next)
//! and of v's *left spine*. A token of a spine is there from its own time until that of the next.
//! A merge of rank c of R (in u's spine, until e) and L (in v's, until f) happens iff
//!
//! ```text
//! c < e  and  c <= f        (u is the left one, so that of equal ranks its own merge is first)
//! ```
//!
//! because ranks are greater than the times of what they merge. So one pair costs a walk down two
//! spines. For all v of one u, put the tokens in a forest where the parent of v is its left part,
//! children by descending time: the merge (R, L) of rank c excludes L and those of its subtrees
//! whose root has a time of at least c, which is one range of the forest's preorder. A row is then
//! one pass over the ranges of the merges that begin with a token of u's right spine.
//!
//! After Berglund and van der Merwe 2023, "Formalizing BPE tokenization", and Vieira et al. 2025,
//! "Language models over canonical byte-pair encodings".

use lockstep_engine::text::{Merge, Tokenizer};
use lockstep_sample::TokenId;

use crate::error::{ControlError, ErrorKind};

/// How a token is made when its own bytes are encoded.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// The rank of its merge, from 1; 0 for a byte; [`NEVER`] if its bytes encode to something else.
    time: u32,
    left: TokenId,
    right: TokenId,
}

const NEVER: u32 = u32::MAX;

/// The tables of one tokenizer. Shared by everything over it.
#[derive(Debug)]
pub(super) struct Spines {
    made: Vec<Made>,
    /// Merges by left token: `merges[merge_ends[left - 1]..merge_ends[left]]`, by right token.
    merges: Vec<(TokenId, u32)>,
    merge_ends: Vec<usize>,
    /// The tokens that encode to themselves, in preorder of the forest.
    order: Vec<TokenId>,
    /// Each token's place in `order` and the end of its subtree there.
    place: Vec<(usize, usize)>,
    /// Each token's children, by descending time; ends as of `merges`.
    children: Vec<TokenId>,
    child_ends: Vec<usize>,
}

impl Spines {
    /// # Errors
    /// If there are no merges, or one is listed before those that make its parts.
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Self, ControlError> {
        let n = tokenizer.vocabulary().len();
        let list = tokenizer.merges();
        if list.is_empty() {
            return Err(undetermined("the tokenizer has none"));
        }
        let ranked = list.iter().zip(1..);
        let mut by_right: Vec<(&Merge, u32)> = ranked.clone().collect();
        by_right.sort_unstable_by_key(|(merge, _)| merge.right);
        let (merges, merge_ends) =
            grouped(n, by_right.into_iter().map(|(merge, rank)| (merge.left, (merge.right, rank))));
        let unmade = Made { time: NEVER, left: TokenId(0), right: TokenId(0) };
        let mut this = Self {
            made: vec![unmade; n],
            merges,
            merge_ends,
            order: Vec::new(),
            place: vec![(0, 0); n],
            children: Vec::new(),
            child_ends: Vec::new(),
        };
        for byte in (0..=u8::MAX).filter_map(|byte| tokenizer.byte(byte)) {
            this.made[byte.index()].time = 0;
        }
        for (merge, rank) in ranked.clone() {
            let Merge { left, right, merged } = *merge;
            let parts = this.is_made(left) && this.is_made(right);
            if parts && !this.is_made(merged) && !this.crossed(left, right) {
                this.made[merged.index()] = Made { time: rank, left, right };
            }
        }
        for (merge, rank) in ranked {
            let late = |part: TokenId| this.is_made(part) && this.made[part.index()].time >= rank;
            if late(merge.left) || late(merge.right) {
                return Err(undetermined(&format!("merge {} is listed before those of its parts", rank - 1)));
            }
        }
        this.plant();
        Ok(this)
    }

    /// Numbers the forest of left parts in preorder.
    fn plant(&mut self) {
        let mut made: Vec<TokenId> = (0..).take(self.made.len()).map(TokenId).collect();
        made.retain(|token| self.is_made(*token));
        // Latest first, so that every list of children comes out in that order.
        made.sort_by_key(|token| std::cmp::Reverse(self.made[token.index()].time));
        let (roots, inner): (Vec<TokenId>, Vec<TokenId>) =
            made.into_iter().partition(|token| self.made[token.index()].time == 0);
        (self.children, self.child_ends) =
            grouped(self.made.len(), inner.into_iter().map(|token| (self.made[token.index()].left, token)));
        let mut stack: Vec<(TokenId, bool)> = roots.into_iter().rev().map(|root| (root, false)).collect();
        while let Some((token, done)) = stack.pop() {
            if done {
                self.place[token.index()].1 = self.order.len();
                continue;
            }
            self.place[token.index()].0 = self.order.len();
            self.order.push(token);
            stack.push((token, true));
            let children = group(&self.children, &self.child_ends, token);
            stack.extend(children.iter().rev().map(|child| (*child, false)));
        }
    }

    /// Whether the bytes of `token` encode to it.
    pub(super) fn is_made(&self, token: TokenId) -> bool {
        self.made.get(token.index()).is_some_and(|made| made.time != NEVER)
    }

    /// The rank of the merge of two tokens, if there is one.
    fn rank(&self, left: TokenId, right: TokenId) -> Option<u32> {
        let merges = group(&self.merges, &self.merge_ends, left);
        let at = merges.partition_point(|(other, _)| *other < right);
        merges.get(at).filter(|(other, _)| *other == right).map(|(_, rank)| *rank)
    }

    /// Whether a merge crosses the boundary before u and v, both made, stand there themselves.
    fn crossed(&self, u: TokenId, v: TokenId) -> bool {
        let (mut right, mut left) = (u, v);
        // From the last moment backwards: what stands there was merged away at these times.
        let (mut right_until, mut left_until) = (NEVER, NEVER);
        loop {
            let (right_since, left_since) = (self.made[right.index()].time, self.made[left.index()].time);
            if right_since > left_since {
                (right, right_until) = (self.made[right.index()].right, right_since);
            } else if left_since > 0 {
                (left, left_until) = (self.made[left.index()].left, left_since);
            } else {
                return false;
            }
            if self.rank(right, left).is_some_and(|rank| rank < right_until && rank <= left_until) {
                return true;
            }
        }
    }

    /// Whether the bytes of u and v together encode to just these two.
    pub(super) fn adjoin(&self, u: TokenId, v: TokenId) -> bool {
        self.is_made(u) && self.is_made(v) && self.rank(u, v).is_none() && !self.crossed(u, v)
    }

    /// Visits every v for which [`adjoin`](Self::adjoin) holds.
    pub(super) fn followers(&self, u: TokenId, mut visit: impl FnMut(TokenId)) {
        if !self.is_made(u) {
            return;
        }
        // Differences of how many merges exclude each place.
        let mut excluded = vec![0_i32; self.order.len() + 1];
        let (mut right, mut until) = (u, NEVER);
        loop {
            for &(left, rank) in group(&self.merges, &self.merge_ends, right) {
                if rank < until && self.is_made(left) {
                    let children = group(&self.children, &self.child_ends, left);
                    let after = children.partition_point(|child| self.made[child.index()].time >= rank);
                    let (begin, end) = self.place[left.index()];
                    let end = children.get(after).map_or(end, |child| self.place[child.index()].0);
                    excluded[begin] += 1;
                    excluded[end] -= 1;
                }
            }
            let made = self.made[right.index()];
            if made.time == 0 {
                break;
            }
            (right, until) = (made.right, made.time);
        }
        let mut by = 0;
        for (token, change) in self.order.iter().zip(excluded) {
            by += change;
            if by == 0 {
                visit(*token);
            }
        }
    }
}

/// Values by token, in their order: all in one list, and where those of each token end.
fn grouped<T: Copy>(n: usize, values: impl Iterator<Item = (TokenId, T)>) -> (Vec<T>, Vec<usize>) {
    let mut lists = vec![Vec::new(); n];
    values.for_each(|(token, value)| lists[token.index()].push(value));
    let ends = lists
        .iter()
        .scan(0, |end, list| {
            *end += list.len();
            Some(*end)
        })
        .collect();
    (lists.concat(), ends)
}

/// The values of `token`.
fn group<'a, T>(values: &'a [T], ends: &[usize], token: TokenId) -> &'a [T] {
    let begin = token.index().checked_sub(1).map_or(0, |before| ends[before]);
    &values[begin..ends[token.index()]]
}

fn undetermined(why: &str) -> ControlError {
    ControlError::new(ErrorKind::Vocabulary, format!("could not determine BPE merges: {why}"))
}
