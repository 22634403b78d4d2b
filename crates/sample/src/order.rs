//! Tokens in random order without replacement.
//!
//! Sorting by descending `w_i + g_i` with Gumbel noise `g_i` draws without replacement with
//! probabilities proportional to `exp w_i` (Yellott 1977; Kool et al. 2019). Scores are computed in
//! one pass; the order is found piece by piece, each piece twice the one before, by one scan that
//! keeps the best of what has not been handed out, so nothing sorts the whole row unless all of it
//! is asked for.

use std::cmp::Ordering;

use crate::blocks::{BLOCK, Source};
use crate::draw::{self, Weights};
use crate::rng::{self, DrawKey};
use crate::simd::{self, Kernel};

/// Entries found by the first scan.
const FIRST_PIECE: usize = 16;

/// The live entries of a row by descending log-weight plus Gumbel noise, ties to the lower index:
/// exact sampling without replacement. The noise of an entry is at its position.
///
/// The iterator's items are indices into the row's log-weights. The first equals the `gumbel_max`
/// draw of the same row and key.
#[derive(Clone, Debug)]
pub struct GumbelOrder {
    /// By index; `-inf` for entries that are not live.
    scores: Vec<f64>,
    /// The piece being handed out, in reverse order.
    piece: Vec<Entry>,
    piece_len: usize,
    /// The last entry of the last piece.
    last: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    score: f64,
    index: usize,
}

impl Entry {
    /// Less is earlier.
    fn order(&self, other: &Self) -> Ordering {
        let descending = other.score.partial_cmp(&self.score).expect("scores of live entries are numbers");
        descending.then(self.index.cmp(&other.index))
    }
}

impl GumbelOrder {
    /// The order that `key` gives the live entries of `weights`.
    #[must_use]
    pub fn new(weights: Weights<'_>, key: &DrawKey) -> Self {
        Self {
            scores: simd::run(Scores { weights, key }),
            piece: Vec::new(),
            piece_len: FIRST_PIECE,
            last: None,
        }
    }

    /// Finds the next piece.
    fn refill(&mut self) {
        let wanted = self.piece_len;
        // Nothing at or below the bar can be in the piece any more.
        let mut bar = f64::NEG_INFINITY;
        let ceiling = self.last.map_or(f64::INFINITY, |last| last.score);
        for (index, &score) in self.scores.iter().enumerate() {
            if score <= bar || score > ceiling {
                continue;
            }
            let entry = Entry { score, index };
            if self.last.is_some_and(|last| entry.order(&last).is_le()) {
                continue;
            }
            self.piece.push(entry);
            if self.piece.len() == 2 * wanted {
                let (_, worst, _) = self.piece.select_nth_unstable_by(wanted - 1, Entry::order);
                bar = worst.score;
                self.piece.truncate(wanted);
            }
        }
        self.piece.sort_unstable_by(Entry::order);
        self.piece.truncate(wanted);
        self.last = self.piece.last().copied().or(self.last);
        self.piece.reverse();
        self.piece_len = 2 * wanted;
    }
}

impl Iterator for GumbelOrder {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.piece.is_empty() {
            self.refill();
        }
        self.piece.pop().map(|entry| entry.index)
    }
}

struct Scores<'a> {
    weights: Weights<'a>,
    key: &'a DrawKey,
}

impl Kernel for Scores<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let Self { weights, key } = self;
        let mut scores = vec![0.0; weights.log_weights.len()];
        let mut scratch = [0.0; BLOCK];
        let mut bits = [0; BLOCK];
        let mut cursor = 0;
        while let Some(block) = weights.next(&mut cursor, &mut scratch) {
            let len = block.log_weights.len();
            let bits = draw::block_bits(block.positions, len, key, &mut bits);
            let scores = &mut scores[block.first..block.first + len];
            for ((score, &w), &bits) in scores.iter_mut().zip(block.log_weights).zip(bits) {
                *score = w + rng::gumbel_lane(bits);
            }
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::draw::{DrawMethod, draw};
    use crate::rng::ProblemKey;

    fn key(step: u32) -> DrawKey {
        DrawKey::new(ProblemKey::new(5, 1), 0, step, 3)
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_full_sort(
            step: u32,
            len in 0u32..3000,
            spread in prop::sample::select(vec![0.0, 1e-13, 1.0, 30.0, 1e17]),
            listed: bool,
        ) {
            let noise = DrawKey::new(ProblemKey::new(6, 0), 0, step, 0);
            let log_weights: Vec<f64> = (0..len)
                .map(|i| if noise.block(i)[1].is_multiple_of(5) { f64::NEG_INFINITY } else { spread * noise.gumbel(i) })
                .collect();
            let positions: Vec<u32> = (0..len).map(|i| if listed { 3 * i + 1 } else { i }).collect();
            let weights =
                if listed { Weights::listed(&positions, &log_weights) } else { Weights::dense(&log_weights) };

            let score = |i: usize| log_weights[i] + key(step).gumbel(positions[i]);
            let mut sorted: Vec<usize> =
                (0..len as usize).filter(|&i| log_weights[i] > f64::NEG_INFINITY).collect();
            sorted.sort_by(|&a, &b| score(b).partial_cmp(&score(a)).unwrap().then(a.cmp(&b)));

            let order: Vec<usize> = GumbelOrder::new(weights, &key(step)).collect();
            prop_assert_eq!(&order, &sorted);
            let pick = draw(weights, DrawMethod::GumbelMax, &key(step));
            prop_assert_eq!(pick.map(|pick| pick.index), order.first().copied());
        }
    }

    #[test]
    fn samplers_14_an_impossible_entry_never_ranks_above_a_possible_one() {
        for step in 0..200 {
            let log_weights = [f64::NEG_INFINITY, -1e300, f64::NEG_INFINITY, -740.0];
            let order: Vec<usize> = GumbelOrder::new(Weights::dense(&log_weights), &key(step)).collect();
            assert_eq!(order, [3, 1]);
        }
    }

    /// The second entry follows `p_j / (1 − p_i)`. False-alarm rate 10⁻⁴ (χ², 5 degrees of freedom).
    #[test]
    fn the_first_two_are_drawn_without_replacement() {
        let p: [f64; 3] = [0.2, 0.3, 0.5];
        let log_weights = p.map(f64::ln);
        let n = 30_000;
        let mut counts = [[0; 3]; 3];
        for step in 0..n {
            let mut order = GumbelOrder::new(Weights::dense(&log_weights), &key(step));
            let (Some(i), Some(j)) = (order.next(), order.next()) else { panic!("three live entries") };
            counts[i][j] += 1;
        }
        let mut chi2 = 0.0;
        for i in 0..3 {
            assert_eq!(counts[i][i], 0);
            for j in (0..3).filter(|&j| j != i) {
                let expected = f64::from(n) * p[i] * p[j] / (1.0 - p[i]);
                chi2 += (f64::from(counts[i][j]) - expected).powi(2) / expected;
            }
        }
        assert!(chi2 < 25.74, "χ² = {chi2}");
    }
}
