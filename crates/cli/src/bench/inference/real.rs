//! A real model under patterns. The truth is what long runs estimate, with their own error.

use std::sync::{Arc, Barrier};

use lockstep::control::{BoolFsa, Coerced, PromptedLlm, Sequences, weights};
use lockstep::engine::TokenId;
use lockstep::model::Loaded;

use super::plan::{Outcome, PLANS, Plan, Score, Target, Truth, distance, distribution};
use crate::error::CliError;

/// Numbers of particles.
pub(super) const PARTICLES: [usize; 3] = [4, 8, 32];

/// Particles and number of the runs that the truth is taken from.
const REFERENCE: (usize, u64) = (128, 8);

/// Problem numbers of those runs start here, so that they share nothing with what they judge.
const REFERENCE_PROBLEMS: u64 = 1 << 32;

/// A pattern on a prompt.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    prompt: &'static str,
    pattern: &'static str,
    /// How the truth is found.
    reference: &'static Plan,
    /// What the statistic of a text is.
    pub(super) about: &'static str,
    statistic: fn(&str) -> String,
}

/// The patterns.
pub(super) const CASES: [Case; 3] = [
    Case {
        name: "date",
        prompt: "The Apollo 11 moon landing happened on this date (YYYY-MM-DD):",
        pattern: " (19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
        reference: &PLANS[3],
        about: "the year",
        statistic: |text| text.chars().take(5).collect(),
    },
    Case {
        name: "email",
        prompt: "You can write to our support team at this email address:",
        pattern: r" [a-z0-9._]{1,20}@[a-z0-9]{1,15}\.(com|org|net|edu)",
        // Resampling misleads here: see the page.
        reference: &PLANS[0],
        about: "the name before the @",
        statistic: |text| text.split('@').next().unwrap_or_default().to_owned(),
    },
    Case {
        name: "person",
        prompt: "Write a person as JSON with name, age and city.\nJSON:",
        pattern: r#" \{"name": "[A-Za-z ]{1,20}", "age": [0-9]{1,3}, "city": "[A-Za-z ]{1,20}"\}"#,
        reference: &PLANS[3],
        about: "the age",
        statistic: |text| {
            text.split("\"age\": ")
                .nth(1)
                .unwrap_or_default()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect()
        },
    },
];

/// What a case gave.
pub(super) struct Findings {
    pub(super) truth: Truth,
    /// Standard error of `truth.log_z`, in nats.
    pub(super) log_z_error: f64,
    /// Distance in total variation of the two halves of the reference: the distance that is noise.
    pub(super) distance_floor: f64,
    pub(super) scores: Vec<Score>,
}

impl Case {
    /// The way that the truth is found in.
    pub(super) fn reference(&self) -> &'static str {
        self.reference.readings.last().map_or("", |reading| reading.name)
    }

    pub(super) fn measure(&self, model: &Loaded, replicates: u64) -> Result<Findings, CliError> {
        let vocab = model.tokenizer.vocabulary();
        let prompt = model.tokenizer.encode(self.prompt, false)?;
        let fsa = BoolFsa::from_regex(self.pattern).map_err(CliError::failed)?;
        let target = Target {
            model: Arc::new(PromptedLlm::new(model.engine.clone(), Arc::clone(vocab), &prompt)?),
            condition: Arc::new(Coerced::new(Arc::new(fsa), Arc::clone(vocab))?),
            critic: None,
            max_tokens: 40,
        };
        let statistic = |context: &[TokenId]| {
            let tokens: Vec<TokenId> = context.iter().copied().filter(|token| !token.is_eos()).collect();
            (self.statistic)(&String::from_utf8_lossy(&model.tokenizer.decode_with_special(&tokens)))
        };

        let (n, runs) = REFERENCE;
        let jobs = (0..runs).map(|run| (n, REFERENCE_PROBLEMS + run)).collect();
        let reference: Vec<Sequences> =
            together(self.reference, &target, jobs)?.into_iter().map(|outcome| outcome.sequences).collect();
        let log_mls: Vec<f64> = reference.iter().map(Sequences::log_ml).collect();
        let half = reference.len() / 2;
        let halves =
            [&reference[..half], &reference[half..]].map(|half| distribution(half, true, &statistic));
        let truth = Truth {
            log_z: weights::log_mean(&log_mls),
            distribution: distribution(&reference, true, &statistic),
        };
        // The relative error of a mean of the masses is the error of its logarithm.
        let log_z_error = ((runs as f64 / weights::ess(&log_mls) - 1.0) / (runs as f64 - 1.0)).sqrt();

        let mut scores = Vec::new();
        for plan in &PLANS {
            let jobs = PARTICLES.iter().flat_map(|n| (0..replicates).map(|run| (*n, run))).collect();
            let mut outcomes = together(plan, &target, jobs)?;
            for n in PARTICLES {
                let rest = outcomes.split_off(usize::try_from(replicates).unwrap_or(usize::MAX));
                debug_assert!(outcomes.iter().all(|outcome| outcome.sequences.len() == n));
                let readings = plan.readings.iter();
                scores.extend(readings.map(|reading| Score::new(reading, &truth, &outcomes, &statistic)));
                outcomes = rest;
            }
        }
        Ok(Findings { truth, log_z_error, distance_floor: distance(&halves[0], &halves[1]), scores })
    }
}

/// Makes runs of (particles, replicate) in shared forwards.
fn together(plan: &Plan, target: &Target, jobs: Vec<(usize, u64)>) -> Result<Vec<Outcome>, CliError> {
    let begin = Barrier::new(jobs.len());
    std::thread::scope(|scope| {
        let run = |(n, replicate): (usize, u64)| {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                plan.run(target, n, replicate)
            })
        };
        let threads: Vec<_> = jobs.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a run does not panic")).collect()
    })
}
