//! A run: what it holds, how it starts, and what can be asked of it. `step` is the population loop.

mod step;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::ProblemKey;

use super::conditional::Path;
use super::options::{SmcOptions, TerminateWhen};
use super::population::Population;
use super::recorder::Recorder;
use crate::canceller::Canceller;
use crate::chooser::Chooser;
use crate::error::{ControlError, ErrorKind};
use crate::potential::{Cursor, Demands, Potential, Run};
use crate::record::Record;
use crate::resampling::Resampling;
use crate::sampler::{SamplerCursor, TokenSampler};
use crate::sequences::{Origin, Sequences};
use crate::weights;

/// What one step did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// Its number, from 1.
    pub number: u32,
    /// Particles that are neither dead nor finished after it.
    pub live: usize,
    /// Tokens appended in it.
    pub tokens: usize,
    /// The effective sample size after it, before any resampling.
    pub ess: f64,
    /// The ancestors, if it ended in a resampling.
    pub ancestors: Option<Vec<usize>>,
}

/// A run of sequential Monte Carlo: an iterator of its steps. Dropping it ends it.
pub struct SmcRun {
    vocab: Arc<Vocabulary>,
    /// `None` once the run is over: it leaves its engines at once, whoever keeps its results.
    cursors: Option<Cursors>,
    canceller: Canceller,
    chooser: Box<dyn Chooser>,
    population: Population,
    ess_threshold: f64,
    resampling: Resampling,
    terminate_when: Option<TerminateWhen>,
    problem: ProblemKey,
    seed: u64,
    step: u32,
    n_resamples: usize,
    n_failed: usize,
    recorder: Option<Recorder>,
    /// What slot 0 is forced along.
    retained: Option<Path>,
    max_tokens: usize,
    finished: bool,
}

/// What a run holds of its sampler and its critic while it goes on.
struct Cursors {
    sampler: Box<dyn SamplerCursor>,
    critic: Option<Critic>,
    // Dropped last: the cursors above live in its engines.
    _run: Run,
}

struct Critic {
    cursor: Box<dyn Cursor>,
    /// Whether its provisional weights guide the resamplings. Otherwise it is called once for each
    /// sequence, at its end.
    twisting: bool,
}

impl SmcRun {
    pub(super) fn start(
        sampler: &dyn TokenSampler,
        critic: Option<&dyn Potential>,
        retained: Option<Path>,
        options: &SmcOptions,
        chooser: Box<dyn Chooser>,
    ) -> Result<Self, ControlError> {
        let n = options.n_particles;
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| {
                ControlError::argument(format!("seed: none was given and the system has none: {error}"))
            })?,
        };
        let mut demands = Demands::default();
        sampler.demand(n, options.max_tokens, &mut demands)?;
        if let Some(critic) = critic {
            critic.demand(n, options.max_tokens.saturating_mul(sampler.max_unit_tokens()), &mut demands)?;
        }
        let run = Run::reserve(demands)?;
        let mut cursor = sampler.open(n, &run)?;
        let critic = match critic {
            Some(critic) => Some(Critic {
                cursor: critic.open(n, &run)?,
                twisting: options.ess_threshold > 0.0 && !critic.claims().terminal_only,
            }),
            None => None,
        };
        let start_weight = weights::add(0.0, cursor.start_weight()?)?;
        if start_weight == f64::NEG_INFINITY {
            return Err(ControlError::new(ErrorKind::Contract, "start weight is -inf"));
        }
        Ok(Self {
            vocab: Arc::clone(sampler.vocab()),
            canceller: run.canceller().clone(),
            cursors: Some(Cursors { sampler: cursor, critic, _run: run }),
            chooser,
            population: Population::new(n, start_weight, options.max_tokens),
            ess_threshold: options.ess_threshold,
            resampling: options.resampling,
            terminate_when: options.terminate_when.clone(),
            problem: ProblemKey::new(seed, options.problem),
            seed,
            step: 0,
            n_resamples: 0,
            n_failed: 0,
            recorder: None,
            retained,
            max_tokens: options.max_tokens,
            finished: false,
        })
    }

    /// The same run, recorded: each step that follows goes to `record`, and an error there ends the
    /// run. It changes no result.
    #[must_use]
    pub fn with_record(mut self, record: impl Record + 'static) -> Self {
        let vocab = Arc::clone(&self.vocab);
        self.recorder = Some(Recorder::new(Box::new(record), vocab, self.population.len()));
        self
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// Whatever ends the run early.
    pub fn finish(mut self) -> Result<Sequences, ControlError> {
        for step in &mut self {
            step?;
        }
        Ok(self.sequences())
    }

    /// What ends the run from another thread: its rows leave the engines at the next tick, and the
    /// run ends with an error of kind [`Cancelled`](ErrorKind::Cancelled).
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The seed, given or taken.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The population after the last completed step; sequences that have not ended lack their EOS.
    #[must_use]
    pub fn sequences(&self) -> Sequences {
        Sequences::new(self.population.contexts.clone(), self.population.log_weights())
            .expect("a population's columns agree and hold no NaN")
            .with_seed(self.seed)
            .with_n_resamples(self.n_resamples)
            .with_n_failed(self.n_failed)
            .with_units(self.population.ends.clone())
            .with_origin(Origin {
                problem: self.problem,
                max_tokens: self.max_tokens,
                increments: self.population.increments.clone(),
            })
    }
}

impl Iterator for SmcRun {
    type Item = Result<Step, ControlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut cursors = self.cursors.take()?;
        let mark = self.population.mark();
        let step = self.advance_population(&mut cursors);
        if step.is_err() {
            self.population.restore(mark);
        } else if !self.finished {
            self.cursors = Some(cursors);
        }
        // Whatever else was the matter came of the cancellation.
        Some(step.map_err(|error| if self.canceller.is_cancelled() { cancelled() } else { error }))
    }
}

impl std::fmt::Debug for SmcRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SmcRun").field("seed", &self.seed).field("step", &self.step).finish_non_exhaustive()
    }
}

fn cancelled() -> ControlError {
    ControlError::new(ErrorKind::Cancelled, "the run was cancelled")
}
