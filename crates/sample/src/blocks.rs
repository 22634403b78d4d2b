//! Rows in blocks of positions, and the one order in which their sums are taken.
//!
//! Order: positions are cut into blocks of [`BLOCK`]. Within a block, [`LANES`] running sums each
//! take the positions congruent to them, ascending, and are then added pairwise in a fixed tree;
//! block sums are added in block order. A term's place depends on its position alone and an absent
//! or `-inf` entry adds 0, so a row gives the same bits dense, listed or masked.

use crate::draw::Weights;
use crate::math::{ln_lane, mass_lane, mass_lanes};
use crate::normalizer::Scale;
use crate::simd::{self, Kernel};
use crate::visits;

/// A sum of masses above it has lost nothing to underflow.
pub(crate) const SOUND: f64 = 1e-280;
/// Positions a block.
pub(crate) const BLOCK: usize = 1024;
/// Running sums within a block.
const LANES: usize = 16;

/// Room for one number a position of a block.
pub(crate) type Scratch<T> = [T; BLOCK];

/// The positions of a block's entries.
#[derive(Clone, Copy)]
pub(crate) enum Positions<'a> {
    /// Consecutive, from the first position of the block.
    Run(u32),
    /// Ascending.
    List(&'a [u32]),
}

impl Positions<'_> {
    #[inline(always)]
    pub(crate) fn at(&self, i: usize) -> u32 {
        match self {
            Self::Run(start) => start + i as u32,
            Self::List(positions) => positions[i],
        }
    }
}

/// The entries of a row that lie in one block.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) positions: Positions<'a>,
    pub(crate) log_weights: &'a [f64],
    /// The row's index of the first entry.
    pub(crate) first: usize,
}

/// A row that can be read block by block.
pub(crate) trait Source {
    /// The block at `cursor`, which then moves on; 0 is the start. Blocks come in order and blocks
    /// without entries may be left out. `scratch` is for rows that are computed on the way.
    fn next<'s>(&'s self, cursor: &mut usize, scratch: &'s mut Scratch<f64>) -> Option<Block<'s>>;
}

impl Source for Weights<'_> {
    #[inline(always)]
    fn next<'s>(&'s self, cursor: &mut usize, _: &'s mut Scratch<f64>) -> Option<Block<'s>> {
        let first = *cursor;
        let rest = self.log_weights.get(first..).filter(|rest| !rest.is_empty())?;
        let (positions, len) = match self.positions {
            None => (Positions::Run(first as u32), rest.len().min(BLOCK)),
            Some(positions) => {
                let positions = &positions[first..];
                let block = positions[0] / BLOCK as u32;
                let window = &positions[..positions.len().min(BLOCK)];
                let len = window.partition_point(|position| position / BLOCK as u32 == block);
                (Positions::List(&positions[..len]), len)
            }
        };
        *cursor = first + len;
        Some(Block { positions, log_weights: &rest[..len], first })
    }
}

/// The largest log-weight of a row.
#[derive(Clone, Copy)]
pub(crate) struct Peak {
    pub(crate) log_weight: f64,
    /// Where it occurs, as index and as position.
    pub(crate) index: usize,
    pub(crate) position: u32,
}

/// The peak of a row by its weights; `None` if nothing in it is live.
#[inline(always)]
pub(crate) fn peak(source: &(impl Source + ?Sized)) -> Option<Peak> {
    let mut scratch = [0.0; BLOCK];
    let mut cursor = 0;
    let mut peak: Option<Peak> = None;
    while let Some(block) = source.next(&mut cursor, &mut scratch) {
        let best = peak.map_or(f64::NEG_INFINITY, |peak| peak.log_weight);
        let log_weight = max(block.log_weights);
        if log_weight > best {
            let i = block.log_weights.iter().position(|&w| w == log_weight).expect("the maximum is an entry");
            peak = Some(Peak { log_weight, index: block.first + i, position: block.positions.at(i) });
        }
    }
    peak
}

/// The largest of some numbers.
#[inline(always)]
pub(crate) fn max(numbers: &[f64]) -> f64 {
    let mut lanes = [f64::NEG_INFINITY; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    rest.iter().fold(max_of(lanes), |max, &w| if w > max { w } else { max })
}

/// The largest of the lanes.
#[inline(always)]
fn max_of(lanes: [f64; LANES]) -> f64 {
    let larger = |a: f64, b: f64| if a > b { a } else { b };
    let few: [f64; LANES / 4] =
        std::array::from_fn(|i| larger(larger(lanes[i], lanes[i + 4]), larger(lanes[i + 8], lanes[i + 12])));
    larger(larger(few[0], few[1]), larger(few[2], few[3]))
}

/// Writes the mass `exp(w − shift)` of every entry.
#[inline(always)]
pub(crate) fn masses(log_weights: &[f64], shift: f64, out: &mut [f64]) {
    fill_masses(log_weights, |w| w - shift, out);
}

/// Writes the mass `exp(exponent(n))` of every number, those of the first and the second half side by
/// side.
#[inline(always)]
fn fill_masses<T: Copy>(numbers: &[T], exponent: impl Fn(T) -> f64, out: &mut [f64]) {
    visits::exponentials(numbers.len());
    let half = numbers.len() / 2;
    let (first, rest) = numbers.split_at(half);
    let (out_first, out_rest) = out.split_at_mut(half);
    if let (Some(&n), Some(out)) = (rest.get(half), out_rest.get_mut(half)) {
        *out = mass_lane(exponent(n));
    }
    let pairs = first.iter().zip(rest).zip(out_first.iter_mut().zip(out_rest));
    for ((&a, &b), (out_a, out_b)) in pairs {
        [*out_a, *out_b] = mass_lanes([exponent(a), exponent(b)]);
    }
}

/// The sum of a block of consecutive positions, as far as it has got.
#[derive(Clone, Copy, Default)]
pub(crate) struct RunSum([f64; LANES]);

impl RunSum {
    /// Adds the next terms; all but the last are multiples of sixteen.
    #[inline(always)]
    pub(crate) fn add(&mut self, terms: &[f64]) {
        let (chunks, rest) = terms.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, term) in self.0.iter_mut().zip(chunk) {
                *lane += term;
            }
        }
        for (lane, term) in self.0.iter_mut().zip(rest) {
            *lane += term;
        }
    }

    /// The sum of what was added.
    #[inline(always)]
    pub(crate) fn total(mut self) -> f64 {
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                self.0[lane] += self.0[lane + width];
            }
        }
        self.0[0]
    }
}

/// The sum of a block's terms, in the order of this module.
#[inline(always)]
pub(crate) fn block_sum(positions: Positions<'_>, terms: &[f64]) -> f64 {
    let mut sum = RunSum::default();
    match positions {
        Positions::Run(_) => sum.add(terms),
        Positions::List(positions) => {
            for (&position, term) in positions.iter().zip(terms) {
                sum.0[position as usize % LANES] += term;
            }
        }
    }
    sum.total()
}

/// Writes the mass of every logit.
#[inline(always)]
pub(crate) fn logit_masses(logits: &[f32], scale: Scale, out: &mut [f64]) {
    visits::looks(logits.len());
    fill_masses(logits, |l| scale.exponent(l), out);
}

/// Writes the masses of what `words` allow of a block of consecutive positions, and 0 for the rest: bit
/// `i % 64` of word `i / 64` is entry `i`.
///
/// Not in place: the compiler would make that masked stores, which are slow on many machines.
#[inline(always)]
pub(crate) fn allow(masses: &[f64], words: impl IntoIterator<Item = u64>, out: &mut [f64]) {
    for ((masses, out), word) in masses.chunks(WORD).zip(out.chunks_mut(WORD)).zip(words) {
        for ((mass, out), bit) in masses.iter().zip(out).zip(&BITS) {
            *out = keep_if(*mass, word & bit);
        }
    }
}

/// The sums of a block of consecutive positions: of all its masses, and of those that `words` allow, as
/// [`allow`] has it. Writes the largest of the latter for each word, 0 if there is none.
#[inline(always)]
pub(crate) fn weigh(masses: &[f64], words: &[u64; WORDS], most: &mut [f64; WORDS]) -> [f64; 2] {
    let (mut all, mut allowed) = (RunSum::default(), RunSum::default());
    let mut weigh = |masses: &[f64; WORD], word: u64| {
        let mut most = [0.0; LANES];
        for (masses, bits) in masses.as_chunks::<LANES>().0.iter().zip(BITS.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                let kept = keep_if(masses[lane], word & bits[lane]);
                all.0[lane] += masses[lane];
                allowed.0[lane] += kept;
                most[lane] = if kept > most[lane] { kept } else { most[lane] };
            }
        }
        max_of(most)
    };
    let (whole, rest) = masses.as_chunks::<WORD>();
    for ((masses, word), most) in whole.iter().zip(words).zip(&mut *most) {
        *most = weigh(masses, *word);
    }
    if !rest.is_empty() {
        let mut padded = [0.0; WORD];
        padded[..rest.len()].copy_from_slice(rest);
        most[whole.len()] = weigh(&padded, words[whole.len()]);
    }
    [all.total(), allowed.total()]
}

/// `mass`, or 0 if `bit` is.
#[inline(always)]
fn keep_if(mass: f64, bit: u64) -> f64 {
    f64::from_bits(mass.to_bits() & u64::from(bit == 0).wrapping_sub(1))
}

/// Entries a word of a mask.
pub(crate) const WORD: usize = u64::BITS as usize;
/// Words a block.
pub(crate) const WORDS: usize = BLOCK / WORD;
const BITS: [u64; WORD] = {
    let mut bits = [1; WORD];
    let mut i = 0;
    while i < WORD {
        bits[i] = 1 << i;
        i += 1;
    }
    bits
};

/// The log of a sum of terms shifted by `shift`. At least one term is 1.
#[inline(always)]
pub(crate) fn log_of(shift: f64, sum: f64) -> f64 {
    shift + ln_lane(sum)
}

/// `LSE` of a row; `-inf` if nothing in it is live.
pub(crate) fn log_total(source: &impl Source) -> f64 {
    simd::run(LogTotal(source))
}

struct LogTotal<'a, S>(&'a S);

impl<S: Source> Kernel for LogTotal<'_, S> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let Some(peak) = peak(self.0) else { return f64::NEG_INFINITY };
        log_of(peak.log_weight, mass_sum(self.0, peak.log_weight))
    }
}

/// The sum of a row's masses `exp(w − shift)`; nothing in it is above `shift`.
pub(crate) fn mass_sum(source: &impl Source, shift: f64) -> f64 {
    simd::run(MassSum { source, shift })
}

struct MassSum<'a, S> {
    source: &'a S,
    shift: f64,
}

impl<S: Source> Kernel for MassSum<'_, S> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let Self { source, shift } = self;
        let mut scratch = [0.0; BLOCK];
        let mut terms = [0.0; BLOCK];
        let mut cursor = 0;
        let mut sum = 0.0;
        while let Some(block) = source.next(&mut cursor, &mut scratch) {
            let terms = &mut terms[..block.log_weights.len()];
            masses(block.log_weights, shift, terms);
            sum += block_sum(block.positions, terms);
        }
        sum
    }
}
