//! Tokens in random order without replacement.
//!
//! Sorting by descending `w_i + g_i` with Gumbel noise `g_i` draws without replacement with
//! probabilities proportional to `exp w_i` (Yellott 1977; Kool et al. 2019). The order is found
//! piece by piece. The first few entries cost one pass that scores only who can be among them; who
//! goes on past them has every entry scored once, and then one scan a piece, each piece twice the
//! one before. Nothing sorts the whole row unless all of it is asked for.

use std::cmp::Ordering;

use crate::blocks::{self, BLOCK, Block, Source};
use crate::draw::Weights;
use crate::race::{self, Bar, Podium};
use crate::rng::{self, DrawKey};
use crate::simd::{self, Kernel};

/// Entries of the first piece.
const FIRST_PIECE: usize = 16;

/// The live entries of a row by descending log-weight plus Gumbel noise, ties to the lower index:
/// exact sampling without replacement. The noise of an entry is at its position.
///
/// The iterator's items are indices into the row's log-weights. The first equals the `gumbel_max`
/// draw of the same row and key.
#[derive(Clone, Debug)]
pub struct GumbelOrder {
    row: Row,
    /// By index; empty as long as the first piece lasts.
    scores: Vec<f64>,
    /// What is left of the current piece, in reverse order.
    piece: Vec<Entry>,
    /// The length of the current piece and its last entry.
    piece_len: usize,
    last: Option<Entry>,
}

/// A copy of what the order is made from.
#[derive(Clone, Debug)]
struct Row {
    positions: Option<Vec<u32>>,
    log_weights: Vec<f64>,
    key: DrawKey,
}

impl Row {
    fn weights(&self) -> Weights<'_> {
        Weights { positions: self.positions.as_deref(), log_weights: &self.log_weights }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    score: f64,
    index: usize,
}

impl Entry {
    fn new(score: f64, index: usize) -> Self {
        // Adding 0 makes −0 the 0 that it equals, for the total order.
        Self { score: score + 0.0, index }
    }

    /// Less is earlier.
    fn order(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.index.cmp(&other.index))
    }
}

impl GumbelOrder {
    /// The order that `key` gives the live entries of `weights`.
    #[must_use]
    pub fn new(weights: Weights<'_>, key: &DrawKey) -> Self {
        let row = Row {
            positions: weights.positions.map(<[u32]>::to_vec),
            log_weights: weights.log_weights.to_vec(),
            key: *key,
        };
        let mut order =
            Self { row, scores: Vec::new(), piece: Vec::new(), piece_len: FIRST_PIECE, last: None };
        order.start(simd::run(FirstPiece { weights, key }));
        order
    }

    /// Finds the piece after the current one.
    fn refill(&mut self) {
        let Some(last) = self.last else { return };
        if self.scores.is_empty() {
            self.scores = simd::run(Scores { weights: self.row.weights(), key: &self.row.key });
        }
        self.piece_len *= 2;
        let mut best = Best::new(self.piece_len);
        for (index, &score) in self.scores.iter().enumerate() {
            if score <= last.score && score > best.score {
                let entry = Entry::new(score, index);
                if entry.order(&last).is_gt() {
                    best.take(entry);
                }
            }
        }
        self.start(best);
    }

    /// Makes `best` the current piece.
    fn start(&mut self, best: Best) {
        self.piece = best.sorted();
        self.last = self.piece.last().copied();
        self.piece.reverse();
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

/// The first `len` of the entries offered in ascending index.
struct Best {
    len: usize,
    /// At most twice as many as wanted, so that a cut is paid by as many entries as it keeps.
    entries: Vec<Entry>,
    /// The score that an entry must exceed.
    score: f64,
}

impl Best {
    fn new(len: usize) -> Self {
        Self { len, entries: Vec::new(), score: f64::NEG_INFINITY }
    }

    /// Takes an entry above the score; whether that raised the score.
    fn take(&mut self, entry: Entry) -> bool {
        self.entries.push(entry);
        let full = self.entries.len() == 2 * self.len;
        if full {
            let (_, worst, _) = self.entries.select_nth_unstable_by(self.len - 1, Entry::order);
            self.score = worst.score;
            self.entries.truncate(self.len);
        }
        full
    }

    fn sorted(mut self) -> Vec<Entry> {
        self.entries.sort_unstable_by(Entry::order);
        self.entries.truncate(self.len);
        self.entries
    }
}

struct FirstPiece<'a> {
    weights: Weights<'a>,
    key: &'a DrawKey,
}

impl Kernel for FirstPiece<'_> {
    type Output = Best;

    #[inline(always)]
    fn run(self) -> Best {
        let best = Best::new(FIRST_PIECE);
        let Some(peak) = blocks::peak(&self.weights) else { return best };
        let mut leaders = Leaders { best, bar: Bar::new(peak.log_weight, peak.log_weight.abs()) };
        race::run(&self.weights, self.key, peak.log_weight, &mut leaders);
        leaders.best
    }
}

/// The best entries of a race.
struct Leaders {
    best: Best,
    bar: Bar,
}

impl Podium for Leaders {
    #[inline(always)]
    fn bar(&self) -> &Bar {
        &self.bar
    }

    #[inline(always)]
    fn challenge(&mut self, block: &Block<'_>, i: usize, score: f64) {
        if score > self.best.score && self.best.take(Entry::new(score, block.first + i)) {
            self.bar.raise(self.best.score);
        }
    }
}

/// The score of every entry, by index; `-inf` for those that are not live.
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
            let bits = race::block_bits(block.positions, len, key, &mut bits);
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
    fn all_simd_levels_agree_bit_for_bit() {
        for step in 0..50 {
            let noise = DrawKey::new(ProblemKey::new(6, 1), 0, step, 0);
            let log_weights: Vec<f64> = (0..100 * step).map(|i| 2.0 * noise.gumbel(i)).collect();
            let weights = Weights::dense(&log_weights);
            let key = &key(step);
            let bits = |scores: Vec<f64>| scores.into_iter().map(f64::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(simd::run(Scores { weights, key })), bits(Scores { weights, key }.run()));
            let first = FirstPiece { weights, key }.run().sorted();
            assert_eq!(simd::run(FirstPiece { weights, key }).sorted(), first);
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
