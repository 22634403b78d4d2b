//! Potentials, token samplers and sequential Monte Carlo: the probabilistic programme.

mod cache;
pub mod chooser;
mod constrained;
mod error;
mod estimator;
pub mod potential;
pub mod resampling;
pub mod sampler;
mod sequences;
pub mod smc;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod weights;

pub use chooser::{Chooser, Keyed};
pub use constrained::constraint;
pub use error::{ControlError, ErrorKind};
pub use estimator::{FirstAccepted, Outcome, Progress, RecursiveWalk};
pub use potential::{BeamParams, ByteLlm, CanonicalTokenization, Harmony, ParticleState, Stateful};
pub use potential::{BoolFsa, Coerced, Potential, Product, PromptedLlm, Wfsa};
pub use potential::{Ensemble, EnsembleOp, Normalized, PotentialExt, Tempered};
pub use resampling::{RESAMPLING_METHODS, Resampling};
pub use sampler::{Awrs, AwrsOptions, Direct, TokenSampler};
pub use sequences::{Sequences, SequencesError};
pub use smc::{Smc, SmcOptions, SmcRun, Step};
