//! Draws from logits: the masses that normalise a row are those to draw by.
//!
//! One look finds the largest logit and one more takes every exponential, `exp(l · (1/T) − shift)`,
//! for the normaliser, for the mass that a mask leaves, and for the draw. These masses differ by
//! rounding from those of the written-out row, so they only tell who may be drawn. A Gumbel race is
//! decided by the weights themselves among the few that come near its best; a running sum that comes
//! too near its target leaves the row undecided.
//!
//! What a mask leaves: the masses of the allowed ids that end nothing, summed in the order of
//! [`log_total`](crate::log_total), then the mass of the end-of-sequence set.
//!
//! Invariant: a decided row's token is that of the written-out row.

mod passes;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use passes::{Field, Fill, ListRace, PartSums, Race, words_from};

use super::row::{Drawn, RowDraw};
use super::written::Written;
use super::{DrawMethod, Weights, draw_source};
use crate::bitset::Bitset;
use crate::blocks::{self, SOUND};
use crate::math;
use crate::normalizer::{self, Normalizer, RowError, Scale};
use crate::race::Bar;
use crate::rng::DrawKey;
use crate::simd;

/// Positions a part of the running sum: the block of [`DrawMethod::Multinomial`].
const PART: usize = 256;
/// More than what running sums of either form differ by, as a share of the total.
const MARGIN: f64 = 1e-11;
/// A mask with fewer ids than one in this many is drawn from as a list.
const LIST_BELOW: usize = 16;

/// Draws `row`.
///
/// # Errors
/// As [`Normalizer::of`], and [`RowError::EmptySupport`] if the mask leaves nothing live.
pub(super) fn draw(row: &RowDraw<'_>) -> Result<Drawn, RowError> {
    let masses = Masses::of(row)?;
    let found = masses.find(MARGIN);
    let written = Written::of(row, masses.normalizer(&found));
    let position = match masses.decide(&found, &written) {
        Some(position) => position,
        None => masses.draw_written(&written).ok_or(RowError::EmptySupport)?,
    };
    let log_mass = masses.log_mass(&found, &written);
    Ok(Drawn { token: written.token(position), log_mass, logp: written.weight(position) - log_mass })
}

/// The log of the mass, in nats, that `mask` leaves of a row: [`Drawn::log_mass`] of its draws.
///
/// # Errors
/// As [`Normalizer::of`].
pub(super) fn log_mass(row: &RowDraw<'_>) -> Result<f64, RowError> {
    let masses = Masses::of(row)?;
    let found = masses.sums();
    Ok(masses.log_mass(&found, &Written::of(row, masses.normalizer(&found))))
}

/// The masses of a row.
struct Masses<'a> {
    row: &'a RowDraw<'a>,
    scale: Scale,
    /// An id of the largest logit.
    top: u32,
    /// The ids of the row that end a sequence.
    ends: &'a [u32],
    /// The mass of all of them, if the end is allowed.
    end: Option<f64>,
    live: Live<'a>,
}

/// The ids that are allowed and end nothing.
enum Live<'a> {
    /// All that end nothing: there is no mask.
    All,
    Mask(Cow<'a, Bitset>),
    List(Vec<u32>),
}

impl Live<'_> {
    fn contains(&self, id: u32) -> bool {
        match self {
            Self::All => true,
            Self::Mask(mask) => mask.contains(id as usize),
            Self::List(ids) => ids.binary_search(&id).is_ok(),
        }
    }
}

/// What a look at the masses finds.
struct Found {
    /// The sum of all masses of the row.
    all: f64,
    /// The sum of those that are live, and of the end if it is allowed.
    live: f64,
    draw: Draw,
}

enum Draw {
    /// Who may have the largest score.
    Candidates(Vec<u32>),
    /// What a running sum came to, if that is beyond doubt.
    Position(Option<u32>),
}

impl<'a> Masses<'a> {
    fn of(row: &'a RowDraw<'a>) -> Result<Self, RowError> {
        let (top, max) = normalizer::top(row.logits)?;
        let len = row.logits.len();
        let scale = Scale::new(row.temperature, max);
        let ends = &row.eos.ids()[..row.eos.ids().partition_point(|&id| (id as usize) < len)];
        let mass = |id: &u32| math::exp(scale.exponent(row.logits[*id as usize]));
        let is_allowed = |end: &&u32| row.mask.is_none_or(|mask| mask.contains(**end as usize));
        let end = ends.first().filter(is_allowed).map(|_| ends.iter().map(mass).sum());
        let live = match row.mask {
            None => Live::All,
            Some(mask) if !mask.has_at_least(len / LIST_BELOW) => {
                let ids = mask.iter().take_while(|&id| id < len).map(|id| id as u32);
                Live::List(ids.filter(|id| !ends.contains(id)).collect())
            }
            Some(mask) => {
                let mut mask = Cow::Borrowed(mask);
                for &id in ends {
                    if mask.contains(id as usize) {
                        mask.to_mut().remove(id as usize);
                    }
                }
                Live::Mask(mask)
            }
        };
        Ok(Self { row, scale, top, ends, end, live })
    }

    fn normalizer(&self, found: &Found) -> Normalizer {
        Normalizer::of_sum(self.scale, found.all)
    }

    /// The exponent of an id's mass.
    fn exponent(&self, id: u32) -> f64 {
        self.scale.exponent(self.row.logits[id as usize])
    }

    fn words(&self) -> Option<&[u64]> {
        match &self.live {
            Live::Mask(mask) => Some(mask.words()),
            _ => None,
        }
    }

    /// The largest number that exponents are differences of.
    fn magnitude(&self) -> f64 {
        let reach = if let Live::All = self.live { 0.0 } else { -math::MASS_ZERO };
        self.scale.shift.abs() + reach
    }

    /// Looks at the masses, and at who is drawn; a running sum is in doubt within `margin` of its
    /// target, as a share of the total.
    fn find(&self, margin: f64) -> Found {
        match self.row.method {
            DrawMethod::GumbelMax => self.race(),
            // Rounding changes exponents in proportion to what they are differences of.
            _ => self.run_through(margin + self.magnitude() * (f64::EPSILON * 64.0)),
        }
    }

    /// The position that is drawn; `None` if that is in doubt, or if nothing is live.
    fn decide(&self, found: &Found, written: &Written<'_>) -> Option<u32> {
        match &found.draw {
            _ if found.live < SOUND => None,
            Draw::Candidates(candidates) => winner(candidates, written, &self.row.key),
            Draw::Position(position) => *position,
        }
    }

    /// The position that is drawn by the weights; `None` if nothing is live.
    fn draw_written(&self, written: &Written<'_>) -> Option<u32> {
        let RowDraw { method, key, .. } = self.row;
        let Live::List(ids) = &self.live else {
            return draw_source(written, *method, key).map(|pick| pick.index as u32);
        };
        let mut positions = ids.clone();
        if let (Some(_), Some(&lowest)) = (self.end, self.ends.first()) {
            positions.insert(positions.partition_point(|&id| id < lowest), lowest);
        }
        let weights: Vec<f64> = positions.iter().map(|&position| written.weight(position)).collect();
        let pick = draw_source(&Weights::listed(&positions, &weights), *method, key)?;
        Some(positions[pick.index])
    }

    fn log_mass(&self, found: &Found, written: &Written<'_>) -> f64 {
        match self.live {
            // Everything is allowed: a sum would only add rounding.
            Live::All => 0.0,
            _ if found.live < SOUND => blocks::log_total(written),
            // The two are not summed in one order.
            _ => (math::ln(found.live) - math::ln(found.all)).min(0.0),
        }
    }

    /// What is found by sums alone.
    fn sums(&self) -> Found {
        let draw = Draw::Position(None);
        match &self.live {
            Live::List(ids) => {
                let exponents: Vec<f64> = ids.iter().map(|&id| self.exponent(id)).collect();
                let live = blocks::mass_sum(&Weights::listed(ids, &exponents), 0.0);
                self.found(normalizer::mass_sum(self.row.logits, self.scale), live, draw)
            }
            _ => {
                let mut parts = Vec::new();
                let [all, live] = self.part_sums(&mut parts);
                self.found(all, live, draw)
            }
        }
    }

    fn found(&self, all: f64, live: f64, draw: Draw) -> Found {
        let live = match self.live {
            Live::All => all,
            _ => live + self.end.unwrap_or(0.0),
        };
        Found { all, live, draw }
    }

    /// Lets the ids race.
    fn race(&self) -> Found {
        let RowDraw { logits, key, .. } = *self.row;
        let mut field =
            Field { bar: Bar::new(0.0, self.magnitude()), best: f64::NEG_INFINITY, candidates: Vec::new() };
        // The heaviest entries go first: they set a bar that few reach.
        if self.live.contains(self.top) && !self.ends.contains(&self.top) {
            field.enter(self.top, self.exponent(self.top) + key.gumbel(self.top));
        }
        if let (Some(mass), Some(&lowest)) = (self.end, self.ends.first()) {
            field.enter(lowest, math::ln(mass) + key.gumbel(lowest));
        }
        let [all, live] = match &self.live {
            Live::List(ids) => {
                let exponents: Vec<f64> = ids.iter().map(|&id| self.exponent(id)).collect();
                let weights = Weights::listed(ids, &exponents);
                let live = simd::run(ListRace { weights, key: &key, field: &mut field });
                [normalizer::mass_sum(logits, self.scale), live]
            }
            _ => {
                let (words, ends) = (self.words(), self.ends);
                simd::run(Race { logits, scale: self.scale, words, key: &key, ends, field: &mut field })
            }
        };
        self.found(all, live, Draw::Candidates(field.candidates))
    }

    /// Finds where the running sum crosses its target.
    fn run_through(&self, margin: f64) -> Found {
        if let Live::List(_) = self.live {
            // So few that they are written out.
            return self.sums();
        }
        let RowDraw { eos, key, method, .. } = *self.row;
        let mut sums = Vec::with_capacity(self.row.logits.len().div_ceil(PART));
        let [all, live] = self.part_sums(&mut sums);
        // Sums without a mask have every end at its own place.
        for &id in self.ends {
            let moved = if let Live::All = self.live { math::exp(self.exponent(id)) } else { 0.0 };
            let added = self.end.filter(|_| eos.lowest() == Some(id)).unwrap_or(0.0);
            for sum in &mut sums[id as usize / PART..] {
                *sum += added - moved;
            }
        }
        let mut found = self.found(all, live, Draw::Position(None));
        let target = key.uniform(0) * found.live;
        let crossed = crossing(sums.iter().copied(), target, margin * found.live);
        found.draw = Draw::Position(crossed.and_then(|(part, before)| {
            let terms = self.terms(part * PART);
            let (target, total) = match method {
                DrawMethod::Multinomial => {
                    let total = running(&terms).last().unwrap_or(0.0);
                    (key.uniform(1) * total, total)
                }
                _ => (target - before, found.live),
            };
            crossing(running(&terms), target, margin * total).map(|(i, _)| (part * PART + i) as u32)
        }));
        found
    }

    /// The sums of all masses and of the live ones; writes the running sum of these after each part.
    fn part_sums(&self, sums: &mut Vec<f64>) -> [f64; 2] {
        simd::run(PartSums { logits: self.row.logits, scale: self.scale, words: self.words(), sums })
    }

    /// The masses of the part from `start`, with the end-of-sequence set as one.
    fn terms(&self, start: usize) -> Vec<f64> {
        let rest = &self.row.logits[start..];
        let logits = &rest[..rest.len().min(PART)];
        let mut terms = vec![0.0; logits.len()];
        simd::run(Fill { logits, scale: self.scale, out: &mut terms });
        if let Some(words) = self.words() {
            let all = terms.clone();
            blocks::allow(&all, words_from(words, start), &mut terms);
        }
        for &id in self.ends {
            if let Some(term) = (id as usize).checked_sub(start).and_then(|i| terms.get_mut(i)) {
                *term = self.end.filter(|_| self.row.eos.lowest() == Some(id)).unwrap_or(0.0);
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

/// The candidate with the largest score by the row's weights, the lowest of several; `None` if none is
/// live.
fn winner(candidates: &[u32], written: &Written<'_>, key: &DrawKey) -> Option<u32> {
    let mut best = (f64::NEG_INFINITY, None);
    for &id in candidates {
        let score = written.weight(id) + key.gumbel(id);
        if score > best.0 || (score == best.0 && best.1.is_some_and(|at| id < at)) {
            best = (score, Some(id));
        }
    }
    best.1
}
