//! Top-p: in ranked order, an id stays iff the mass before it is below `top_p`.
//!
//! What stays is a head of the ranked order, so one cut is looked for. Ids too small to be before it
//! are left out first; how small that is, is estimated from a sample of the row and proven by the mass
//! of the rest. These go into buckets of equal width by logit; running sums of bucket masses say which
//! bucket holds the cut, and that one is cut into buckets again, until what is left is few or all
//! equal: only those are ranked and walked through. Nothing sorts the row.
//!
//! Masses are `exp(z − max z)`, `z = l · inverse`, and `top_p` is measured against their sum over the
//! row. A bucket is summed in id order and buckets in descending order: the order is a function of
//! the row and its settings.

use super::scan::Scan;
use super::survivors::{Survivors, rank_key};
use super::{Floor, below};
use crate::blocks::{BLOCK, RunSum};
use crate::math;
use crate::normalizer::{Scale, mass_sum};
use crate::simd::{self, Kernel};
use crate::visits;

const BUCKETS: usize = 1024;
/// So many are ranked at once.
const FEW: usize = 64;
/// `1 − top_p` above which small ids are left out, far from what sums round by.
const SPARE: f64 = 1e-9;
/// Ids of a piece of the sample; it takes one piece in so many.
const PIECE: usize = 16;
const STRIDE: usize = 16;
/// Rows with fewer ids are not sampled.
const SAMPLED_FROM: usize = 4096;
/// The share of `1 − top_p` that the estimate leaves out.
const LEFT_OUT: f64 = 0.75;

/// Buffers of [`nucleus`].
#[derive(Debug, Default)]
pub(super) struct Scratch {
    sample: Survivors,
    masses: Vec<f64>,
    buckets: Vec<u32>,
    members: Vec<u32>,
}

/// Makes `out` the nucleus of `logits` at `top_p < 1`, but for ids that `floor` has no use for.
pub(super) fn nucleus(
    logits: &[f32],
    scan: &Scan,
    top_p: f64,
    inverse: f64,
    floor: Option<Floor>,
    out: &mut Survivors,
    scratch: &mut Scratch,
) {
    let scale = Scale::below(scan.max, inverse);
    let total = mass_sum(logits, scale);
    let bound = bound(scan.max, top_p, inverse, total / logits.len() as f64);
    match floor {
        Some(floor) if floor.logit > bound => {
            out.gather_reaching(logits, scan, floor);
            out.masses(scale, &mut scratch.masses);
        }
        _ => {
            let reached = |masses: &[f64]| sum(masses) >= top_p * total * (1.0 + SPARE);
            let guess = guess(logits, bound, LEFT_OUT * (1.0 - top_p) * total, scale, scratch);
            if let Some(guess) = guess {
                out.gather(logits, scan, guess);
                out.masses(scale, &mut scratch.masses);
            }
            if guess.is_none() || !reached(&scratch.masses) {
                out.gather(logits, scan, bound);
                out.masses(scale, &mut scratch.masses);
            }
        }
    }
    let (last, bar) = cut(out, top_p * total, scratch);
    // Without branches, which would be mispredicted all over the row.
    out.retain(|id, l| (l > bar) | ((l == bar) & (id <= last)));
}

/// A logit below the cut. Ids of less than half `(1 − top_p) · mean` together have less than half of
/// `1 − top_p`, so more than `top_p` is before each of them, by more than sums round by.
fn bound(max: f32, top_p: f64, inverse: f64, mean: f64) -> f32 {
    if 1.0 - top_p < SPARE {
        return f32::MIN;
    }
    below(max, math::ln((1.0 - top_p) / 2.0 * mean).min(0.0) / inverse)
}

/// A logit above `bound` such that, by the sample, smaller ones have about `left_out` of mass.
fn guess(logits: &[f32], bound: f32, left_out: f64, scale: Scale, scratch: &mut Scratch) -> Option<f32> {
    if logits.len() < SAMPLED_FROM {
        return None;
    }
    let Scratch { sample, masses, .. } = scratch;
    sample.ids.clear();
    sample.logits.clear();
    for piece in logits.chunks(PIECE).step_by(STRIDE) {
        visits::looks(piece.len());
        // Without branches, which would be mispredicted all over the sample.
        let mut kept = [0.0; PIECE];
        let mut n = 0;
        for &l in piece {
            kept[n % PIECE] = l;
            n += usize::from(l >= bound);
        }
        sample.logits.extend_from_slice(&kept[..n]);
    }
    let (low, high) = range(&sample.logits);
    if sample.logits.is_empty() || low >= high {
        return None;
    }
    sample.masses(scale, masses);
    let buckets = Buckets::new(low, high);
    let entries = sample.logits.iter().map(|&l| buckets.of(l)).zip(masses.iter().copied());
    let sums = Buckets::sums(entries);
    let mut below = 0.0;
    let first = (0..BUCKETS).rev().take_while(|&bucket| {
        below += sums[bucket];
        below * STRIDE as f64 <= left_out
    });
    let first = first.last()?;
    Some(buckets.start(first).max(bound))
}

/// The sum of many.
fn sum(terms: &[f64]) -> f64 {
    terms.chunks(BLOCK).fold(0.0, |sum, block| {
        let mut part = RunSum::default();
        part.add(block);
        sum + part.total()
    })
}

/// The id and logit of the last entry, in ranked order, before which less than `target` lies. The
/// first entry is one.
fn cut(out: &Survivors, target: f64, scratch: &mut Scratch) -> (u32, f32) {
    let Scratch { masses, buckets: indices, members, .. } = scratch;
    let mut before = 0.0;
    members.clear();
    let (low, high) = range(&out.logits);
    if out.len() > FEW && low < high {
        let buckets = Buckets::new(low, high);
        simd::run(Indices { buckets: &buckets, logits: &out.logits, out: indices });
        let entries = indices.iter().map(|&bucket| bucket as usize).zip(masses.iter().copied());
        let chosen = buckets.choose(entries, &mut before, target) as u32;
        members.extend((0..).zip(indices.iter()).filter(|&(_, &bucket)| bucket == chosen).map(|(i, _)| i));
    } else {
        members.extend(0..out.len() as u32);
    }
    while members.len() > FEW {
        let logit = |&i: &u32| out.logits[i as usize];
        let (low, high) = members
            .iter()
            .map(logit)
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), l| (low.min(l), high.max(l)));
        if low == high {
            break;
        }
        let buckets = Buckets::new(low, high);
        let entries = members.iter().map(|i| (buckets.of(logit(i)), masses[*i as usize]));
        let chosen = buckets.choose(entries, &mut before, target);
        members.retain(|i| buckets.of(logit(i)) == chosen);
    }
    members.sort_unstable_by_key(|&i| rank_key(out.ids[i as usize], out.logits[i as usize]));
    let mut last = members[0] as usize;
    for &i in members.iter() {
        if before >= target {
            break;
        }
        last = i as usize;
        before += masses[last];
    }
    (out.ids[last], out.logits[last])
}

/// Buckets of equal width from the largest logit down to the smallest.
struct Buckets {
    high: f64,
    scale: f64,
    /// The bucket of the smallest logit.
    last: usize,
}

impl Buckets {
    fn new(low: f32, high: f32) -> Self {
        let (low, high) = (f64::from(low), f64::from(high));
        let mut buckets = Self { high, scale: (BUCKETS - 1) as f64 / (high - low), last: BUCKETS - 1 };
        buckets.last = buckets.of(low as f32);
        buckets
    }

    /// The nearest integer to where the logit lies. It never rises with the logit.
    #[inline(always)]
    fn of(&self, logit: f32) -> usize {
        // Below BUCKETS as it is: the remainder spares bounds checks.
        ((self.high - f64::from(logit)) * self.scale + math::ROUND).to_bits() as usize % BUCKETS
    }

    /// The largest logit of a bucket, up to rounding.
    fn start(&self, bucket: usize) -> f32 {
        (self.high - (bucket as f64 - 0.5) / self.scale) as f32
    }

    /// The mass of each bucket.
    fn sums(entries: impl Iterator<Item = (usize, f64)>) -> [f64; BUCKETS] {
        let mut sums = [0.0; BUCKETS];
        for (bucket, mass) in entries {
            sums[bucket % BUCKETS] += mass;
        }
        sums
    }

    /// The bucket that holds the cut: the first with which `target` is reached, or else the last. The
    /// mass of those above it is added to `before`, which is below `target`. It has entries: the
    /// first adds mass, and the last has the smallest logit.
    fn choose(&self, entries: impl Iterator<Item = (usize, f64)>, before: &mut f64, target: f64) -> usize {
        let sums = Self::sums(entries);
        let mut chosen = 0;
        while chosen < self.last && *before + sums[chosen] < target {
            *before += sums[chosen];
            chosen += 1;
        }
        chosen
    }
}

/// Writes the bucket of every logit.
struct Indices<'a> {
    buckets: &'a Buckets,
    logits: &'a [f32],
    out: &'a mut Vec<u32>,
}

impl Kernel for Indices<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.out.clear();
        self.out.extend(self.logits.iter().map(|&l| self.buckets.of(l) as u32));
    }
}

/// The smallest and the largest.
fn range(logits: &[f32]) -> (f32, f32) {
    const LANES: usize = 16;
    let mut low = [f32::INFINITY; LANES];
    let mut high = [f32::NEG_INFINITY; LANES];
    for chunk in logits.chunks(LANES) {
        for (lane, &l) in chunk.iter().enumerate() {
            low[lane] = if l < low[lane] { l } else { low[lane] };
            high[lane] = if l > high[lane] { l } else { high[lane] };
        }
    }
    (low.into_iter().fold(f32::INFINITY, f32::min), high.into_iter().fold(f32::NEG_INFINITY, f32::max))
}
