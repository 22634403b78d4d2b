//! Where a unit ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use crate::error::ControlError;
use crate::potential::{Potential, RowResult};
use crate::units::{Unit, UnitEnds};

/// A unit on its way, after a subunit was appended.
#[derive(Clone, Copy, Debug)]
pub struct UnitSoFar<'a> {
    /// The flat tokens of the units before it, and how they group.
    pub context: (&'a [TokenId], &'a UnitEnds),
    /// The subunits drawn so far, the new one last. Never ends in EOS inside a sampler: EOS ends a
    /// unit by itself.
    pub buffer: &'a Unit,
    /// The flat tokens of the last subunit.
    pub last: &'a [TokenId],
    /// The unit's log-weight so far (nats).
    pub logw: f64,
    /// By how much the log-weight of [`Boundary::critic`] has changed over the buffer; 0 without one.
    pub critic: f64,
    /// What the tokens mean.
    pub vocab: &'a Vocabulary,
}

/// Decides where units end. A pure function of what it is shown.
pub trait Boundary: Send + Sync {
    /// Whether the unit ends here.
    ///
    /// # Errors
    /// Whatever keeps it from telling; the row fails with it.
    fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool>;

    /// What a unit whose boundary is met is stored as; by default all of it.
    ///
    /// Dropping tokens changes the target: the potentials have weighed the tokens as they were drawn.
    /// A conditional run, which has only what is stored, cannot weigh such a path rightly.
    fn finalize_unit(&self, unit: Unit) -> Unit {
        unit
    }

    /// A potential whose change over the buffer [`Self::is_met`] looks at. It is carried along, and
    /// must read the sampler's tokens.
    fn critic(&self) -> Option<&Arc<dyn Potential>> {
        None
    }
}

/// Met after a subunit whose bytes are listed, such as a space or a full stop.
#[derive(Clone, Debug)]
pub struct TokenSetBoundary {
    texts: BTreeSet<Vec<u8>>,
    with_eos: bool,
}

impl TokenSetBoundary {
    /// Ends units after these bytes.
    #[must_use]
    pub fn new<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self { texts: texts.into_iter().map(|text| text.as_ref().to_vec()).collect(), with_eos: false }
    }

    /// Ends units after the bytes of these tokens of `vocab`, and after EOS if that is among them.
    #[must_use]
    pub fn of_tokens(vocab: &Vocabulary, tokens: &[TokenId]) -> Self {
        let texts = tokens.iter().filter(|token| !token.is_eos()).map(|token| vocab.bytes_of(*token));
        Self { with_eos: tokens.iter().any(|token| token.is_eos()), ..Self::new(texts) }
    }

    /// Lists EOS too.
    #[must_use]
    pub fn with_eos(self) -> Self {
        Self { with_eos: true, ..self }
    }
}

impl Boundary for TokenSetBoundary {
    fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool> {
        if so_far.last.iter().any(|token| token.is_eos()) {
            return Ok(self.with_eos);
        }
        let bytes: Vec<u8> =
            so_far.last.iter().flat_map(|token| so_far.vocab.bytes_of(*token)).copied().collect();
        Ok(self.texts.contains(&bytes))
    }
}

/// Met after a number of subunits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLengthBoundary(usize);

impl FixedLengthBoundary {
    /// Ends units after `n` subunits.
    ///
    /// # Errors
    /// If `n` is 0.
    pub fn new(n: usize) -> Result<Self, ControlError> {
        if n == 0 {
            return Err(ControlError::argument("n: 0 must be at least 1 subunit"));
        }
        Ok(Self(n))
    }
}

impl Boundary for FixedLengthBoundary {
    fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool> {
        Ok(so_far.buffer.len() >= self.0)
    }
}

/// How few and how many subunits a unit may have, whatever else its boundary says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLength {
    /// The boundary is not met before. Default 1.
    pub min: usize,
    /// The boundary is met here at the latest. Default 50.
    pub max: usize,
}

impl Default for UnitLength {
    fn default() -> Self {
        Self { min: 1, max: 50 }
    }
}

impl UnitLength {
    fn check(self) -> Result<Self, ControlError> {
        if self.max < self.min.max(1) {
            return Err(ControlError::argument(format!(
                "length: max {} must be at least 1 and at least min {}",
                self.max, self.min
            )));
        }
        Ok(self)
    }

    /// What the length alone decides.
    fn decides(self, buffer: &Unit) -> Option<bool> {
        let len = buffer.len();
        if len >= self.max { Some(true) } else { (len < self.min).then_some(false) }
    }
}

/// Which way a log-weight must move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sign {
    /// Either way.
    #[default]
    Abs,
    /// Down.
    Down,
    /// Up.
    Up,
}

/// Met once the unit's running log-weight has moved by a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurpriseBoundary {
    threshold: f64,
    length: UnitLength,
    sign: Sign,
}

impl SurpriseBoundary {
    /// The default threshold, in nats.
    pub const THRESHOLD: f64 = 1.5;

    /// Ends units when the log-weight has moved by `threshold` nats the way that `sign` says.
    ///
    /// # Errors
    /// If the threshold is negative or NaN, or no length is allowed.
    pub fn new(threshold: f64, length: UnitLength, sign: Sign) -> Result<Self, ControlError> {
        if threshold.is_nan() || threshold < 0.0 {
            return Err(ControlError::argument(format!("threshold: {threshold} must be at least 0")));
        }
        Ok(Self { threshold, length: length.check()?, sign })
    }
}

impl Boundary for SurpriseBoundary {
    fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool> {
        Ok(self.length.decides(so_far.buffer).unwrap_or_else(|| {
            let moved = match self.sign {
                Sign::Abs => so_far.logw.abs(),
                Sign::Down => -so_far.logw,
                Sign::Up => so_far.logw,
            };
            moved >= self.threshold
        }))
    }
}

/// Met once the change of a critic's weight over the unit satisfies a predicate.
#[derive(Clone)]
pub struct CriticBoundary {
    critic: Arc<dyn Potential>,
    predicate: Arc<dyn Fn(f64) -> bool + Send + Sync>,
    length: UnitLength,
}

impl CriticBoundary {
    /// Ends units when `predicate` holds of how much the critic's `prefix` has changed (nats).
    ///
    /// # Errors
    /// If no length is allowed.
    pub fn new(
        critic: Arc<dyn Potential>,
        predicate: impl Fn(f64) -> bool + Send + Sync + 'static,
        length: UnitLength,
    ) -> Result<Self, ControlError> {
        Ok(Self { critic, predicate: Arc::new(predicate), length: length.check()? })
    }
}

impl std::fmt::Debug for CriticBoundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CriticBoundary").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Boundary for CriticBoundary {
    fn is_met(&self, so_far: &UnitSoFar<'_>) -> RowResult<bool> {
        Ok(self.length.decides(so_far.buffer).unwrap_or_else(|| (self.predicate)(so_far.critic)))
    }

    fn critic(&self) -> Option<&Arc<dyn Potential>> {
        Some(&self.critic)
    }
}
