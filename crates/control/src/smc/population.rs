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

    /// The particle is impossible: it keeps its slot and is not stepped again.
    pub(super) fn kill(&mut self, i: usize) {
        self.base[i] = f64::NEG_INFINITY;
        self.done[i] = true;
    }

    pub(super) fn has_ended(&self, i: usize) -> bool {
        self.contexts[i].last().is_some_and(|token| token.is_eos())
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
    }
}
