//! The ways of drawing from a target, and how good a number of runs of one of them is.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::control::{
    Awrs, AwrsOptions, Direct, Potential, Product, Resampling, Sequences, Smc, SmcOptions, TokenSampler,
    weights,
};
use lockstep::engine::TokenId;
use serde_json::{Value, json};

use super::counted::Counted;
use crate::error::CliError;

/// A way of making runs, and the ways of reading its populations.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) readings: &'static [Reading],
    sampler: Sampler,
    /// Resample below this share of the particles.
    ess_threshold: f64,
    resampling: Resampling,
}

/// A way of reading a population.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) name: &'static str,
    /// Whether weights are looked at.
    pub(super) weighted: bool,
}

#[derive(Debug)]
enum Sampler {
    /// From the masked row.
    Direct,
    /// By rejection, with so many further probes after the first acceptance.
    Awrs(u32),
}

const fn smc(readings: &'static [Reading], sampler: Sampler, resampling: Resampling) -> Plan {
    Plan { readings, sampler, ess_threshold: 0.5, resampling }
}

macro_rules! weighted {
    ($name:literal) => {
        &[Reading { name: $name, weighted: true }]
    };
}

/// All ways. Masking token by token and importance sampling make the same runs: the one takes the
/// particles as they come, the other weighs them.
pub(super) const PLANS: [Plan; 8] = [
    Plan {
        readings: &[
            Reading { name: "local masking", weighted: false },
            Reading { name: "importance sampling", weighted: true },
        ],
        sampler: Sampler::Direct,
        ess_threshold: 0.0,
        resampling: Resampling::Multinomial,
    },
    smc(weighted!("SMC, multinomial"), Sampler::Direct, Resampling::Multinomial),
    smc(weighted!("SMC, stratified"), Sampler::Direct, Resampling::Stratified),
    smc(weighted!("SMC, systematic"), Sampler::Direct, Resampling::Systematic),
    smc(weighted!("SMC, residual"), Sampler::Direct, Resampling::Residual),
    smc(weighted!("SMC, AWRS K=1"), Sampler::Awrs(1), Resampling::Multinomial),
    smc(weighted!("SMC, AWRS K=2"), Sampler::Awrs(2), Resampling::Multinomial),
    smc(weighted!("SMC, AWRS K=3"), Sampler::Awrs(3), Resampling::Multinomial),
];

/// The names of all ways of reading, in the order of the tables.
pub(super) fn names() -> Vec<&'static str> {
    PLANS.iter().flat_map(|plan| plan.readings).map(|reading| reading.name).collect()
}

/// What is drawn from: a model under a boolean condition, reweighted by a critic.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) model: Arc<dyn Potential>,
    pub(super) condition: Arc<dyn Potential>,
    pub(super) critic: Option<Arc<dyn Potential>>,
    pub(super) max_tokens: usize,
}

/// One run.
pub(super) struct Outcome {
    pub(super) sequences: Sequences,
    pub(super) steps: usize,
    pub(super) tokens: usize,
    /// What was asked of the condition: whole rows and single tokens.
    pub(super) masks: u64,
    pub(super) probes: u64,
}

impl Plan {
    /// The number of the replicate is the problem number; the seed is always the same.
    pub(super) fn run(
        &self,
        target: &Target,
        n_particles: usize,
        replicate: u64,
    ) -> Result<Outcome, CliError> {
        let condition = Counted::new(Arc::clone(&target.condition));
        let counts = condition.counts();
        let (model, condition) = (Arc::clone(&target.model), Arc::new(condition));
        let sampler: Arc<dyn TokenSampler> = match self.sampler {
            Sampler::Direct => Arc::new(Direct::new(Arc::new(Product::new(model, condition)?))),
            Sampler::Awrs(k) => {
                let options = AwrsOptions { max_accepts: k + 1, ..AwrsOptions::default() };
                Arc::new(Awrs::new(model, condition, options)?)
            }
        };
        let options = SmcOptions {
            n_particles,
            ess_threshold: self.ess_threshold,
            max_tokens: target.max_tokens,
            resampling: self.resampling,
            seed: Some(1),
            problem: replicate,
            ..SmcOptions::default()
        };
        let mut run = Smc::new(sampler, target.critic.clone())?.start(&options)?;
        let (mut steps, mut tokens) = (0, 0);
        for step in &mut run {
            steps += 1;
            tokens += step?.tokens;
        }
        let (masks, probes) = (counts.masks(), counts.probes());
        Ok(Outcome { sequences: run.sequences(), steps, tokens, masks, probes })
    }
}

/// Probabilities of the values of a statistic of a text.
pub(super) type Distribution = BTreeMap<String, f64>;

/// What a target's mass and distribution are, or are taken to be.
pub(super) struct Truth {
    pub(super) log_z: f64,
    pub(super) distribution: Distribution,
}

/// How good a number of runs is.
#[derive(Clone, Debug)]
pub(super) struct Score {
    pub(super) method: &'static str,
    pub(super) particles: usize,
    /// Root of the mean squared error of `log_ml`, in nats; only of weighted readings.
    pub(super) log_ml_error: Option<f64>,
    /// Mean squared error of the mass itself, over its square; only of weighted readings.
    pub(super) mass_variance: Option<f64>,
    /// Variance of the final weights over their squared mean; only of weighted readings.
    pub(super) weight_variance: Option<f64>,
    /// Mean distance in total variation from the true distribution of the statistic.
    pub(super) distance: f64,
    /// Steps of a run: forwards, if it is alone.
    pub(super) steps: f64,
    /// Tokens drawn in a run: rows of the model, if no two particles share one.
    pub(super) tokens: f64,
    /// Rows of a run that the condition was asked about as a whole.
    pub(super) masks: f64,
    /// Single tokens of a run that the condition was asked about.
    pub(super) probes: f64,
}

impl Score {
    /// The score of `outcomes`, read as `reading` says; `statistic` maps a context to a value.
    pub(super) fn new(
        reading: &Reading,
        truth: &Truth,
        outcomes: &[Outcome],
        statistic: &dyn Fn(&[TokenId]) -> String,
    ) -> Self {
        let runs = outcomes.len() as f64;
        let mean = |value: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / runs;
        let weighted = |value: f64| reading.weighted.then_some(value);
        let error = |outcome: &Outcome| outcome.sequences.log_ml() - truth.log_z;
        Self {
            method: reading.name,
            particles: outcomes.first().map_or(0, |outcome| outcome.sequences.len()),
            log_ml_error: weighted(mean(&|outcome| error(outcome).powi(2)).sqrt()),
            mass_variance: weighted(mean(&|outcome| (error(outcome).exp() - 1.0).powi(2))),
            weight_variance: weighted(mean(&|outcome| {
                outcome.sequences.len() as f64 / outcome.sequences.ess() - 1.0
            })),
            distance: mean(&|outcome| {
                let found = distribution([&outcome.sequences], reading.weighted, statistic);
                distance(&found, &truth.distribution)
            }),
            steps: mean(&|outcome| outcome.steps as f64),
            tokens: mean(&|outcome| outcome.tokens as f64),
            masks: mean(&|outcome| outcome.masks as f64),
            probes: mean(&|outcome| outcome.probes as f64),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "method": self.method,
            "particles": self.particles,
            "log_ml_error": self.log_ml_error,
            "mass_variance": self.mass_variance,
            "weight_variance": self.weight_variance,
            "distance": self.distance,
            "steps": self.steps,
            "tokens": self.tokens,
            "masks": self.masks,
            "probes": self.probes,
        })
    }
}

/// The distribution of a statistic in populations together, each by its estimate of the mass.
pub(super) fn distribution<'a>(
    populations: impl IntoIterator<Item = &'a Sequences>,
    weighted: bool,
    statistic: &dyn Fn(&[TokenId]) -> String,
) -> Distribution {
    let particles: Vec<(&[TokenId], f64)> = populations
        .into_iter()
        .flat_map(Sequences::iter)
        .map(|(context, weight)| {
            let alive = weight > f64::NEG_INFINITY;
            (context, if weighted || !alive { weight } else { 0.0 })
        })
        .collect();
    let log_weights: Vec<f64> = particles.iter().map(|(_, weight)| *weight).collect();
    let mut distribution = Distribution::new();
    for ((context, _), probability) in particles.iter().zip(weights::normalized(&log_weights)) {
        *distribution.entry(statistic(context)).or_default() += probability;
    }
    distribution
}

/// Distance in total variation.
pub(super) fn distance(a: &Distribution, b: &Distribution) -> f64 {
    let in_a: f64 = a.iter().map(|(value, p)| (p - b.get(value).unwrap_or(&0.0)).abs()).sum();
    let only_b: f64 = b.iter().filter(|(value, _)| !a.contains_key(*value)).map(|(_, p)| p).sum();
    (in_a + only_b) / 2.0
}
