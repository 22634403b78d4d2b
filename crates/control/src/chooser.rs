//! Where samplers and runs take their randomness from.
//!
//! In production every choice is a pure function of its key ([`Keyed`]). Tests put a chooser in
//! its place that enumerates every choice, and so prove a sampler exact.

use lockstep_sample::{DrawKey, DrawMethod, Drawn};

use crate::potential::Row;
use crate::resampling::{Cumulative, Resampling};

/// Makes the random choices of a run.
pub trait Chooser: Send {
    /// The draw method, if choices are pure functions of their keys: then the engine may make
    /// them, and rows may be drawn in any order.
    fn keyed(&self) -> Option<DrawMethod>;

    /// A token in proportion to `row`, whose end symbol is at `eos_position`; `None` if it is dead.
    fn draw(&mut self, row: &Row, eos_position: usize, key: &DrawKey) -> Option<Drawn>;

    /// The ancestors of a resampling of particles with these weights (linear scale).
    fn ancestors(&mut self, scheme: Resampling, weights: &[f64], key: &DrawKey) -> Vec<usize>;

    /// `n` independent picks of an index in proportion to `weights` (linear scale). By default pick
    /// i takes the key's uniform at position i.
    fn picks(&mut self, weights: &[f64], n: usize, key: &DrawKey) -> Vec<usize> {
        Cumulative::new(weights).picks(n, &mut |position| key.uniform(position))
    }
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

    fn ancestors(&mut self, scheme: Resampling, weights: &[f64], key: &DrawKey) -> Vec<usize> {
        scheme.ancestors(weights, &mut |position| key.uniform(position))
    }
}
