//! The Gumbel-max draw: `argmax(w_i + g_i)`, `g_i = −ln(−ln u_i)`.

use super::Pick;
use crate::blocks::{self, Block, Peak, Source};
use crate::race::{self, Bar, Podium};
use crate::rng::{self, DrawKey};
use crate::simd::Kernel;

pub(super) struct GumbelMax<'a, S> {
    pub(super) source: &'a S,
    pub(super) key: &'a DrawKey,
}

impl<S: Source> Kernel for GumbelMax<'_, S> {
    type Output = Option<Pick>;

    #[inline(always)]
    fn run(self) -> Option<Pick> {
        let Self { source, key } = self;
        let peak = blocks::peak(source)?;
        // The heaviest entry goes first: it sets a bar that few reach.
        let score = peak.log_weight + rng::gumbel_lane(key.bits_lane(peak.position));
        let mut best = Best::new(peak, score);
        let sum = race::run(source, key, peak.log_weight, &mut best);
        let log_total = blocks::log_of(peak.log_weight, sum);
        Some(Pick { index: best.index, log_total, logp: best.log_weight - log_total })
    }
}

/// The best entry so far.
struct Best {
    score: f64,
    log_weight: f64,
    index: usize,
    position: u32,
    bar: Bar,
}

impl Best {
    /// The heaviest entry of a row, with its score.
    #[inline(always)]
    fn new(peak: Peak, score: f64) -> Self {
        let Peak { log_weight, index, position } = peak;
        let mut bar = Bar::new(log_weight, log_weight.abs());
        bar.raise(score);
        Self { score, log_weight, index, position, bar }
    }
}

impl Podium for Best {
    #[inline(always)]
    fn bar(&self) -> &Bar {
        &self.bar
    }

    /// An entry is good enough with a better score, or with as good a one at a lower position.
    #[inline(always)]
    fn challenge(&mut self, block: &Block<'_>, i: usize, score: f64) {
        let position = block.positions.at(i);
        if score > self.score || (score == self.score && position < self.position) {
            let (log_weight, index) = (block.log_weights[i], block.first + i);
            *self = Self { score, log_weight, index, position, bar: self.bar };
            self.bar.raise(score);
        }
    }
}
