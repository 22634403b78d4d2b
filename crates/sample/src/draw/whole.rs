//! Draws from a whole row: nothing is masked, so the masses that normalise it are those to draw by.
//!
//! One look finds the largest logit and one more takes every exponential, for the normaliser and the
//! draw at once. These masses, `exp(l · (1/T) − shift)`, differ by rounding from those of the
//! written-out row, so they only tell who may be drawn. A Gumbel race is decided by the weights
//! themselves among the few that come near its best; a running sum that comes too near its target
//! leaves the row undecided.
//!
//! Invariant: a decided row's token is that of the written-out row.

use super::DrawMethod;
use super::row::{Drawn, Fold, RowDraw};
use crate::blocks::{self, BLOCK, RunSum};
use crate::math;
use crate::normalizer::{self, Normalizer, RowError};
use crate::race::{Bar, GROUP, Noise};
use crate::rng::{self, DrawKey};
use crate::simd::{self, Kernel};

/// Positions a part of the running sum: the block of [`DrawMethod::Multinomial`].
const PART: usize = 256;
/// More than what running sums of either form differ by, as a share of the total.
const MARGIN: f64 = 1e-11;

/// Draws `row`, which has no mask; `None` if rounding could have a say.
///
/// # Errors
/// As [`Normalizer::of`].
pub(super) fn draw(row: &RowDraw<'_>) -> Result<Option<Drawn>, RowError> {
    draw_beyond(MARGIN, row)
}

/// [`draw`], undecided within `margin`.
fn draw_beyond(margin: f64, row: &RowDraw<'_>) -> Result<Option<Drawn>, RowError> {
    let (top, max) = normalizer::top(row.logits)?;
    if row.eos.ids().last().is_some_and(|&id| id as usize >= row.logits.len()) {
        return Ok(None);
    }
    let inverse = normalizer::inverse(row.temperature);
    let shift = f64::from(max) * inverse;
    let mut whole = Whole { row, inverse, shift, end_mass: 0.0 };
    whole.end_mass = row.eos.ids().iter().map(|&id| math::exp(whole.exponent(id))).sum();
    let (sum, position) = match row.method {
        DrawMethod::GumbelMax => {
            let (sum, candidates) = whole.race(top);
            (sum, whole.winner(sum, &candidates))
        }
        // Rounding changes exponents in proportion to what they are differences of.
        _ => whole.run_through(margin + shift.abs() * (f64::EPSILON * 64.0)),
    };
    Ok(position.map(|position| {
        let normalizer = Normalizer::of_sum(inverse, shift, sum);
        Fold::of(&normalizer, row).drawn(&normalizer, row, position)
    }))
}

/// A row that is drawn from.
struct Whole<'a> {
    row: &'a RowDraw<'a>,
    inverse: f64,
    shift: f64,
    /// The mass of the end-of-sequence set.
    end_mass: f64,
}

impl Whole<'_> {
    /// The exponent of an id's mass.
    fn exponent(&self, id: u32) -> f64 {
        f64::from(self.row.logits[id as usize]) * self.inverse - self.shift
    }

    /// The sum of the masses, and the ids that may have the largest score. `top` is an id of the
    /// largest logit.
    fn race(&self, top: u32) -> (f64, Vec<u32>) {
        let RowDraw { logits, eos, key, .. } = *self.row;
        let bar = Bar::new(0.0, self.shift.abs());
        let mut field = Field { bar, best: f64::NEG_INFINITY, candidates: Vec::new() };
        // The heaviest entries go first: they set a bar that few reach.
        if !eos.contains(top) {
            field.challenge(top, self.exponent(top) + key.gumbel(top));
        }
        if let Some(lowest) = eos.lowest() {
            field.challenge(lowest, math::ln(self.end_mass) + key.gumbel(lowest));
        }
        let Self { inverse, shift, .. } = *self;
        let sum = simd::run(Race { logits, inverse, shift, key: &key, ends: eos.ids(), field: &mut field });
        (sum, field.candidates)
    }

    /// The candidate with the largest score by the row's weights, the lowest of several; `None` if
    /// none is live.
    fn winner(&self, sum: f64, candidates: &[u32]) -> Option<u32> {
        let normalizer = Normalizer::of_sum(self.inverse, self.shift, sum);
        let fold = Fold::of(&normalizer, self.row);
        let mut best = (f64::NEG_INFINITY, None);
        for &id in candidates {
            let score = fold.weight(&normalizer, self.row, id) + self.row.key.gumbel(id);
            if score > best.0 || (score == best.0 && best.1.is_some_and(|at| id < at)) {
                best = (score, Some(id));
            }
        }
        best.1
    }

    /// The sum of the masses, and the position at which the running sum crosses its target, if that
    /// is further than `margin` off, as a share of the total.
    fn run_through(&self, margin: f64) -> (f64, Option<u32>) {
        let RowDraw { logits, eos, key, method, .. } = *self.row;
        let Self { inverse, shift, .. } = *self;
        let mut sums = Vec::with_capacity(logits.len().div_ceil(PART));
        let sum = simd::run(PartSums { logits, inverse, shift, sums: &mut sums });
        for &id in eos.ids() {
            let moved = math::exp(self.exponent(id));
            let added = if eos.lowest() == Some(id) { self.end_mass } else { 0.0 };
            for sum in &mut sums[id as usize / PART..] {
                *sum += added - moved;
            }
        }
        let target = key.uniform(0) * sum;
        let position = crossing(sums.iter().copied(), target, margin * sum).and_then(|(part, before)| {
            let terms = self.terms(part * PART);
            let (target, total) = match method {
                DrawMethod::Multinomial => {
                    let total = running(&terms).last().unwrap_or(0.0);
                    (key.uniform(1) * total, total)
                }
                _ => (target - before, sum),
            };
            crossing(running(&terms), target, margin * total).map(|(i, _)| (part * PART + i) as u32)
        });
        (sum, position)
    }

    /// The masses of the part from `start`, with the end-of-sequence set as one.
    fn terms(&self, start: usize) -> Vec<f64> {
        let rest = &self.row.logits[start..];
        let logits = &rest[..rest.len().min(PART)];
        let mut terms = vec![0.0; logits.len()];
        simd::run(Masses { logits, inverse: self.inverse, shift: self.shift, out: &mut terms });
        for &id in self.row.eos.ids() {
            if let Some(term) = (id as usize).checked_sub(start).and_then(|i| terms.get_mut(i)) {
                *term = if self.row.eos.lowest() == Some(id) { self.end_mass } else { 0.0 };
            }
        }
        terms
    }
}

/// The running sum.
fn running(terms: &[f64]) -> impl Iterator<Item = f64> {
    terms.iter().scan(0.0, |sum, term| {
        *sum += term;
        Some(*sum)
    })
}

/// The index of the first of `sums` above `target`, and the sum before it, if both are further than
/// `margin` from the target.
fn crossing(sums: impl Iterator<Item = f64>, target: f64, margin: f64) -> Option<(usize, f64)> {
    let mut before = 0.0;
    for (i, sum) in sums.enumerate() {
        if sum > target {
            return (sum - target > margin && target - before > margin).then_some((i, before));
        }
        before = sum;
    }
    None
}

/// Who may win a race.
struct Field {
    bar: Bar,
    /// The best score so far.
    best: f64,
    candidates: Vec<u32>,
}

impl Field {
    #[inline(always)]
    fn challenge(&mut self, id: u32, score: f64) {
        if score >= self.best - self.bar.slack() {
            self.candidates.push(id);
            if score > self.best {
                self.best = score;
                self.bar.raise(score);
            }
        }
    }
}

/// Sums the masses of a row and finds who may win its race.
struct Race<'a> {
    logits: &'a [f32],
    inverse: f64,
    shift: f64,
    key: &'a DrawKey,
    /// Ids that do not race.
    ends: &'a [u32],
    field: &'a mut Field,
}

impl Kernel for Race<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let Self { logits, inverse, shift, key, ends, field } = self;
        let mut masses = [0.0; BLOCK];
        let mut noise = Noise::new(key);
        let mut sum = 0.0;
        for (first, logits) in (0_u32..).step_by(BLOCK).zip(logits.chunks(BLOCK)) {
            let len = logits.len();
            let masses = &mut masses[..len];
            blocks::logit_masses(logits, inverse, shift, masses);
            let mut block = RunSum::default();
            block.add(masses);
            sum += block.total();
            noise.enter(first, len);
            for (start, masses) in (0..).step_by(GROUP).zip(masses.chunks(GROUP)) {
                let Some(bits) = noise.reaching(&field.bar, start, masses) else { continue };
                for (i, (&mass, &bits)) in (start..).zip(masses.iter().zip(bits)) {
                    let id = first + i as u32;
                    if field.bar.admits(mass, bits) && !ends.contains(&id) {
                        let exponent = f64::from(logits[i]) * inverse - shift;
                        field.challenge(id, exponent + rng::gumbel_lane(bits));
                    }
                }
            }
        }
        sum
    }
}

/// Sums the masses of a row, and writes the running sum after each part.
struct PartSums<'a> {
    logits: &'a [f32],
    inverse: f64,
    shift: f64,
    sums: &'a mut Vec<f64>,
}

impl Kernel for PartSums<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let Self { logits, inverse, shift, sums } = self;
        let mut masses = [0.0; BLOCK];
        let mut sum = 0.0;
        for logits in logits.chunks(BLOCK) {
            let masses = &mut masses[..logits.len()];
            blocks::logit_masses(logits, inverse, shift, masses);
            let mut block = RunSum::default();
            for part in masses.chunks(PART) {
                block.add(part);
                sums.push(sum + block.total());
            }
            sum += block.total();
        }
        sum
    }
}

struct Masses<'a> {
    logits: &'a [f32],
    inverse: f64,
    shift: f64,
    out: &'a mut [f64],
}

impl Kernel for Masses<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        blocks::logit_masses(self.logits, self.inverse, self.shift, self.out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::row::draw_written;
    use super::*;
    use crate::eos::EosSet;
    use crate::rng::ProblemKey;

    const METHODS: [DrawMethod; 3] = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];

    fn logits(step: u32, len: u32, spread: f64) -> Vec<f32> {
        let noise = DrawKey::new(ProblemKey::new(98, 0), 0, step, 0);
        let mut logits: Vec<f32> = (0..len)
            .map(|i| match noise.block(1_000_000 + i)[0] % 8 {
                0 => f32::NEG_INFINITY,
                1 => spread as f32,
                _ => (spread * noise.gumbel(i)) as f32,
            })
            .collect();
        logits[(step % len) as usize] = 0.0;
        logits
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn decided_rows_draw_as_written_out(
            step in 0u32..1_000_000,
            len in prop::sample::select(vec![1u32, 2, 63, 255, 257, 1025, 3000]),
            spread in prop::sample::select(vec![0.0, 1e-3, 1.0, 6.0, 500.0, 1e30]),
            temperature in prop::sample::select(vec![1.0, 0.3, 40.0, 1e-3, 1e-30, f64::MIN_POSITIVE]),
            ends in prop::collection::vec(0u32..4000, 0..4),
            margin in prop::sample::select(vec![MARGIN, 1e-6, 1e-2]),
        ) {
            let logits = logits(step, len, spread);
            let ends = EosSet::new(ends.into_iter().filter(|id| id % 7 == 0 || *id < len));
            for method in METHODS {
                let key = DrawKey::new(ProblemKey::new(12, 0), 0, step, 0);
                let row = RowDraw { logits: &logits, temperature, eos: &ends, mask: None, method, key };
                if let Some(drawn) = draw_beyond(margin, &row).unwrap() {
                    prop_assert_eq!(drawn, draw_written(&row).unwrap());
                }
            }
        }
    }

    #[test]
    fn almost_every_ordinary_row_is_decided() {
        let ends = EosSet::new([3, 700]);
        for method in METHODS {
            for step in 0..500 {
                let logits = logits(step, 2000, 2.0);
                let key = DrawKey::new(ProblemKey::new(13, 0), 0, step, 0);
                let row = RowDraw { logits: &logits, temperature: 0.8, eos: &ends, mask: None, method, key };
                assert!(draw(&row).unwrap().is_some());
            }
        }
    }

    #[test]
    fn a_target_within_the_margin_leaves_the_row_undecided() {
        assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 0.3, 0.01), Some((1, 0.25)));
        assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 0.255, 0.01), None);
        assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 0.495, 0.01), None);
        assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 1.0, 0.01), None);
        assert_eq!(crossing([0.25, 0.5].into_iter(), 0.3, f64::NAN), None);
    }

    #[test]
    fn all_simd_levels_agree_bit_for_bit() {
        for step in 0..40 {
            let logits = &logits(step, [5, 256, 1100, 5000][step as usize % 4], 3.0)[..];
            let key = &DrawKey::new(ProblemKey::new(14, 0), 0, step, 0);
            let (inverse, shift) = (0.9, 40.0);
            let race = |wide: bool| {
                let bar = Bar::new(0.0, shift);
                let mut field = Field { bar, best: f64::NEG_INFINITY, candidates: Vec::new() };
                let race = Race { logits, inverse, shift, key, ends: &[1], field: &mut field };
                let sum = if wide { simd::run(race) } else { race.run() };
                (sum.to_bits(), field.best.to_bits(), field.candidates)
            };
            assert_eq!(race(true), race(false));
            let parts = |wide: bool| {
                let mut sums = Vec::new();
                let parts = PartSums { logits, inverse, shift, sums: &mut sums };
                let sum = if wide { simd::run(parts) } else { parts.run() };
                (sum.to_bits(), sums.into_iter().map(f64::to_bits).collect::<Vec<_>>())
            };
            assert_eq!(parts(true), parts(false));
        }
    }
}
