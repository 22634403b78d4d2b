//! Who can win a race of Gumbel scores `w_i + g_i`, `g_i = −ln(−ln u_i)`.
//!
//! Only entries that can reach a score `S` have their two logarithms taken. With
//! `d = 1 − u ≤ −ln u`, entry `i` scores at most `w_i − ln d_i`, so it stays below `S` unless
//! `d_i < exp(w_i − max) · exp(max − S)`. The first factor is what the row's total is summed from,
//! and the second is raised by a slack beyond all rounding, so no entry is left out that the plain
//! rule would let in.
//!
//! Where positions are consecutive, a group of entries is tested as one first, by its largest mass and
//! the upper words of its noise. Few groups pass, and only these have their noise made in full.

use crate::blocks::{self, BLOCK, Block, Positions, Source, WORD};
use crate::math::exp_lane;
use crate::rng::{self, DrawKey, Stream};

/// Entries that are tested as one: those of a word of a mask.
pub(crate) const GROUP: usize = WORD;

/// The score that entries must reach.
#[derive(Clone, Copy)]
pub(crate) struct Bar {
    max: f64,
    slack: f64,
    /// `exp(max − S + slack)`.
    factor: f64,
}

impl Bar {
    /// The bar of a row whose largest log-weight is `max`, at a score of `-inf`. `magnitude` is what
    /// the numbers that log-weights are the differences of do not exceed near the top.
    #[inline(always)]
    pub(crate) fn new(max: f64, magnitude: f64) -> Self {
        // Scores round by 2⁻⁵³ of the numbers in them, exponents by less than 10⁻¹². A factor that
        // overflows is harmless: it lets everyone in.
        let slack = 1e-9 + magnitude * (f64::EPSILON * 16.0);
        Self { max, slack, factor: f64::INFINITY }
    }

    /// More than what rounding can do to a score.
    #[inline(always)]
    pub(crate) fn slack(&self) -> f64 {
        self.slack
    }

    /// Moves the bar to `score`.
    #[inline(always)]
    pub(crate) fn raise(&mut self, score: f64) {
        self.factor = exp_lane(self.max - score + self.slack);
    }

    /// Whether an entry of mass `exp(w − max)` and this noise might reach the score, that is
    /// `1 − u < mass · factor`. The negation counts NaN (an infinite factor on a mass of 0) as a yes.
    #[inline(always)]
    #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must count as a yes")]
    pub(crate) fn admits(&self, mass: f64, bits: u64) -> bool {
        // In terms of 1 + u, with room for what this sum rounds by.
        !(rng::mantissa_lane(bits) <= (-mass).mul_add(self.factor, 2.0 - 2.0 * f64::EPSILON))
    }
}

/// The noise of a block of consecutive positions, as far as a race has had to know it.
pub(crate) struct Noise {
    stream: Stream,
    first: u32,
    tops: [u32; BLOCK / 2],
    bits: [u64; GROUP],
}

impl Noise {
    #[inline(always)]
    pub(crate) fn new(key: &DrawKey) -> Self {
        Self { stream: key.stream(), first: 0, tops: [0; BLOCK / 2], bits: [0; GROUP] }
    }

    /// Goes to the block of `len` positions from `first`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, first: u32, len: usize) {
        self.first = first;
        self.stream.fill_tops(first, &mut self.tops[..len.div_ceil(2)]);
    }

    /// The bits of the group of `len` positions that is `start` positions into the block; `None` if none
    /// of its masses, of which `most` is the largest, might reach `bar`. The upper words of the bits
    /// mostly tell.
    #[inline(always)]
    pub(crate) fn reaching(&mut self, bar: &Bar, start: usize, len: usize, most: f64) -> Option<&[u64]> {
        let pairs = len.div_ceil(2);
        let top = self.tops[start / 2..start / 2 + pairs].iter().copied().fold(0, u32::max);
        if !bar.admits(most, rng::bits_below(top)) {
            return None;
        }
        self.stream.fill_bits(self.first + start as u32, &mut self.bits[..2 * pairs]);
        Some(&self.bits[..len])
    }
}

/// What keeps the best entries.
pub(crate) trait Podium {
    /// What a newcomer must reach.
    fn bar(&self) -> &Bar;

    /// Takes entry `i` of `block`, which the bar admits, if its score is good enough.
    fn challenge(&mut self, block: &Block<'_>, i: usize, score: f64);
}

/// Runs the race of a row that has no weight above `max`, and returns the sum of its masses
/// `exp(w − max)`.
#[inline(always)]
pub(crate) fn run(source: &impl Source, key: &DrawKey, max: f64, podium: &mut impl Podium) -> f64 {
    let mut scratch = [0.0; BLOCK];
    let mut masses = [0.0; BLOCK];
    let mut noise = Noise::new(key);
    let mut listed = [0; GROUP];
    let mut cursor = 0;
    let mut sum = 0.0;
    while let Some(block) = source.next(&mut cursor, &mut scratch) {
        let len = block.log_weights.len();
        let masses = &mut masses[..len];
        blocks::masses(block.log_weights, max, masses);
        sum += blocks::block_sum(block.positions, masses);
        if let Positions::Run(first) = block.positions {
            noise.enter(first, len);
        }
        for (start, masses) in (0..).step_by(GROUP).zip(masses.chunks(GROUP)) {
            let bits = match block.positions {
                Positions::Run(_) => noise.reaching(podium.bar(), start, masses.len(), blocks::max(masses)),
                Positions::List(positions) => {
                    let positions = Positions::List(&positions[start..start + masses.len()]);
                    Some(block_bits(positions, masses.len(), key, &mut listed))
                }
            };
            for (i, (&mass, &bits)) in (start..).zip(masses.iter().zip(bits.unwrap_or_default())) {
                if podium.bar().admits(mass, bits) {
                    podium.challenge(&block, i, block.log_weights[i] + rng::gumbel_lane(bits));
                }
            }
        }
    }
    sum
}

/// The random bits of a block's entries.
#[inline(always)]
pub(crate) fn block_bits<'a>(
    positions: Positions<'_>,
    len: usize,
    key: &DrawKey,
    out: &'a mut [u64],
) -> &'a [u64] {
    match positions {
        Positions::Run(start) => key.stream().fill_bits(start, &mut out[..len.next_multiple_of(2)]),
        Positions::List(positions) => {
            for (bits, &position) in out.iter_mut().zip(positions) {
                *bits = key.bits_lane(position);
            }
        }
    }
    &out[..len]
}
