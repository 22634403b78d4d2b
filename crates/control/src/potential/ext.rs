//! Combinators as methods.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;

use super::{Coerced, Normalized, Potential, Product, Tempered};
use crate::error::ControlError;

/// The combinators as methods of every potential, owned or shared.
///
/// ```
/// use lockstep_control::potential::{BoolFsa, Potential, PotentialExt};
/// use lockstep_engine::vocab::{TokenEntry, Vocabulary};
/// use lockstep_sample::EosSet;
///
/// let token = |text: &str| TokenEntry { bytes: text.into(), special: false };
/// let vocab = Vocabulary::new(vec![token("a"), token("ab"), token("b")], EosSet::new([]))?;
/// let starts = BoolFsa::from_regex("a.*")?.coerce(vocab.clone())?;
/// let ends = BoolFsa::from_regex(".*b")?.coerce(vocab)?;
/// let both = starts.product(ends)?.tempered(0.5)?.normalize();
/// assert!(both.claims().monotone);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PotentialExt: Sized {
    /// The potential behind a pointer, as combinators keep it.
    fn shared(self) -> Arc<dyn Potential>;

    /// [`Product`] of this potential and `other`.
    ///
    /// # Errors
    /// As for [`Product::new`].
    fn product(self, other: impl PotentialExt) -> Result<Product, ControlError> {
        Product::new(self.shared(), other.shared())
    }

    /// This potential over bytes, [coerced](Coerced) to the tokens of `vocab`.
    ///
    /// # Errors
    /// As for [`Coerced::new`].
    fn coerce(self, vocab: Arc<Vocabulary>) -> Result<Coerced, ControlError> {
        Coerced::new(self.shared(), vocab)
    }

    /// This potential to the power of `beta`.
    ///
    /// # Errors
    /// As for [`Tempered::new`].
    fn tempered(self, beta: f64) -> Result<Tempered, ControlError> {
        Tempered::new(self.shared(), beta)
    }

    /// This potential with rows that sum to 1.
    fn normalize(self) -> Normalized {
        Normalized::new(self.shared())
    }
}

impl<P: Potential + 'static> PotentialExt for P {
    fn shared(self) -> Arc<dyn Potential> {
        Arc::new(self)
    }
}

impl<P: Potential + 'static> PotentialExt for Arc<P> {
    fn shared(self) -> Arc<dyn Potential> {
        self
    }
}

impl PotentialExt for Arc<dyn Potential> {
    fn shared(self) -> Arc<dyn Potential> {
        self
    }
}
