//! Unbiased weights for rejection sampling: the walks of AWRS.
//!
//! Candidates come one at a time, drawn without replacement by their probabilities `p`, and each is
//! accepted or rejected by a condition. A walk owns neither the order nor the condition: the caller
//! offers candidates in the order of the draw, with the condition's answers, until the walk is
//! done. What a walk does next never depends on an answer it has not been offered, so answers may be
//! fetched ahead, in batches of any size, without changing the result.
//!
//! - [`RecursiveWalk`], RAWRS-K: one order, and every probe after the first acceptance betters the
//!   weight.
//! - [`GeometricWalk`], GAWRS: the run of a sampler with replacement, rebuilt from orders without.
//! - [`FirstAccepted`]: no weight, the first accepted candidate. It is improper.
//!
//! Invariant of the first two: `E[s · 1{tok = t}] = p_t` for every accepted `t`, whatever their
//! limits; `s = 0` iff the returned token is rejected.

mod first;
mod geometric;
mod recursive;
mod remaining;

pub use first::FirstAccepted;
pub use geometric::GeometricWalk;
pub use recursive::RecursiveWalk;

/// Whether a walk wants another candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Offer the next candidate, if there is one.
    Continue,
    /// Offer the candidates that are not rejected yet, in a fresh order.
    Restart,
    /// The outcome is fixed; candidates fetched ahead are not offered.
    Done,
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The first accepted candidate, else a rejected one: the last, under [`GeometricWalk`] the first.
    /// `None` if none was offered.
    pub index: Option<usize>,
    /// `ln s` in nats: the log-weight relative to the row's mass. `-inf` iff `index` is not an
    /// accepted candidate.
    pub log_s: f64,
}

#[cfg(test)]
mod tests;
