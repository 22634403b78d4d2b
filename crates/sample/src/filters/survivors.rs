//! The ids that are left of a row, and their ranked order: logit descending, then id ascending.
//!
//! Ranks are taken from the logits themselves. Log-probabilities are those less one number a row, so
//! the order is theirs, but without the ties that rounding would make.

use super::Floor;
use super::scan::{BLOCK, Scan};
use crate::math::mass_lane;
use crate::normalizer::Scale;
use crate::simd::{self, Kernel};
use crate::visits;

/// The ids left of a row, ascending, with their logits.
#[derive(Debug, Default)]
pub(crate) struct Survivors {
    pub(crate) ids: Vec<u32>,
    pub(crate) logits: Vec<f32>,
    /// Room for sorting.
    keys: Vec<u64>,
}

/// Ascends with the rank of an entry. Adding 0 makes −0 the 0 that it equals.
#[inline(always)]
pub(super) fn rank_key(id: u32, logit: f32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(!ascending) << 32 | u64::from(id)
}

impl Survivors {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Makes this all ids of `logits` of at least `bound`, which is finite.
    pub(super) fn gather(&mut self, logits: &[f32], scan: &Scan, bound: f32) {
        self.ids.clear();
        self.logits.clear();
        simd::run(Gather { logits, scan, bound, out: self });
    }

    /// Makes this all ids of `logits` that reach `floor`, and at least the highest that it wants.
    pub(super) fn gather_reaching(&mut self, logits: &[f32], scan: &Scan, floor: Floor) {
        self.gather(logits, scan, floor.logit);
        if self.len() < floor.keep {
            self.gather_top(logits, scan, floor.keep);
        }
    }

    /// Makes this the first `k` live ids of `logits` in ranked order.
    pub(crate) fn gather_top(&mut self, logits: &[f32], scan: &Scan, k: usize) {
        // k blocks each have an entry of at least the k-th largest block maximum.
        let bound = if (1..=scan.blocks.len()).contains(&k) {
            let mut maxima = scan.blocks.clone();
            let (_, kth, _) = maxima.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
            kth.max(f32::MIN)
        } else {
            f32::MIN
        };
        self.gather(logits, scan, bound);
        self.keep_top(k);
    }

    /// Keeps the first `k` in ranked order.
    pub(super) fn keep_top(&mut self, k: usize) {
        if k >= self.len() {
            return;
        }
        debug_assert!(k > 0, "no stage keeps nothing");
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(self.ids.iter().zip(&self.logits).map(|(&id, &l)| rank_key(id, l)));
        let (_, last, _) = keys.select_nth_unstable(k - 1);
        let last = *last;
        self.keys = keys;
        self.retain(|id, l| rank_key(id, l) <= last);
    }

    /// Keeps what `good` says.
    pub(super) fn retain(&mut self, mut good: impl FnMut(u32, f32) -> bool) {
        let mut n = 0;
        for i in 0..self.ids.len() {
            let (id, l) = (self.ids[i], self.logits[i]);
            self.ids[n] = id;
            self.logits[n] = l;
            n += usize::from(good(id, l));
        }
        self.ids.truncate(n);
        self.logits.truncate(n);
    }

    /// The largest logit; at least one id is left.
    pub(crate) fn max(&self) -> f32 {
        self.logits.iter().fold(f32::NEG_INFINITY, |max, &l| if l > max { l } else { max })
    }

    /// The indices of all in ranked order.
    pub(crate) fn ranked(&self) -> Vec<usize> {
        let mut ranked: Vec<usize> = (0..self.len()).collect();
        ranked.sort_unstable_by_key(|&i| rank_key(self.ids[i], self.logits[i]));
        ranked
    }

    /// Writes the exponent of each logit's mass.
    pub(crate) fn weigh(&self, scale: Scale, out: &mut Vec<f64>) {
        out.clear();
        out.extend(self.logits.iter().map(|&l| scale.exponent(l)));
    }

    /// Writes the mass of each logit; none is above 1.
    pub(super) fn masses(&self, scale: Scale, out: &mut Vec<f64>) {
        self.weigh(scale, out);
        simd::run(Masses(out));
    }
}

struct Gather<'a> {
    logits: &'a [f32],
    scan: &'a Scan,
    bound: f32,
    out: &'a mut Survivors,
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { logits, scan, bound, out } = self;
        let (mut ids, mut kept) = ([0; BLOCK], [0.0; BLOCK]);
        for (start, (&max, block)) in (0..).step_by(BLOCK).zip(scan.blocks.iter().zip(logits.chunks(BLOCK))) {
            if max < bound {
                continue;
            }
            visits::looks(block.len());
            let mut rest = reaching(block, bound);
            let mut n = 0;
            while rest != 0 {
                let i = rest.trailing_zeros();
                rest &= rest - 1;
                ids[n] = start + i;
                kept[n] = block[i as usize];
                n += 1;
            }
            out.ids.extend_from_slice(&ids[..n]);
            out.logits.extend_from_slice(&kept[..n]);
        }
    }
}

/// Bit i: whether logit i is at least `bound`.
#[inline(always)]
fn reaching(block: &[f32], bound: f32) -> u64 {
    let mut good = [0_u8; BLOCK];
    for (good, &l) in good.iter_mut().zip(block) {
        *good = u8::from(l >= bound);
    }
    let mut bits = 0;
    for (i, bytes) in good.as_chunks::<8>().0.iter().enumerate() {
        // The product moves the low bit of byte k to bit 56 + k, and nothing carries into these.
        bits |= (u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
    }
    bits
}

struct Masses<'a>(&'a mut [f64]);

impl Kernel for Masses<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        visits::exponentials(self.0.len());
        for mass in self.0 {
            *mass = mass_lane(*mass);
        }
    }
}
