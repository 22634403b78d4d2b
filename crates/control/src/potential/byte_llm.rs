//! A language model read byte by byte: a beam of tokenisations of the bytes so far.
//!
//! Many token sequences spell a text. A *hypothesis* of the bytes x is a sequence of whole tokens y
//! and some bytes of the next one, that is a node of the vocabulary's trie; together they spell x.
//! Its mass is `p(y) · Σ p(t | y)` over the tokens t below the node. The beam at x has at most K
//! hypotheses, or fewer that matter. Where a token ends at a hypothesis's node, the next byte may
//! also begin another token, so the beam is *extended* by (y · t, root). Then, before anything is
//! pruned,
//!
//! ```text
//! row(b | x)   = Σ over the extended beam of the mass below the child b     normalised with
//! row(EOS | x) = Σ over its hypotheses at the root of p(y) · p(EOS | y)     each other to sum 1
//! prefix(x)    = Σ of row entries along x, by definition
//! ```
//!
//! so the contract holds exactly whatever K is. K bounds only how well the distribution of the
//! model's bytes is approximated; a beam that loses nothing gives it exactly. Tokens without bytes,
//! special ones among them, are not spelled: their mass is left out of the normalisation.
//!
//! **Healing.** A beam may have pruned the only tokenisation that goes on with some byte, most
//! often where all hypotheses are inside a token. If none is at the root, the bytes that all of
//! them refuse, and the end, are weighed by one more hypothesis: of all ways to cut a partial
//! token of the beam into whole tokens, the one with most mass. Such a byte's beam is that
//! hypothesis alone.

mod beam;
mod columns;
mod cursor;
mod heal;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;

use super::{Claims, Cursor, Demands, Potential, PromptedLlm, Run};
use crate::error::ControlError;
use columns::Columns;
use cursor::ByteCursor;

/// How closely a [`ByteLlm`] follows its model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamParams {
    /// The most hypotheses that a row keeps from one byte to the next, at least 1.
    pub k: usize,
    /// Hypotheses with less than this share of a beam's mass are dropped; the best never is. 0 by
    /// default, less than 1.
    pub prune_threshold: f64,
    /// Whether bytes that a beam refuses are weighed by its best whole tokens; on by default.
    pub heal: bool,
}

impl BeamParams {
    /// Beams of `k`, with the defaults.
    #[must_use]
    pub fn new(k: usize) -> Self {
        Self { k, prune_threshold: 0.0, heal: true }
    }
}

/// A prompted language model over the 256 bytes, whatever its tokens are.
///
/// Each row runs under the prompt of the potential that opened it.
#[derive(Clone, Debug)]
pub struct ByteLlm {
    llm: PromptedLlm,
    params: BeamParams,
    bytes: Arc<Vocabulary>,
}

impl ByteLlm {
    /// `llm` by bytes, in beams as `params` says.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(llm: PromptedLlm, params: BeamParams) -> Result<Self, ControlError> {
        if params.k == 0 {
            return Err(ControlError::argument("k: is 0, but a beam has at least one hypothesis"));
        }
        if !(0.0..1.0).contains(&params.prune_threshold) {
            return Err(ControlError::argument(format!(
                "prune_threshold: {} is a share of the beam's mass: use 0 or more, and less than 1",
                params.prune_threshold
            )));
        }
        Ok(Self { llm, params, bytes: Vocabulary::bytes() })
    }

    /// The model.
    #[must_use]
    pub fn llm(&self) -> &PromptedLlm {
        &self.llm
    }

    /// Its beams.
    #[must_use]
    pub fn params(&self) -> BeamParams {
        self.params
    }
}

impl Potential for ByteLlm {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.bytes
    }

    fn claims(&self) -> Claims {
        // A pruned beam may be unable to end.
        Claims { mass_exact: true, monotone: true, ..Claims::default() }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let inner = self.llm.open(1, run)?;
        let columns = Columns::new(inner, self.llm.vocab(), self.params, n);
        Ok(Box::new(ByteCursor::new(columns)))
    }

    /// A byte may be a token, and each hypothesis is extended.
    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.llm.demand(n * 2 * self.params.k, max_tokens, demands)
    }
}
