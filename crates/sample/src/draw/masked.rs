//! Rows whose weights are computed as they are read, and the Gumbel race of those with a mask.
//!
//! A mask is read a word of 64 ids at a time. A word that forbids all costs nothing, neither weights
//! nor exponentials nor noise, and one that allows all costs no look at its bits.
//!
//! Invariant: a row gives the bits of its weights written out.

use super::Pick;
use super::gumbel::Best;
use super::row::Fold;
use crate::bitset::Bitset;
use crate::blocks::{BLOCK, Block, Peak, Positions, RunSum, Scratch, Source};
use crate::eos::EosSet;
use crate::math::{self, mass_lane};
use crate::normalizer::Normalizer;
use crate::race::Noise;
use crate::rng::{self, DrawKey};
use crate::simd::{self, Kernel};
use crate::visits;

/// Ids a word of a mask.
const WORD: usize = u64::BITS as usize;

/// A row of logits, with the end-of-sequence set folded and what the mask forbids at `-inf`.
pub(super) struct Row<'a> {
    pub(super) normalizer: Normalizer,
    pub(super) fold: Fold,
    pub(super) logits: &'a [f32],
    pub(super) eos: &'a EosSet,
    pub(super) mask: Option<&'a Bitset>,
}

impl Row<'_> {
    /// The mask's word of the ids from `start`.
    #[inline(always)]
    fn word(&self, start: usize) -> u64 {
        self.mask.map_or(u64::MAX, |mask| mask.words().get(start / WORD).copied().unwrap_or(0))
    }

    /// Where the folded set stands, if it is allowed.
    #[inline(always)]
    fn end(&self) -> Option<usize> {
        let end = self.fold.position? as usize;
        let is_allowed = self.word(end / WORD * WORD) >> (end % WORD) & 1 == 1;
        (is_allowed && end < self.logits.len()).then_some(end)
    }

    /// Writes the logits of the ids from `start`, those that are forbidden or end a sequence at `-inf`.
    /// Returns whether there are others.
    #[inline(always)]
    fn tokens(&self, start: usize, out: &mut [f32; WORD]) -> bool {
        const HALF: usize = WORD / 2;
        let word = self.eos.ids().iter().fold(self.word(start), |word, &id| {
            match (id as usize).checked_sub(start) {
                Some(bit) if bit < WORD => word & !(1 << bit),
                _ => word,
            }
        });
        if word == 0 {
            return false;
        }
        let rest = &self.logits[start..];
        visits::looks(rest.len().min(WORD));
        let Some(logits) = rest.first_chunk::<WORD>() else {
            for (bit, out) in out.iter_mut().enumerate() {
                let l = rest.get(bit).filter(|_| word >> bit & 1 == 1);
                *out = l.copied().unwrap_or(f32::NEG_INFINITY);
            }
            return true;
        };
        if word == u64::MAX {
            *out = *logits;
            return true;
        }
        for half in [0, HALF] {
            let bits = (word >> half) as u32;
            for bit in 0..HALF {
                out[half + bit] = if bits >> bit & 1 == 1 { logits[half + bit] } else { f32::NEG_INFINITY };
            }
        }
        true
    }

    /// Whether an id is allowed and ends nothing.
    fn is_token(&self, id: usize) -> bool {
        self.word(id / WORD * WORD) >> (id % WORD) & 1 == 1 && !self.eos.contains(id as u32)
    }

    /// The weight of an allowed id.
    #[inline(always)]
    fn logw(&self, id: usize) -> f64 {
        if self.fold.position == Some(id as u32) {
            self.fold.log_weight
        } else {
            self.normalizer.logw(self.logits[id])
        }
    }

    /// The largest logit of [`Row::tokens`] of all ids, and an id of it; `-inf` if there are none.
    #[inline(always)]
    fn top(&self) -> (f32, usize) {
        let mut top = (f32::NEG_INFINITY, 0);
        let mut tokens = [0.0; WORD];
        for (first, block) in (0..).step_by(BLOCK).zip(self.logits.chunks(BLOCK)) {
            let mut lanes = [f32::NEG_INFINITY; WORD];
            for start in (first..first + block.len()).step_by(WORD) {
                if self.tokens(start, &mut tokens) {
                    for lane in 0..WORD {
                        lanes[lane] = if tokens[lane] > lanes[lane] { tokens[lane] } else { lanes[lane] };
                    }
                }
            }
            let max = lanes.into_iter().fold(f32::NEG_INFINITY, |max, l| if l > max { l } else { max });
            if max > top.0 {
                let is_it = |i: &usize| block[*i] == max && self.is_token(first + i);
                let i = (0..block.len()).find(is_it).expect("the maximum is an entry");
                top = (max, first + i);
            }
        }
        top
    }
}

impl Source for Row<'_> {
    #[inline(always)]
    fn next<'s>(&'s self, cursor: &mut usize, scratch: &'s mut Scratch<f64>) -> Option<Block<'s>> {
        let first = *cursor;
        let len = (self.logits.len() - first).min(BLOCK);
        *cursor = first + len;
        let out = &mut scratch[..len];
        let mut tokens = [0.0; WORD];
        for (start, out) in (first..).step_by(WORD).zip(out.chunks_mut(WORD)) {
            if self.tokens(start, &mut tokens) {
                for (out, &l) in out.iter_mut().zip(&tokens) {
                    *out = self.normalizer.logw(l);
                }
            } else {
                out.fill(f64::NEG_INFINITY);
            }
        }
        if let Some(out) = self.end().and_then(|end| out.get_mut(end.checked_sub(first)?)) {
            *out = self.fold.log_weight;
        }
        (len > 0).then_some(Block { positions: Positions::Run(first as u32), log_weights: out, first })
    }

    /// Weights ascend with logits, so only those of the largest logit and of the end are computed.
    #[inline(always)]
    fn peak(&self) -> Option<Peak> {
        let (logit, id) = self.top();
        let token = (self.normalizer.logw(logit), id);
        let end = self.end().map_or(token, |end| (self.fold.log_weight, end));
        let (log_weight, index) = if end.0 > token.0 { end } else { token };
        (log_weight > f64::NEG_INFINITY).then_some(Peak { log_weight, index, position: index as u32 })
    }
}

/// The Gumbel-max draw of a masked row; `None` if nothing in it is live.
pub(super) fn race(row: &Row<'_>, key: &DrawKey) -> Option<Pick> {
    let peak = simd::run(FindPeak(row))?;
    let max = peak.log_weight;
    let mut block = LiveWords::new();
    // The heaviest entry goes first: it sets a bar that few reach.
    let mut best = Best::new(peak, max + key.gumbel(peak.position));
    let mut sum = 0.0;
    for first in (0..row.logits.len()).step_by(BLOCK) {
        sum += simd::run(Weigh { row, first, max, block: &mut block });
        simd::run(Challenge { row, key, block: &block, best: &mut best });
    }
    let log_total = max + math::ln(sum);
    Some(Pick { index: best.index, log_total, logp: best.log_weight - log_total })
}

struct FindPeak<'a>(&'a Row<'a>);

impl Kernel for FindPeak<'_> {
    type Output = Option<Peak>;

    #[inline(always)]
    fn run(self) -> Option<Peak> {
        self.0.peak()
    }
}

/// The words of a block that allow something, one after the other.
struct LiveWords {
    len: usize,
    starts: [usize; BLOCK / WORD],
    logits: [[f32; WORD]; BLOCK / WORD],
    masses: [[f64; WORD]; BLOCK / WORD],
}

impl LiveWords {
    const fn new() -> Self {
        const WORDS: usize = BLOCK / WORD;
        Self { len: 0, starts: [0; WORDS], logits: [[0.0; WORD]; WORDS], masses: [[0.0; WORD]; WORDS] }
    }
}

/// Fills in a block's live words, and sums their masses `exp(w − max)`.
struct Weigh<'a> {
    row: &'a Row<'a>,
    /// Where the block begins.
    first: usize,
    max: f64,
    block: &'a mut LiveWords,
}

impl Kernel for Weigh<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let Self { row, first, max, block } = self;
        let end = row.end();
        let len = (row.logits.len() - first).min(BLOCK);
        let mut live = 0;
        for start in (first..first + len).step_by(WORD) {
            let out = &mut block.logits[live];
            if !row.tokens(start, out) {
                if end.is_none_or(|end| end - end % WORD != start) {
                    continue;
                }
                out.fill(f32::NEG_INFINITY);
            }
            block.starts[live] = start;
            live += 1;
        }
        block.len = live;
        visits::exponentials(live * WORD);
        let logits = block.logits[..live].as_flattened();
        for (mass, &l) in block.masses.as_flattened_mut().iter_mut().zip(logits) {
            *mass = mass_lane(row.normalizer.logw(l) - max);
        }
        if let Some(end) = end
            && let Some(i) = block.starts[..live].iter().position(|&start| end - end % WORD == start)
        {
            block.masses[i][end % WORD] = mass_lane(row.fold.log_weight - max);
        }
        let mut sum = RunSum::default();
        sum.add(block.masses[..live].as_flattened());
        sum.total()
    }
}

/// Runs the race of a block's live words.
struct Challenge<'a> {
    row: &'a Row<'a>,
    key: &'a DrawKey,
    block: &'a LiveWords,
    best: &'a mut Best,
}

impl Kernel for Challenge<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { row, key, block, best } = self;
        let mut noise = Noise::new(key);
        for (start, masses) in block.starts.iter().zip(&block.masses).take(block.len) {
            noise.enter(*start as u32, WORD);
            if let Some(bits) = noise.reaching(best.bar(), 0, masses) {
                for i in 0..WORD {
                    // What is forbidden has no mass, and what has none cannot win.
                    if masses[i] > 0.0 && best.bar().admits(masses[i], bits[i]) {
                        let (id, log_weight) = (start + i, row.logw(start + i));
                        best.offer(log_weight, id, id as u32, log_weight + rng::gumbel_lane(bits[i]));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::ProblemKey;

    /// Masks of words that allow all, some or nothing; an end in a word of its own, or none.
    #[test]
    fn all_simd_levels_agree_bit_for_bit() {
        let noise = DrawKey::new(ProblemKey::new(71, 0), 0, 1, 0);
        for (step, len) in (0..60).zip([5_u32, 64, 1000, 1100, 5000].into_iter().cycle()) {
            let logits: Vec<f32> = (0..len).map(|i| (4.0 * noise.gumbel(i + step)) as f32).collect();
            let allows = |id: &u32| match (id / 64 + step) % 3 {
                0 => true,
                1 => noise.uniform(*id) < 0.5,
                _ => *id == 3,
            };
            let mask = Bitset::from_ids(len as usize + 7, (0..len).filter(allows));
            let eos = EosSet::new([3, 4].into_iter().filter(|_| step % 4 < 2));
            let normalizer = Normalizer::of(&logits, 0.7).unwrap();
            let fold = Fold { position: eos.lowest(), log_weight: normalizer.eos(&logits, &eos) };
            let row = Row { normalizer, fold, logits: &logits, eos: &eos, mask: Some(&mask) };
            let key = DrawKey::new(ProblemKey::new(72, 0), 0, step, 0);
            let run = |wide: bool| {
                let peak = if wide { simd::run(FindPeak(&row)) } else { FindPeak(&row).run() };
                let peak = peak?;
                let max = peak.log_weight;
                let mut sums = Vec::new();
                let mut block = LiveWords::new();
                let mut best = Best::new(peak, max - 5.0);
                for first in (0..logits.len()).step_by(BLOCK) {
                    let weigh = Weigh { row: &row, first, max, block: &mut block };
                    sums.push(if wide { simd::run(weigh) } else { weigh.run() }.to_bits());
                    let challenge = Challenge { row: &row, key: &key, block: &block, best: &mut best };
                    if wide { simd::run(challenge) } else { challenge.run() }
                }
                Some((peak.index, max.to_bits(), sums, best.log_weight.to_bits(), best.index))
            };
            assert_eq!(run(true), run(false), "row {step}");
        }
    }
}
