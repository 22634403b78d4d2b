//! Potentials, token samplers and sequential Monte Carlo: the probabilistic programme.

mod cache;
mod canceller;
pub mod chooser;
mod constrained;
mod error;
mod estimator;
pub mod potential;
pub mod record;
pub mod resampling;
mod retained;
pub mod sampler;
mod sequences;
mod show;
pub mod smc;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod units;
pub mod weights;

pub use canceller::{Canceller, OnCancel};
pub use chooser::{Chooser, DrawFn, Keyed};
pub use constrained::constraint;
pub use error::{ControlError, ErrorKind};
pub use estimator::{FirstAccepted, GeometricWalk, Outcome, Progress, RecursiveWalk};
pub use potential::{BeamParams, ByteLlm, CanonicalTokenization, Harmony, ParticleState, Stateful};
pub use potential::{BoolFsa, Coerced, Potential, Product, PromptedLlm, Wfsa};
pub use potential::{Ensemble, EnsembleOp, Normalized, PotentialExt, Tempered};
pub use record::{JsonLinesRecord, JsonRecord, MemoryRecord, Record, Recording};
pub use resampling::{RESAMPLING_METHODS, Resampling};
pub use retained::Retained;
pub use sampler::{Awrs, AwrsOptions, Direct, ESTIMATORS, Estimator, TokenSampler, draw_from};
pub use sampler::{Boundary, MultiTokenUnitSampler};
pub use sampler::{EagerSetSampler, SetSampler, SetTokenSampler, TopKSetSampler};
pub use sequences::{Sequences, SequencesError};
pub use smc::{Smc, SmcOptions, SmcRun, Step, draw_method, set_draw_method};
pub use units::{Nested, Unit, UnitEnds, flatten_units};

/// The page on samplers, whose example is compiled and run with the other ones.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/samplers.md")]
struct SamplersPage;
