//! Drawing one entry of a row of log-weights.
//!
//! | method | rule | uniforms |
//! |---|---|---|
//! | [`DrawMethod::GumbelMax`] | `argmax(w_i − ln(−ln u_i))`, ties to the lower position | one a live entry, at its position |
//! | [`DrawMethod::InverseCdf`] | first `i` of positive mass whose running sum exceeds `u Σ` | position 0 |
//! | [`DrawMethod::Multinomial`] | the same in two levels: a block of 256 positions, then an entry | positions 0 and 1 |
//!
//! All follow the law `exp(w_i − LSE w)`. Masses are `exp(w_i − max w)`; running sums are
//! sequential within blocks of positions (1,024, or the 256 of `multinomial`), then across blocks.
//! Where rounding leaves no entry, the last one of positive mass is drawn.

mod cumulative;
mod gumbel;
mod logits;
mod row;
mod written;

use std::fmt;
use std::str::FromStr;

use crate::blocks;
use crate::rng::DrawKey;
use crate::simd;

pub use row::{Drawn, RowDraw, draw_row, draw_rows, log_mass};

/// How a draw turns uniform numbers into a choice. All methods follow one law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DrawMethod {
    /// The largest log-weight after Gumbel noise: an entry's noise does not depend on which others
    /// are live.
    #[default]
    GumbelMax,
    /// One uniform through the running sum: the method for common random numbers.
    InverseCdf,
    /// Two uniforms, for a block and for an entry in it.
    Multinomial,
}

/// The names of all draw methods.
pub const DRAW_METHODS: [&str; 3] = ["gumbel_max", "inverse_cdf", "multinomial"];

/// A draw method of a name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("draw method `{name}` is unknown; use one of {}", DRAW_METHODS.join(", "))]
pub struct UnknownDrawMethod {
    name: String,
}

impl fmt::Display for DrawMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DRAW_METHODS[*self as usize])
    }
}

impl FromStr for DrawMethod {
    type Err = UnknownDrawMethod;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::GumbelMax, Self::InverseCdf, Self::Multinomial]
            .into_iter()
            .find(|method| method.to_string() == name)
            .ok_or_else(|| UnknownDrawMethod { name: name.to_owned() })
    }
}

/// The live entries of one row, each at a position that addresses its noise and its place in every
/// sum. Positions are model token ids, the end symbol at the lowest of its set.
///
/// Log-weights are in nats, finite or `-inf`; entries at `-inf` may stand anywhere, are never drawn,
/// and change nothing.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    pub(crate) positions: Option<&'a [u32]>,
    pub(crate) log_weights: &'a [f64],
}

impl<'a> Weights<'a> {
    /// The entry at index `i` has position `i`.
    #[must_use]
    pub fn dense(log_weights: &'a [f64]) -> Self {
        Self { positions: None, log_weights }
    }

    /// The entry at index `i` has position `positions[i]`; positions ascend.
    ///
    /// # Panics
    /// If the lengths differ.
    #[must_use]
    pub fn listed(positions: &'a [u32], log_weights: &'a [f64]) -> Self {
        assert_eq!(positions.len(), log_weights.len(), "one position a weight");
        debug_assert!(positions.is_sorted_by(|a, b| a < b), "positions ascend");
        Self { positions: Some(positions), log_weights }
    }
}

/// A drawn entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Its index in the row's log-weights.
    pub index: usize,
    /// The log of the row's total mass, in nats: [`log_total`].
    pub log_total: f64,
    /// The log-probability of the entry: its log-weight less `log_total`.
    pub logp: f64,
}

/// Draws one entry with probability `exp(w_i − LSE w)`; `None` if no entry is live.
#[must_use]
pub fn draw(weights: Weights<'_>, method: DrawMethod, key: &DrawKey) -> Option<Pick> {
    draw_source(&weights, method, key)
}

/// `LSE` of the row, in nats: the total of [`draw`], without a draw. `-inf` if no entry is live.
///
/// Positions are summed in blocks of 1,024: sixteen running sums in each, for the positions congruent
/// modulo 16, then those pairwise, then the blocks in order. So the bits depend on no absent entry.
#[must_use]
pub fn log_total(weights: Weights<'_>) -> f64 {
    blocks::log_total(&weights)
}

fn draw_source(source: &impl blocks::Source, method: DrawMethod, key: &DrawKey) -> Option<Pick> {
    match method {
        DrawMethod::GumbelMax => simd::run(gumbel::GumbelMax { source, key }),
        DrawMethod::InverseCdf => simd::run(cumulative::InverseCdf { source, uniform: key.uniform(0) }),
        DrawMethod::Multinomial => {
            simd::run(cumulative::Multinomial { source, uniforms: [key.uniform(0), key.uniform(1)] })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::ProblemKey;
    use crate::simd::Kernel;

    const METHODS: [DrawMethod; 3] = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];

    fn key(step: u32) -> DrawKey {
        DrawKey::new(ProblemKey::new(11, 2), 5, step, 0)
    }

    /// Rows of many shapes: noise of some spread, some entries impossible, now and then a tie.
    fn random_row(step: u32, len: u32, spread: f64) -> Vec<f64> {
        let noise = DrawKey::new(ProblemKey::new(99, 0), 0, step, 0);
        (0..len)
            .map(|i| match noise.block(1_000_000 + i)[0] % 8 {
                0 => f64::NEG_INFINITY,
                1 => spread,
                _ => spread * noise.gumbel(i),
            })
            .collect()
    }

    /// The rule of the table, without any shortcut.
    fn plain_gumbel_max(weights: &Weights<'_>, key: &DrawKey) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (i, &w) in weights.log_weights.iter().enumerate() {
            let position = weights.positions.map_or(i as u32, |positions| positions[i]);
            let score = w + key.gumbel(position);
            if score > best.map_or(f64::NEG_INFINITY, |(score, _)| score) {
                best = Some((score, i));
            }
        }
        best.map(|(_, i)| i)
    }

    #[test]
    fn gumbel_max_takes_no_shortcut_that_changes_the_index() {
        let mut step = 0;
        for (rows, len) in [(3000, 7), (2000, 130), (200, 3000)] {
            for _ in 0..rows {
                step += 1;
                let spread = [1e-12, 0.3, 2.0, 40.0, 1e6, 1e17][step as usize % 6];
                let row = random_row(step, len, spread);
                let weights = Weights::dense(&row);
                let pick = draw(weights, DrawMethod::GumbelMax, &key(step));
                assert_eq!(pick.map(|pick| pick.index), plain_gumbel_max(&weights, &key(step)), "row {step}");
            }
        }
    }

    #[test]
    fn gumbel_max_is_exact_on_ascending_and_flat_rows() {
        for step in 1..60 {
            let ascending: Vec<f64> = (0..5000).map(|i| f64::from(i) * 0.01 * f64::from(step % 3)).collect();
            let weights = Weights::dense(&ascending);
            let pick = draw(weights, DrawMethod::GumbelMax, &key(step)).expect("a live row");
            assert_eq!(Some(pick.index), plain_gumbel_max(&weights, &key(step)));
        }
    }

    #[test]
    fn all_simd_levels_agree_bit_for_bit() {
        fn bits(pick: Option<Pick>) -> Option<(usize, u64, u64)> {
            pick.map(|pick| (pick.index, pick.log_total.to_bits(), pick.logp.to_bits()))
        }
        for step in 0..200 {
            let row = random_row(
                step,
                [3, 100, 1500, 5000][step as usize % 4],
                [0.1, 3.0, 300.0][step as usize % 3],
            );
            let key = key(step);
            let source = &Weights::dense(&row);
            let uniforms = [key.uniform(0), key.uniform(1)];
            let portable = [
                gumbel::GumbelMax { source, key: &key }.run(),
                cumulative::InverseCdf { source, uniform: uniforms[0] }.run(),
                cumulative::Multinomial { source, uniforms }.run(),
            ];
            for (method, portable) in METHODS.into_iter().zip(portable) {
                assert_eq!(bits(draw(*source, method, &key)), bits(portable), "{method}, row {step}");
            }
        }
    }

    proptest! {
        /// Impossible entries change no bit, whether they are listed or left out.
        #[test]
        fn dense_and_listed_rows_agree_bit_for_bit(
            step in 0u32..1_000_000,
            len in 1u32..4000,
            spread in prop::sample::select(vec![0.5, 5.0, 500.0]),
            thin in 1usize..200,
        ) {
            let mut dense = random_row(step, len, spread);
            for (i, w) in dense.iter_mut().enumerate() {
                if !(i * 7919 + step as usize).is_multiple_of(thin) {
                    *w = f64::NEG_INFINITY;
                }
            }
            let live: Vec<u32> = (0..len).filter(|&i| dense[i as usize] > f64::NEG_INFINITY).collect();
            let listed: Vec<f64> = live.iter().map(|&i| dense[i as usize]).collect();
            let dense_total = log_total(Weights::dense(&dense));
            prop_assert_eq!(log_total(Weights::listed(&live, &listed)).to_bits(), dense_total.to_bits());
            for method in METHODS {
                let a = draw(Weights::dense(&dense), method, &key(step));
                let b = draw(Weights::listed(&live, &listed), method, &key(step));
                prop_assert_eq!(a.is_none(), live.is_empty());
                prop_assert_eq!(a, b.map(|b| Pick { index: live[b.index] as usize, ..b }));
                if let Some(pick) = a {
                    prop_assert!(dense[pick.index] > f64::NEG_INFINITY);
                    prop_assert_eq!(pick.log_total, dense_total);
                    prop_assert_eq!(pick.logp, dense[pick.index] - dense_total);
                }
            }
        }
    }

    #[test]
    fn a_dead_row_gives_no_pick() {
        for method in METHODS {
            assert_eq!(draw(Weights::dense(&[]), method, &key(1)), None);
            assert_eq!(draw(Weights::dense(&[f64::NEG_INFINITY; 3]), method, &key(1)), None);
        }
        assert_eq!(log_total(Weights::dense(&[])), f64::NEG_INFINITY);
    }

    #[test]
    fn names_round_trip_and_an_unknown_one_lists_them() {
        for (method, name) in METHODS.into_iter().zip(DRAW_METHODS) {
            assert_eq!(method.to_string(), name);
            assert_eq!(name.parse(), Ok(method));
        }
        let error = "greedy".parse::<DrawMethod>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "draw method `greedy` is unknown; use one of gumbel_max, inverse_cdf, multinomial"
        );
    }
}
