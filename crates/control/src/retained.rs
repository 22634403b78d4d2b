//! A path that a conditional run retains.

use lockstep_sample::TokenId;

use crate::units::UnitEnds;

/// A finished sequence that a [conditional run](crate::Smc::conditional) keeps in its population,
/// with the sampler's log-weight increments of its steps if they are known.
///
/// A sampler whose weight is a function of context and token (such as [`Direct`](crate::Direct))
/// weighs any path anew. If the weight is random given the token (such as [`Awrs`](crate::Awrs)'s),
/// the weights that the path was drawn with belong to it: weighing it anew would bias the run. Take
/// such a path from the run that drew it, with [`Sequences::retained`](crate::Sequences::retained).
#[derive(Clone, Debug, PartialEq)]
pub struct Retained {
    tokens: Vec<TokenId>,
    increments: Option<Vec<f64>>,
    /// How the tokens group, if they were drawn in units.
    ends: UnitEnds,
    /// The `max_tokens` of the run that drew it, if it ended there: its end was not drawn.
    limit: Option<usize>,
}

impl Retained {
    /// The path of `tokens`, which end in [`TokenId::EOS`], without increments.
    #[must_use]
    pub fn new(tokens: Vec<TokenId>) -> Self {
        Self { tokens, increments: None, ends: UnitEnds::none(), limit: None }
    }

    /// The same path, drawn with these `increments`: the log-weight (nats) that the sampler gave
    /// each step, start weight and critic left out.
    #[must_use]
    pub fn with_increments(self, increments: Vec<f64>) -> Self {
        Self { increments: Some(increments), ..self }
    }

    /// Notes that the end was forced at this `max_tokens`.
    #[must_use]
    pub(crate) fn with_limit(self, limit: Option<usize>) -> Self {
        Self { limit, ..self }
    }

    /// Notes how the tokens group into the units that were drawn.
    #[must_use]
    pub(crate) fn with_units(self, ends: UnitEnds) -> Self {
        Self { ends, ..self }
    }

    pub(crate) fn ends(&self) -> &UnitEnds {
        &self.ends
    }

    /// The tokens, the end included.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// For each step the sampler's log-weight (nats), if it is known.
    #[must_use]
    pub fn increments(&self) -> Option<&[f64]> {
        self.increments.as_deref()
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }
}
