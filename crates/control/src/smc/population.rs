//! The columns of a population.
//!
//! A particle's log-weight is `base + twist`: the critic's provisional share is kept apart, so that
//! it is taken back exactly.

use lockstep_sample::TokenId;

use crate::units::{Unit, UnitEnds};
use crate::weights;

/// Particles in columns. Dead and finished ones keep their slots.
#[derive(Clone, Debug)]
pub(super) struct Population {
    pub(super) base: Vec<f64>,
    pub(super) twist: Vec<f64>,
    pub(super) done: Vec<bool>,
    pub(super) remaining: Vec<usize>,
    pub(super) contexts: Vec<Vec<TokenId>>,
    /// How the contexts group, if the sampler draws units.
    pub(super) ends: Vec<UnitEnds>,
    /// The token that each sampler's row is to be moved by.
    pub(super) drawn: Vec<Option<TokenId>>,
    /// For each particle, the sampler's log-weight of each step: what a conditional run needs to
    /// retain it.
    pub(super) increments: Vec<Vec<f64>>,
}

/// The state of a population between two steps; contexts only grow within one.
#[derive(Debug)]
pub(super) struct Mark {
    base: Vec<f64>,
    twist: Vec<f64>,
    done: Vec<bool>,
    remaining: Vec<usize>,
    /// The lengths of contexts and increments, and the counts of units.
    tokens: Vec<usize>,
    steps: Vec<usize>,
    units: Vec<Vec<usize>>,
}

impl Population {
    pub(super) fn new(n: usize, start_weight: f64, max_tokens: usize) -> Self {
        Self {
            base: vec![start_weight; n],
            twist: vec![0.0; n],
            done: vec![false; n],
            remaining: vec![max_tokens; n],
            contexts: vec![Vec::new(); n],
            ends: vec![UnitEnds::none(); n],
            drawn: vec![None; n],
            increments: vec![Vec::new(); n],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.base.len()
    }

    pub(super) fn log_weights(&self) -> Vec<f64> {
        self.base.iter().zip(&self.twist).map(|(base, twist)| base + twist).collect()
    }

    pub(super) fn live(&self) -> Vec<usize> {
        (0..self.len()).filter(|i| !self.done[*i]).collect()
    }

    /// The one way a weight changes.
    pub(super) fn reweight(&mut self, i: usize, increment: f64) -> Result<(), weights::InfiniteWeight> {
        self.base[i] = weights::add(self.base[i], increment)?;
        Ok(())
    }

    /// Appends what was drawn: a token, or a unit whose last token that is.
    pub(super) fn append(&mut self, i: usize, token: TokenId, unit: Option<&Unit>) {
        self.drawn[i] = Some(token);
        if let Some(unit) = unit.filter(|unit| !(unit.is_empty() && token.is_eos())) {
            self.ends[i].push(self.contexts[i].len(), unit);
            self.contexts[i].extend(&unit.tokens);
        }
        if unit.is_none() || token.is_eos() {
            self.contexts[i].push(token);
        }
    }

    /// The sampler's log-weight of a step becomes part of the particle's weight.
    pub(super) fn weigh_step(&mut self, i: usize, logw: f64) -> Result<(), weights::InfiniteWeight> {
        self.increments[i].push(if logw.is_nan() { f64::NEG_INFINITY } else { logw });
        self.reweight(i, logw)
    }

    /// The particle is impossible: it keeps its slot and is not stepped again.
    pub(super) fn kill(&mut self, i: usize) {
        self.base[i] = f64::NEG_INFINITY;
        self.done[i] = true;
    }

    pub(super) fn has_ended(&self, i: usize) -> bool {
        self.contexts[i].last().is_some_and(|token| token.is_eos())
    }

    /// The state to return to if the step that begins cannot be completed.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            base: self.base.clone(),
            twist: self.twist.clone(),
            done: self.done.clone(),
            remaining: self.remaining.clone(),
            tokens: self.contexts.iter().map(Vec::len).collect(),
            steps: self.increments.iter().map(Vec::len).collect(),
            units: self.ends.iter().map(UnitEnds::counts).collect(),
        }
    }

    /// Returns to `mark`, after which nothing was resampled.
    pub(super) fn restore(&mut self, mark: Mark) {
        self.contexts.iter_mut().zip(mark.tokens).for_each(|(context, length)| context.truncate(length));
        self.increments.iter_mut().zip(mark.steps).for_each(|(column, length)| column.truncate(length));
        self.ends.iter_mut().zip(mark.units).for_each(|(ends, counts)| ends.truncate(&counts));
        self.base = mark.base;
        self.twist = mark.twist;
        self.done = mark.done;
        self.remaining = mark.remaining;
    }

    /// Replaces the particles by copies of `ancestors`, each of log-weight `log_weight`. The
    /// copied twist stays part of it.
    pub(super) fn select(&mut self, ancestors: &[usize], log_weight: f64) {
        self.twist = ancestors.iter().map(|a| self.twist[*a]).collect();
        self.base = self.twist.iter().map(|twist| log_weight - twist).collect();
        self.done = ancestors.iter().map(|a| self.done[*a]).collect();
        self.remaining = ancestors.iter().map(|a| self.remaining[*a]).collect();
        self.contexts = ancestors.iter().map(|a| self.contexts[*a].clone()).collect();
        self.ends = ancestors.iter().map(|a| self.ends[*a].clone()).collect();
        self.increments = ancestors.iter().map(|a| self.increments[*a].clone()).collect();
    }
}
