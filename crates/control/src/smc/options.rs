//! Options of a run.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lockstep_sample::{DrawMethod, TokenId, UnknownDrawMethod};

use crate::canceller::Canceller;
use crate::error::ControlError;
use crate::potential::guarded;
use crate::resampling::Resampling;

/// A condition on a context that ends it there.
pub type TerminateWhen = Arc<dyn Fn(&[TokenId]) -> bool + Send + Sync>;

/// Whether `condition`, if there is one, ends `context`.
pub(super) fn is_ended(condition: Option<&TerminateWhen>, context: &[TokenId]) -> Result<bool, ControlError> {
    let Some(condition) = condition else { return Ok(false) };
    guarded("terminate_when", || Ok(condition(context)))
}

/// The draw method of options that name none, if it was set.
static DRAW_METHOD: Mutex<Option<DrawMethod>> = Mutex::new(None);

/// Sets the draw method that [`SmcOptions::default`] gives from now on, in the whole process. Options
/// made before keep theirs, and so do generating rows, which are no runs.
///
/// # Errors
/// If the name is none of [`DRAW_METHODS`](lockstep_sample::DRAW_METHODS), which the error lists.
pub fn set_draw_method(name: &str) -> Result<(), UnknownDrawMethod> {
    *DRAW_METHOD.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.parse()?);
    Ok(())
}

/// The draw method that [`SmcOptions::default`] gives: `gumbel_max` unless
/// [another one was set](set_draw_method).
#[must_use]
pub fn draw_method() -> DrawMethod {
    DRAW_METHOD.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
}

/// Options of one run.
#[derive(Clone)]
pub struct SmcOptions {
    /// Particles, at least 1. Default 16.
    pub n_particles: usize,
    /// Resample when the effective sample size is below this share of the particles; in [0, 1], 0
    /// never. Default 0.5.
    pub ess_threshold: f64,
    /// The longest sequence in tokens, or in units if the sampler draws those, its end included; at
    /// least 1. Default 64.
    pub max_tokens: usize,
    /// How ancestors are chosen.
    pub resampling: Resampling,
    /// Fixes all randomness; `None` takes one from the operating system.
    pub seed: Option<u64>,
    /// Tells replicates of one seed apart. Default 0.
    pub problem: u64,
    /// How tokens are drawn. Default [`draw_method()`].
    pub draw_method: DrawMethod,
    /// Ends a sequence once this holds of it, after each token or unit. It is part of the target.
    pub terminate_when: Option<TerminateWhen>,
    /// What ends the run from another thread, also while it waits for memory to start: then
    /// [`start`](crate::Smc::start) is an error of kind [`Cancelled`](crate::ErrorKind::Cancelled).
    /// Runs of one canceller end together. `None` gives the run
    /// [one of its own](crate::SmcRun::canceller).
    pub canceller: Option<Canceller>,
}

impl Default for SmcOptions {
    fn default() -> Self {
        Self {
            n_particles: 16,
            ess_threshold: 0.5,
            max_tokens: 64,
            resampling: Resampling::default(),
            seed: None,
            problem: 0,
            draw_method: draw_method(),
            terminate_when: None,
            canceller: None,
        }
    }
}

impl SmcOptions {
    pub(super) fn check(&self) -> Result<(), ControlError> {
        if self.n_particles < 1 {
            return Err(ControlError::argument("n_particles: must be at least 1"));
        }
        if u32::try_from(self.n_particles).is_err() {
            return Err(ControlError::argument("n_particles: must be below 2^32"));
        }
        if self.max_tokens < 1 {
            return Err(ControlError::argument("max_tokens: must be at least 1"));
        }
        if !(0.0..=1.0).contains(&self.ess_threshold) {
            return Err(ControlError::argument(format!(
                "ess_threshold: {} must lie between 0 and 1",
                self.ess_threshold
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for SmcOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmcOptions")
            .field("n_particles", &self.n_particles)
            .field("ess_threshold", &self.ess_threshold)
            .field("max_tokens", &self.max_tokens)
            .field("resampling", &self.resampling)
            .field("seed", &self.seed)
            .field("problem", &self.problem)
            .field("draw_method", &self.draw_method)
            .field("terminate_when", &self.terminate_when.is_some())
            .finish()
    }
}
