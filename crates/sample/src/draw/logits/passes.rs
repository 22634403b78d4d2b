//! The passes over a row's masses.

use super::super::Weights;
use super::PART;
use crate::blocks::{self, BLOCK, Block, Positions, RunSum, WORDS};
use crate::normalizer::Scale;
use crate::race::{self, Bar, GROUP, Noise, Podium};
use crate::rng::{self, DrawKey};
use crate::simd::Kernel;

/// The words of a mask of the ids from `start`, a multiple of 64.
#[inline(always)]
pub(super) fn words_from(words: &[u64], start: usize) -> impl Iterator<Item = u64> + '_ {
    let rest = words.get(start / u64::BITS as usize..).unwrap_or_default();
    rest.iter().copied().chain(std::iter::repeat(0))
}

/// Who may win a race.
pub(super) struct Field {
    pub(super) bar: Bar,
    /// The best score so far.
    pub(super) best: f64,
    pub(super) candidates: Vec<u32>,
}

impl Field {
    #[inline(always)]
    pub(super) fn enter(&mut self, id: u32, score: f64) {
        if score >= self.best - self.bar.slack() {
            self.candidates.push(id);
            if score > self.best {
                self.best = score;
                self.bar.raise(score);
            }
        }
    }
}

impl Podium for Field {
    #[inline(always)]
    fn bar(&self) -> &Bar {
        &self.bar
    }

    #[inline(always)]
    fn challenge(&mut self, block: &Block<'_>, i: usize, score: f64) {
        self.enter(block.positions.at(i), score);
    }
}

/// Sums the masses of a row, all and live ones, and finds who may win the race of these.
pub(super) struct Race<'a> {
    pub(super) logits: &'a [f32],
    pub(super) scale: Scale,
    /// The live ids, if not all are.
    pub(super) words: Option<&'a [u64]>,
    pub(super) key: &'a DrawKey,
    /// Ids that do not race.
    pub(super) ends: &'a [u32],
    pub(super) field: &'a mut Field,
}

impl Kernel for Race<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run(self) -> [f64; 2] {
        let Self { logits, scale, words, key, ends, field } = self;
        let (mut masses, mut most, mut live) = ([0.0; BLOCK], [0.0; WORDS], [u64::MAX; WORDS]);
        let mut noise = Noise::new(key);
        let mut sums = [0.0; 2];
        for (first, logits) in (0..).step_by(BLOCK).zip(logits.chunks(BLOCK)) {
            let masses = &mut masses[..logits.len()];
            blocks::logit_masses(logits, scale, masses);
            if let Some(words) = words {
                live.iter_mut().zip(words_from(words, first)).for_each(|(live, word)| *live = word);
                let [all, allowed] = blocks::weigh(masses, &live, &mut most);
                sums[0] += all;
                sums[1] += allowed;
                if allowed == 0.0 {
                    continue;
                }
            } else {
                sums[0] += block_total(masses);
                for (most, masses) in most.iter_mut().zip(masses.chunks(GROUP)) {
                    *most = blocks::max(masses);
                }
            }
            noise.enter(first as u32, masses.len());
            for (group, masses) in masses.chunks(GROUP).enumerate() {
                let start = group * GROUP;
                let Some(bits) = noise.reaching(&field.bar, start, masses.len(), most[group]) else {
                    continue;
                };
                for (i, (&mass, &bits)) in masses.iter().zip(bits).enumerate() {
                    let id = (first + start + i) as u32;
                    // What has no mass cannot win.
                    let races = live[group] >> i & 1 == 1 && mass > 0.0;
                    if races && field.bar.admits(mass, bits) && !ends.contains(&id) {
                        field.enter(id, scale.exponent(logits[start + i]) + rng::gumbel_lane(bits));
                    }
                }
            }
        }
        sums
    }
}

/// [`Race`] of a few ids, by their exponents; the sum of their masses.
pub(super) struct ListRace<'a> {
    pub(super) weights: Weights<'a>,
    pub(super) key: &'a DrawKey,
    pub(super) field: &'a mut Field,
}

impl Kernel for ListRace<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        race::run(&self.weights, self.key, 0.0, self.field)
    }
}

/// Sums the masses of a row, all and live ones, and writes the running sum of these after each part.
pub(super) struct PartSums<'a> {
    pub(super) logits: &'a [f32],
    pub(super) scale: Scale,
    /// The live ids, if not all are.
    pub(super) words: Option<&'a [u64]>,
    pub(super) sums: &'a mut Vec<f64>,
}

impl Kernel for PartSums<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run(self) -> [f64; 2] {
        let Self { logits, scale, words, sums } = self;
        let (mut masses, mut allowed) = ([0.0; BLOCK], [0.0; BLOCK]);
        let mut all = 0.0;
        let mut live = 0.0;
        for (first, logits) in (0..).step_by(BLOCK).zip(logits.chunks(BLOCK)) {
            let mut masses = &mut masses[..logits.len()];
            blocks::logit_masses(logits, scale, masses);
            if let Some(words) = words {
                let allowed = &mut allowed[..logits.len()];
                all += block_total(masses);
                blocks::allow(masses, words_from(words, first), allowed);
                masses = allowed;
            }
            let mut block = RunSum::default();
            for part in masses.chunks(PART) {
                block.add(part);
                sums.push(live + block.total());
            }
            live += block.total();
        }
        if words.is_none() { [live, live] } else { [all, live] }
    }
}

#[inline(always)]
fn block_total(masses: &[f64]) -> f64 {
    blocks::block_sum(Positions::Run(0), masses)
}

pub(super) struct Fill<'a> {
    pub(super) logits: &'a [f32],
    pub(super) scale: Scale,
    pub(super) out: &'a mut [f64],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        blocks::logit_masses(self.logits, self.scale, self.out);
    }
}
