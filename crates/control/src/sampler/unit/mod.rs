//! Units of several tokens as one step: a sampler of tokens, repeated until a boundary is met.
//!
//! The weights of the tokens add up, so a unit is properly weighted as its tokens are, and
//! resampling happens between units. A unit ends with EOS, or where its [`Boundary`] says. One whose
//! boundary is not met within the limit of subunits weighs 0, and so does one that dies midway.
//!
//! Invariant: potentials and critics see flat tokens; only the population knows of units. Units nest:
//! the sampler that is repeated may itself draw units.

mod boundary;
mod cfg;
mod cursor;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;

pub use boundary::{
    Boundary, CriticBoundary, FixedLengthBoundary, Sign, SurpriseBoundary, TokenSetBoundary, UnitLength,
    UnitSoFar,
};
pub use cfg::{CfgBoundary, CfgBoundaryOptions, DecodeErrors};

use super::{SamplerCursor, TokenSampler};
use crate::error::{ControlError, ErrorKind};
use crate::potential::{Demands, Run};
use cursor::UnitCursor;

/// Draws units: repeats a sampler until a boundary is met.
#[derive(Clone)]
pub struct MultiTokenUnitSampler {
    subunits: Arc<dyn TokenSampler>,
    boundary: Arc<dyn Boundary>,
    max_subunits: usize,
}

impl MultiTokenUnitSampler {
    /// The default limit of subunits.
    pub const MAX_SUBUNITS: usize = 100;

    /// Units of at most `max_subunits_per_unit` draws of `subunits`, up to `boundary`.
    ///
    /// # Errors
    /// If the limit is 0, or the boundary's critic reads other tokens than are drawn.
    pub fn new(
        subunits: Arc<dyn TokenSampler>,
        boundary: Arc<dyn Boundary>,
        max_subunits_per_unit: usize,
    ) -> Result<Self, ControlError> {
        if max_subunits_per_unit == 0 {
            return Err(ControlError::argument("max_subunits_per_unit: 0 must be at least 1"));
        }
        if let Some(critic) = boundary.critic()
            && !critic.vocab().same_tokens(subunits.vocab())
        {
            let message = "the boundary's critic reads other tokens than the sampler draws: coerce it to the sampler's vocabulary";
            return Err(ControlError::new(ErrorKind::Vocabulary, message));
        }
        Ok(Self { subunits, boundary, max_subunits: max_subunits_per_unit })
    }
}

impl std::fmt::Debug for MultiTokenUnitSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("MultiTokenUnitSampler");
        out.field("max_subunits", &self.max_subunits).finish_non_exhaustive()
    }
}

impl TokenSampler for MultiTokenUnitSampler {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.subunits.vocab()
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn SamplerCursor>, ControlError> {
        Ok(Box::new(UnitCursor::open(self, n, run)?))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        let subunits = max_tokens.saturating_mul(self.max_subunits);
        self.subunits.demand(n, subunits, demands)?;
        match self.boundary.critic() {
            Some(critic) => {
                critic.demand(n, subunits.saturating_mul(self.subunits.max_unit_tokens()), demands)
            }
            None => Ok(()),
        }
    }

    fn unit_depth(&self) -> usize {
        1 + self.subunits.unit_depth()
    }

    fn max_unit_tokens(&self) -> usize {
        self.max_subunits.saturating_mul(self.subunits.max_unit_tokens())
    }
}
