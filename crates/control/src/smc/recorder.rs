//! What a run tells its record.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use crate::error::{ControlError, ErrorKind};
use crate::record::{Contents, Mode, ParticleRecord, Record, StepRecord, escape};

/// Turns states of a population into the steps of a record: each particle's increments over what
/// was recorded of its parent.
pub(super) struct Recorder {
    record: Box<dyn Record>,
    vocab: Arc<Vocabulary>,
    /// For each slot, how many tokens of its context are recorded, and its recorded weight.
    recorded: Vec<(usize, f64)>,
    ancestors: Option<Vec<usize>>,
    begun: bool,
}

impl Recorder {
    pub(super) fn new(record: Box<dyn Record>, vocab: Arc<Vocabulary>, n: usize) -> Self {
        Self { record, vocab, recorded: vec![(0, 0.0); n], ancestors: None, begun: false }
    }

    /// Writes the state after step `number`.
    pub(super) fn step(
        &mut self,
        number: u32,
        contexts: &[Vec<TokenId>],
        log_weights: &[f64],
    ) -> Result<(), ControlError> {
        let ancestors = self.ancestors.take();
        let mode = match ancestors {
            _ if !self.begun => Mode::Init,
            Some(_) => Mode::Resample,
            None => Mode::SmcStep,
        };
        let mut step = StepRecord { step: number, mode, ancestors, particles: Vec::new() };
        for (i, (context, weight)) in contexts.iter().zip(log_weights).enumerate() {
            let (length, before) = self.recorded[step.parent(i)];
            // Both may be -inf, whose difference is NaN.
            let increment = if *weight == before { 0.0 } else { weight - before };
            step.particles.push(ParticleRecord {
                contents: Contents::Increment(escape(&context[length..], &self.vocab)),
                logweight: *weight,
                weight_incr: increment,
            });
        }
        self.recorded =
            contexts.iter().zip(log_weights).map(|(context, weight)| (context.len(), *weight)).collect();
        self.begun = true;
        self.record
            .write(&step)
            .map_err(|error| ControlError::new(ErrorKind::Record, format!("record: {error}")))
    }

    /// Notes a resampling; the next step carries it.
    pub(super) fn resampled(&mut self, ancestors: &[usize]) {
        self.ancestors = Some(ancestors.to_vec());
    }
}
