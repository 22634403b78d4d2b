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

use std::borrow::Cow;

use super::row::{Drawn, RowDraw};
use super::written::Written;
use super::{DrawMethod, Weights, draw_source};
use crate::bitset::Bitset;
use crate::blocks::{self, BLOCK, Block, Positions, RunSum};
use crate::math;
use crate::normalizer::{self, Normalizer, RowError, Scale};
use crate::race::{self, Bar, GROUP, Noise, Podium};
use crate::rng::{self, DrawKey};
use crate::simd::{self, Kernel};

/// Positions a part of the running sum: the block of [`DrawMethod::Multinomial`].
const PART: usize = 256;
/// More than what running sums of either form differ by, as a share of the total.
const MARGIN: f64 = 1e-11;
/// A mask with fewer ids than one in this many is drawn from as a list.
const LIST_BELOW: usize = 16;
/// A sum above it has lost nothing to underflow.
const SOUND: f64 = 1e-280;
/// What the exponent of no mass is below: [`math::mass_lane`] takes it for 0.
const DEEPEST: f64 = 708.0;

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
            Some(mask) if mask.count() < len / LIST_BELOW => {
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
        let reach = if let Live::All = self.live { 0.0 } else { DEEPEST };
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
                let live = simd::run(ListSum(Weights::listed(ids, &exponents)));
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

/// The words of a mask of the ids from `start`, a multiple of 64.
#[inline(always)]
fn words_from(words: &[u64], start: usize) -> impl Iterator<Item = u64> + '_ {
    let rest = words.get(start / u64::BITS as usize..).unwrap_or_default();
    rest.iter().copied().chain(std::iter::repeat(0))
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

/// Who may win a race.
struct Field {
    bar: Bar,
    /// The best score so far.
    best: f64,
    candidates: Vec<u32>,
}

impl Field {
    #[inline(always)]
    fn enter(&mut self, id: u32, score: f64) {
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
struct Race<'a> {
    logits: &'a [f32],
    scale: Scale,
    /// The live ids, if not all are.
    words: Option<&'a [u64]>,
    key: &'a DrawKey,
    /// Ids that do not race.
    ends: &'a [u32],
    field: &'a mut Field,
}

impl Kernel for Race<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run(self) -> [f64; 2] {
        let Self { logits, scale, words, key, ends, field } = self;
        let (mut masses, mut live) = ([0.0; BLOCK], [0.0; BLOCK]);
        let mut noise = Noise::new(key);
        let mut sums = [0.0; 2];
        for (first, logits) in (0..).step_by(BLOCK).zip(logits.chunks(BLOCK)) {
            let mut masses = &mut masses[..logits.len()];
            blocks::logit_masses(logits, scale, masses);
            if let Some(words) = words {
                let live = &mut live[..logits.len()];
                let [all, allowed] = blocks::allow(masses, words_from(words, first), live);
                sums[0] += all;
                sums[1] += allowed;
                if allowed == 0.0 {
                    continue;
                }
                masses = live;
            } else {
                sums[0] += block_total(masses);
            }
            noise.enter(first as u32, masses.len());
            for (start, masses) in (0..).step_by(GROUP).zip(masses.chunks(GROUP)) {
                let Some(bits) = noise.reaching(&field.bar, start, masses) else { continue };
                for (i, (&mass, &bits)) in (start..).zip(masses.iter().zip(bits)) {
                    let id = (first + i) as u32;
                    // What has no mass cannot win.
                    if mass > 0.0 && field.bar.admits(mass, bits) && !ends.contains(&id) {
                        field.enter(id, scale.exponent(logits[i]) + rng::gumbel_lane(bits));
                    }
                }
            }
        }
        sums
    }
}

/// [`Race`] of a few ids, by their exponents; the sum of their masses.
struct ListRace<'a> {
    weights: Weights<'a>,
    key: &'a DrawKey,
    field: &'a mut Field,
}

impl Kernel for ListRace<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        race::run(&self.weights, self.key, 0.0, self.field)
    }
}

/// The sum of the masses of a few ids, by their exponents.
struct ListSum<'a>(Weights<'a>);

impl Kernel for ListSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        blocks::mass_sum(&self.0, 0.0)
    }
}

/// Sums the masses of a row, all and live ones, and writes the running sum of these after each part.
struct PartSums<'a> {
    logits: &'a [f32],
    scale: Scale,
    /// The live ids, if not all are.
    words: Option<&'a [u64]>,
    sums: &'a mut Vec<f64>,
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
                all += blocks::allow(masses, words_from(words, first), allowed)[0];
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

struct Fill<'a> {
    logits: &'a [f32],
    scale: Scale,
    out: &'a mut [f64],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        blocks::logit_masses(self.logits, self.scale, self.out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// No mask, or one of words that allow all, nothing, or one id in `of`.
    fn mask(step: u32, len: usize, of: u32) -> Option<Bitset> {
        let noise = DrawKey::new(ProblemKey::new(97, 0), 0, step, 0);
        let allows = |id: &u32| match noise.block(id / 64)[0] % 4 {
            0 => true,
            1 => false,
            _ => noise.block(1_000_000 + id)[0].is_multiple_of(of),
        };
        (of > 0).then(|| Bitset::from_ids(len, (0..len as u32).filter(allows)))
    }

    /// The row's masses with its mask in the other form.
    fn in_other_form<'a>(row: &'a RowDraw<'a>) -> Masses<'a> {
        let mut masses = Masses::of(row).unwrap();
        masses.live = match masses.live {
            Live::All => Live::All,
            Live::List(ids) => Live::Mask(Cow::Owned(Bitset::from_ids(row.logits.len(), ids))),
            Live::Mask(mask) => {
                let ids = mask.iter().take_while(|&id| id < row.logits.len());
                Live::List(ids.map(|id| id as u32).collect())
            }
        };
        masses
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

        #[test]
        fn decided_rows_draw_as_written_out_and_every_form_of_a_mask_leaves_the_same(
            step in 0u32..1_000_000,
            len in prop::sample::select(vec![1u32, 2, 63, 255, 257, 1025, 3000]),
            spread in prop::sample::select(vec![0.0, 1e-3, 1.0, 6.0, 500.0, 1e30]),
            temperature in prop::sample::select(vec![1.0, 0.3, 40.0, 1e-3, 1e-30, f64::MIN_POSITIVE]),
            ends in prop::collection::vec(0u32..4000, 0..4),
            margin in prop::sample::select(vec![MARGIN, 1e-6, 1e-2]),
            allowed in prop::sample::select(vec![(0, 0), (2, 0), (2, 100), (40, 0), (40, 100)]),
        ) {
            let logits = logits(step, len, spread);
            let ends = EosSet::new(ends.into_iter().filter(|id| id % 7 == 0 || *id < len));
            let mask = mask(step, (len + allowed.1) as usize, allowed.0);
            for method in METHODS {
                let key = DrawKey::new(ProblemKey::new(12, 0), 0, step, 0);
                let mask = mask.as_ref();
                let row = RowDraw { logits: &logits, temperature, eos: &ends, mask, method, key };
                let masses = Masses::of(&row).unwrap();
                let found = masses.find(margin);
                let written = Written::of(&row, masses.normalizer(&found));
                let expected = draw_source(&written, method, &key).map(|pick| pick.index as u32);
                if let Some(position) = masses.decide(&found, &written) {
                    prop_assert_eq!(Some(position), expected);
                }
                let log_mass = masses.log_mass(&found, &written);
                let total = blocks::log_total(&written);
                let off = (log_mass - total).abs();
                prop_assert!(log_mass == total || off < 1e-12 || off < 1e-14 * masses.scale.shift.abs());
                prop_assert_eq!(masses.log_mass(&masses.sums(), &written).to_bits(), log_mass.to_bits());
                let other = in_other_form(&row);
                let found = other.find(margin);
                prop_assert_eq!(other.log_mass(&found, &written).to_bits(), log_mass.to_bits());
                if let Some(position) = other.decide(&found, &written) {
                    prop_assert_eq!(Some(position), expected);
                }
                prop_assert_eq!(masses.draw_written(&written), expected);
                prop_assert_eq!(other.draw_written(&written), expected);
            }
        }
    }

    #[test]
    fn almost_every_ordinary_row_is_decided() {
        let ends = EosSet::new([3, 700]);
        for method in METHODS {
            for step in 0..500 {
                let logits = logits(step, 2000, 2.0);
                let mask = mask(step, 2000, [0, 2][step as usize % 2]);
                let mask = mask.as_ref();
                let key = DrawKey::new(ProblemKey::new(13, 0), 0, step, 0);
                let row = RowDraw { logits: &logits, temperature: 0.8, eos: &ends, mask, method, key };
                let masses = Masses::of(&row).unwrap();
                let found = masses.find(MARGIN);
                let written = Written::of(&row, masses.normalizer(&found));
                assert!(masses.decide(&found, &written).is_some());
            }
        }
    }

    #[test]
    fn what_a_mask_leaves_far_below_the_rest_is_weighed_and_drawn() {
        let logits: Vec<f32> =
            (0..3000).map(|id| if id < 1500 { 0.0 } else { -2000.0 - (id % 7) as f32 }).collect();
        let mask = Bitset::from_ids(3000, 1500..3000);
        for method in METHODS {
            let key = DrawKey::new(ProblemKey::new(15, 0), 0, 1, 0);
            let (eos, mask) = (&EosSet::new([]), Some(&mask));
            let row = RowDraw { logits: &logits, temperature: 1.0, eos, mask, method, key };
            let drawn = draw(&row).unwrap();
            assert!(drawn.token.0 >= 1500);
            let left: f64 = (1500..3000).map(|id| (-f64::from(id % 7)).exp()).sum();
            let expected = -2000.0 + left.ln() - 1500_f64.ln();
            assert!((drawn.log_mass - expected).abs() < 1e-11, "{} {expected}", drawn.log_mass);
            assert_eq!(log_mass(&row), Ok(drawn.log_mass));
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
            let mask = mask(step, logits.len(), [0, 2, 30][step as usize % 3]);
            let words = mask.as_ref().map(Bitset::words);
            let key = &DrawKey::new(ProblemKey::new(14, 0), 0, step, 0);
            let scale = Scale { inverse: 0.9, shift: 40.0 };
            let bits = |sums: [f64; 2]| sums.map(f64::to_bits);
            let race = |wide: bool| {
                let bar = Bar::new(0.0, scale.shift);
                let mut field = Field { bar, best: f64::NEG_INFINITY, candidates: Vec::new() };
                let race = Race { logits, scale, words, key, ends: &[1], field: &mut field };
                let sums = if wide { simd::run(race) } else { race.run() };
                (bits(sums), field.best.to_bits(), field.candidates)
            };
            assert_eq!(race(true), race(false));
            let parts = |wide: bool| {
                let mut sums = Vec::new();
                let parts = PartSums { logits, scale, words, sums: &mut sums };
                let totals = if wide { simd::run(parts) } else { parts.run() };
                (bits(totals), sums.into_iter().map(f64::to_bits).collect::<Vec<_>>())
            };
            assert_eq!(parts(true), parts(false));
        }
    }
}
