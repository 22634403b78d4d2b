//! The weighted sequences that a run returns, and the distribution they stand for.
//!
//! N particles with log-weights `w` estimate an unnormalised target: [`Sequences::log_ml`]
//! `= LSE(w) − ln N` is the log of an unbiased estimate of its mass, and
//! [`Sequences::posterior`] gives sequence `x` the probability `Σ exp(w_i) [x_i = x] / Σ exp(w_i)`.
//! Probabilities come from weights shifted by their maximum, so log-weights of any size work, and
//! a population without weight gives zeros and empty distributions, never NaN. Equal
//! probabilities keep the order of the particles.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;

use lockstep_sample::{DrawKey, POPULATION, ProblemKey, TokenId, math};

use crate::resampling::Cumulative;
use crate::retained::Retained;
use crate::units::{Nested, UnitEnds};
use crate::weights;

/// N token sequences with log-weights (nats). A finished sequence ends in [`TokenId::EOS`], which
/// occurs nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequences {
    contexts: Vec<Vec<TokenId>>,
    log_weights: Vec<f64>,
    /// How each context groups into units; empty if none does.
    ends: Vec<UnitEnds>,
    seed: Option<u64>,
    n_resamples: usize,
    n_failed: usize,
    /// If a run made this population.
    origin: Option<Origin>,
}

/// What is left of the run that made a population.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) problem: ProblemKey,
    /// The most steps that there could be.
    pub(crate) max_tokens: usize,
    /// For each particle the sampler's log-weight of each step.
    pub(crate) increments: Vec<Vec<f64>>,
}

/// Contexts and log-weights that make no population.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequencesError {
    /// The two columns differ in length.
    #[error("contexts and log_weights must have one entry per particle, not {contexts} and {log_weights}")]
    Lengths {
        /// Entries of `contexts`.
        contexts: usize,
        /// Entries of `log_weights`.
        log_weights: usize,
    },
    /// A log-weight is NaN or `+inf`.
    #[error("log_weights[{index}] is NaN or +inf: a weight is finite, or -inf if impossible")]
    Weight {
        /// The first such particle.
        index: usize,
    },
    /// A particle is no path that a conditional run could retain.
    #[error("particle {index} cannot be retained: {reason}")]
    Retained {
        /// The particle.
        index: usize,
        /// What is the matter with it.
        reason: &'static str,
    },
}

impl Sequences {
    /// Particle `i` is `contexts[i]` with `log_weights[i]`, in nats; `-inf` is a dead particle.
    ///
    /// # Errors
    /// If the lengths differ, or a log-weight is NaN or `+inf`.
    pub fn new(contexts: Vec<Vec<TokenId>>, log_weights: Vec<f64>) -> Result<Self, SequencesError> {
        if contexts.len() != log_weights.len() {
            return Err(SequencesError::Lengths { contexts: contexts.len(), log_weights: log_weights.len() });
        }
        if let Some(index) = log_weights.iter().position(|w| w.is_nan() || *w == f64::INFINITY) {
            return Err(SequencesError::Weight { index });
        }
        Ok(Self {
            contexts,
            log_weights,
            ends: Vec::new(),
            seed: None,
            n_resamples: 0,
            n_failed: 0,
            origin: None,
        })
    }

    /// Notes how each context groups into units.
    pub(crate) fn with_units(mut self, ends: Vec<UnitEnds>) -> Self {
        if ends.iter().any(|ends| ends.depth() > 0) {
            self.ends = ends;
        }
        self
    }

    /// Notes the seed that the run used.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Notes how many times the run resampled.
    #[must_use]
    pub fn with_n_resamples(mut self, n_resamples: usize) -> Self {
        self.n_resamples = n_resamples;
        self
    }

    /// Notes how many particles the run lost to recoverable errors.
    #[must_use]
    pub fn with_n_failed(mut self, n_failed: usize) -> Self {
        self.n_failed = n_failed;
        self
    }

    /// Notes the run.
    pub(crate) fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Particle `index` as a path that a [conditional run](crate::Smc::conditional) can retain, with
    /// the increments that it was drawn with if a run made this population.
    ///
    /// # Errors
    /// If there is no such particle, or it is dead or has not ended.
    pub fn retained(&self, index: usize) -> Result<Retained, SequencesError> {
        let refusal = |reason| SequencesError::Retained { index, reason };
        let (context, weight) = self.get(index).ok_or(refusal("there is no such particle"))?;
        if weight == f64::NEG_INFINITY {
            return Err(refusal("its weight is -inf"));
        }
        if context.last() != Some(&TokenId::EOS) {
            return Err(refusal("it has not ended"));
        }
        let ends = self.ends.get(index).cloned().unwrap_or_default();
        let path = Retained::new(context.to_vec()).with_units(ends);
        Ok(match &self.origin {
            None => path,
            Some(Origin { increments, max_tokens, .. }) => {
                let increments = increments[index].clone();
                let limit = (increments.len() == *max_tokens).then_some(*max_tokens);
                path.with_increments(increments).with_limit(limit)
            }
        })
    }

    /// The seed of the run: a rerun with it is identical. `None` if no run made this population.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// How many times the run resampled; 0 by default.
    #[must_use]
    pub fn n_resamples(&self) -> usize {
        self.n_resamples
    }

    /// How many particles the run lost to recoverable errors; 0 by default. A particle that only
    /// reached a dead end does not count.
    #[must_use]
    pub fn n_failed(&self) -> usize {
        self.n_failed
    }

    /// N, the number of particles, dead ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// N under the name that the literature gives it; the same as [`Self::len`].
    #[must_use]
    pub fn size(&self) -> usize {
        self.len()
    }

    /// Whether there is no particle at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The context and the log-weight of particle `i`, if there is one.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<(&[TokenId], f64)> {
        Some((self.contexts.get(i)?, self.log_weights[i]))
    }

    /// The particles in order: context and log-weight.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[TokenId], f64)> + '_ {
        self.contexts.iter().map(Vec::as_slice).zip(self.log_weights.iter().copied())
    }

    /// `[N]` contexts, in particle order.
    #[must_use]
    pub fn contexts(&self) -> &[Vec<TokenId>] {
        &self.contexts
    }

    /// `[N]` log-weights in nats, in particle order.
    #[must_use]
    pub fn log_weights(&self) -> &[f64] {
        &self.log_weights
    }

    /// `LSE(w)` in nats; `-inf` without weight.
    #[must_use]
    pub fn log_total(&self) -> f64 {
        weights::log_total(&self.log_weights)
    }

    /// The log-marginal estimate `LSE(w) − ln N` in nats; `-inf` without weight.
    #[must_use]
    pub fn log_ml(&self) -> f64 {
        weights::log_mean(&self.log_weights)
    }

    /// `[N]` logs of the normalised weights, in nats; all `-inf` without weight.
    #[must_use]
    pub fn log_normalized_weights(&self) -> Vec<f64> {
        weights::log_normalized(&self.log_weights)
    }

    /// `[N]` weights that sum to 1; all 0 without weight.
    #[must_use]
    pub fn normalized_weights(&self) -> Vec<f64> {
        weights::normalized(&self.log_weights)
    }

    /// The log of [`Self::ess`]; `-inf` without weight.
    #[must_use]
    pub fn log_ess(&self) -> f64 {
        let ess = self.ess();
        if ess == 0.0 { f64::NEG_INFINITY } else { math::ln(ess) }
    }

    /// The effective sample size `(Σu)² / Σu²`, between 1 and N; 0 without weight.
    #[must_use]
    pub fn ess(&self) -> f64 {
        weights::ess(&self.log_weights)
    }

    /// The distinct contexts of live particles with their probabilities, most probable first;
    /// empty without weight.
    #[must_use]
    pub fn posterior(&self) -> Vec<(Vec<TokenId>, f64)> {
        distribution(self.live().map(|(context, weight)| (context.to_vec(), weight)).collect())
    }

    /// Context `i` as it groups into units: tokens by themselves if the sampler drew no units.
    ///
    /// # Panics
    /// If there is no particle `i`.
    #[must_use]
    pub fn nested(&self, i: usize) -> Vec<Nested> {
        let context = &self.contexts[i];
        self.ends.get(i).map_or_else(|| UnitEnds::none().nest(context), |ends| ends.nest(context))
    }

    /// As [`Self::posterior`], of nested contexts: equal tokens in different units are told apart.
    #[must_use]
    pub fn nested_posterior(&self) -> Vec<(Vec<Nested>, f64)> {
        let live = self.log_weights.iter().enumerate().filter(|(_, weight)| **weight > f64::NEG_INFINITY);
        distribution(live.map(|(i, weight)| (self.nested(i), *weight)).collect())
    }

    /// The distinct texts of live, finished particles with their probabilities among those, most
    /// probable first; empty if there are none. `bytes` gives the bytes of a token; a particle
    /// whose bytes are not UTF-8 is left out, and contexts of equal text are one text.
    #[must_use]
    pub fn decoded_posterior<'a>(&self, bytes: impl Fn(TokenId) -> &'a [u8]) -> Vec<(String, f64)> {
        let text = |context: &[TokenId]| {
            let tokens = context.strip_suffix(&[TokenId::EOS])?;
            String::from_utf8(tokens.iter().flat_map(|&token| bytes(token)).copied().collect()).ok()
        };
        distribution(self.live().filter_map(|(context, weight)| Some((text(context)?, weight))).collect())
    }

    /// The key of a run's picks from its population, for [`Self::sample`]; `None` if no run made
    /// this population.
    #[must_use]
    pub fn pick_key(&self) -> Option<DrawKey> {
        self.origin.as_ref().map(|origin| DrawKey::new(origin.problem, POPULATION, 0, 1))
    }

    /// `k` independent picks, with replacement, by normalised weight: particle numbers in the
    /// order of the picks. Pick `i` takes the uniform at position `i` of `key`. Empty without
    /// weight, since nothing can be picked.
    ///
    /// # Panics
    /// If `k` is above 2³², the positions of a draw.
    #[must_use]
    pub fn sample(&self, k: usize, key: &DrawKey) -> Vec<usize> {
        if self.live().next().is_none() {
            return Vec::new();
        }
        Cumulative::new(&weights::shifted(&self.log_weights)).picks(k, &mut |i| key.uniform(i))
    }

    fn live(&self) -> impl Iterator<Item = (&[TokenId], f64)> {
        self.iter().filter(|&(_, weight)| weight > f64::NEG_INFINITY)
    }
}

/// The probability of each distinct outcome among `weighted` (outcome, log-weight), descending;
/// ties keep the order of first occurrence.
fn distribution<T: Clone + Eq + Hash>(weighted: Vec<(T, f64)>) -> Vec<(T, f64)> {
    let (outcomes, log_weights): (Vec<T>, Vec<f64>) = weighted.into_iter().unzip();
    let mut distinct: Vec<(T, f64)> = Vec::new();
    let mut places: HashMap<T, usize> = HashMap::new();
    for (outcome, probability) in outcomes.into_iter().zip(weights::normalized(&log_weights)) {
        if let Some(&place) = places.get(&outcome) {
            distinct[place].1 += probability;
        } else {
            places.insert(outcome.clone(), distinct.len());
            distinct.push((outcome, probability));
        }
    }
    distinct.sort_by(|a, b| b.1.total_cmp(&a.1));
    distinct
}
