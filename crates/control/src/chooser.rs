//! Where samplers and runs take their randomness from.
//!
//! In production every choice is a pure function of its key ([`Keyed`]). Tests put a chooser in
//! its place that enumerates every choice, and so prove a sampler exact. A caller who has a rule of
//! their own for categorical draws gives it as a function ([`DrawFn`]).
//!
//! All rows of a tick are drawn in one call, grouped by the length of their vocabulary's rows. A
//! group with a malformed row fails, with one error, and alone.

use lockstep_sample::{DrawKey, DrawMethod, Drawn, TokenId};
use rayon::prelude::*;

use crate::error::{ControlError, ErrorKind};
use crate::potential::{Row, RowResult, guarded};
use crate::resampling::{Cumulative, Resampling};

/// A row to draw a token from.
#[derive(Clone, Copy, Debug)]
pub struct RowToDraw<'a> {
    /// Its log-weights.
    pub row: &'a Row,
    /// How many positions rows of its vocabulary have.
    pub row_len: usize,
    /// Which of them is the end.
    pub eos_position: usize,
    /// Fixes the draw's noise.
    pub key: DrawKey,
}

/// Makes the random choices of a run.
pub trait Chooser: Send {
    /// The draw method, if choices are pure functions of their keys: then the engine may make
    /// them, and rows may be drawn in any order.
    fn keyed(&self) -> Option<DrawMethod>;

    /// A token in proportion to `row`, whose end symbol is at `eos_position`; `None` if it is dead.
    fn draw(&mut self, row: &Row, eos_position: usize, key: &DrawKey) -> Option<Drawn>;

    /// A token for each of well-formed `rows`, in their order, as [`Self::draw`] would.
    fn draw_group(&mut self, rows: &[RowToDraw<'_>]) -> Vec<RowResult<Option<Drawn>>> {
        rows.iter().map(|to| Ok(self.draw(to.row, to.eos_position, &to.key))).collect()
    }

    /// The ancestors of a resampling of particles with these weights (linear scale).
    fn ancestors(&mut self, scheme: Resampling, weights: &[f64], key: &DrawKey) -> Vec<usize>;

    /// `n` independent picks of an index in proportion to `weights` (linear scale). By default pick
    /// i takes the key's uniform at position i.
    fn picks(&mut self, weights: &[f64], n: usize, key: &DrawKey) -> Vec<usize> {
        Cumulative::new(weights).picks(n, &mut |position| key.uniform(position))
    }
}

/// Draws all rows of a tick, of one or several vocabularies.
///
/// A row is malformed if it is dense and has not one entry for each position, or lists a position
/// that there is not. It fails all rows of its length, with the same error.
pub fn draw_rows(chooser: &mut dyn Chooser, rows: &[RowToDraw<'_>]) -> Vec<RowResult<Option<Drawn>>> {
    let mut lengths: Vec<usize> = rows.iter().map(|to| to.row_len).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut results: Vec<RowResult<Option<Drawn>>> = vec![Ok(None); rows.len()];
    for length in lengths {
        let which: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].row_len == length).collect();
        match which.iter().try_for_each(|i| rows[*i].row.check_len(length)) {
            Err(error) => which.iter().for_each(|i| results[*i] = Err(error.clone())),
            Ok(()) => {
                let group: Vec<RowToDraw<'_>> = which.iter().map(|i| rows[*i]).collect();
                for (i, drawn) in which.into_iter().zip(chooser.draw_group(&group)) {
                    results[i] = drawn;
                }
            }
        }
    }
    results
}

/// Choices by key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed {
    /// How tokens are drawn.
    pub method: DrawMethod,
}

impl Chooser for Keyed {
    fn keyed(&self) -> Option<DrawMethod> {
        Some(self.method)
    }

    fn draw(&mut self, row: &Row, eos_position: usize, key: &DrawKey) -> Option<Drawn> {
        row.draw(eos_position, None, self.method, key)
    }

    fn draw_group(&mut self, rows: &[RowToDraw<'_>]) -> Vec<RowResult<Option<Drawn>>> {
        let draw = |to: &RowToDraw<'_>| Ok(to.row.draw(to.eos_position, None, self.method, &to.key));
        rows.par_iter().map(draw).collect()
    }

    fn ancestors(&mut self, scheme: Resampling, weights: &[f64], key: &DrawKey) -> Vec<usize> {
        scheme.ancestors(weights, &mut |position| key.uniform(position))
    }
}

/// Categorical draws by a function of the caller's; resamplings stay keyed.
///
/// The function gets a row's log-probabilities by position, `-inf` where there is no mass, and gives
/// the position to take, which must be live. Nothing is sorted. It is not called for a dead row, nor
/// by samplers that order candidates by key: those refuse it (AWRS).
///
/// Weights are computed as if positions were drawn in proportion: a function that does otherwise
/// gives up proper weighting, as greedy decoding does.
///
/// ```
/// use lockstep_control::testkit::WeightedSet;
/// use lockstep_control::{Direct, DrawFn, Smc, SmcOptions};
/// use std::sync::Arc;
///
/// let target = WeightedSet::new("ab", &[("aab", 3.0), ("b", 1.0)]).potential();
/// let most_likely = DrawFn::new(|logps: &[f64]| {
///     (0..logps.len()).max_by(|a, b| logps[*a].total_cmp(&logps[*b])).unwrap_or(0)
/// });
/// let smc = Smc::new(Arc::new(Direct::new(target)), None)?;
/// let options = SmcOptions { n_particles: 1, seed: Some(1), ..SmcOptions::default() };
/// let mut run = smc.start_with(&options, Box::new(most_likely))?;
/// for step in &mut run {
///     step?;
/// }
/// assert_eq!(run.sequences().contexts()[0].len(), 4);
/// # Ok::<(), lockstep_control::ControlError>(())
/// ```
#[derive(Clone, Copy)]
pub struct DrawFn<F>(F);

impl<F: FnMut(&[f64]) -> usize + Send> DrawFn<F> {
    /// Draws by `draw`, from log-probabilities (nats) to a position.
    pub fn new(draw: F) -> Self {
        Self(draw)
    }

    fn choose(&mut self, to: &RowToDraw<'_>) -> RowResult<Option<Drawn>> {
        let log_mass = to.row.log_total();
        if log_mass == f64::NEG_INFINITY {
            return Ok(None);
        }
        let mut logps = to.row.to_dense();
        logps.resize(to.row_len, f64::NEG_INFINITY);
        logps.iter_mut().for_each(|w| *w -= log_mass);
        let position = guarded("the draw function", || Ok((self.0)(&logps)))?;
        let Some(&logp) = logps.get(position).filter(|logp| **logp > f64::NEG_INFINITY) else {
            return Err(ControlError::new(
                ErrorKind::Custom,
                format!("the draw function gave position {position}, which has no mass: give a live one"),
            ));
        };
        let token = match u32::try_from(position) {
            Ok(id) if position != to.eos_position => TokenId(id),
            _ => TokenId::EOS,
        };
        Ok(Some(Drawn { token, log_mass, logp }))
    }
}

impl<F> std::fmt::Debug for DrawFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DrawFn")
    }
}

impl<F: FnMut(&[f64]) -> usize + Send> Chooser for DrawFn<F> {
    fn keyed(&self) -> Option<DrawMethod> {
        None
    }

    fn draw(&mut self, row: &Row, eos_position: usize, key: &DrawKey) -> Option<Drawn> {
        let row_len = row.reach().max(eos_position + 1);
        self.choose(&RowToDraw { row, row_len, eos_position, key: *key }).ok().flatten()
    }

    fn draw_group(&mut self, rows: &[RowToDraw<'_>]) -> Vec<RowResult<Option<Drawn>>> {
        rows.iter().map(|to| self.choose(to)).collect()
    }

    fn ancestors(&mut self, scheme: Resampling, weights: &[f64], key: &DrawKey) -> Vec<usize> {
        scheme.ancestors(weights, &mut |position| key.uniform(position))
    }
}
