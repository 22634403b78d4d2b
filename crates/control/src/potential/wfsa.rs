//! Log-weighted finite-state automata over bytes.

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::{Forward, RegexError, RegexOptions, WeightedArc};
use lockstep_sample::TokenId;

use super::states::{Machine, States};
use super::{Claims, Cursor, Potential, Row, Run};
use crate::error::ControlError;

/// The weights of a log-weighted automaton over the 256 bytes: `complete` is the sum over a text's
/// paths, `prefix` the total weight of all texts that begin so.
///
/// Every state can reach acceptance, so a live prefix has a completion.
#[derive(Clone, Debug)]
pub struct Wfsa {
    wfsa: Arc<lockstep_grammar::Wfsa>,
    vocab: Arc<Vocabulary>,
}

impl Wfsa {
    /// The weights of an automaton.
    #[must_use]
    pub fn new(wfsa: impl Into<Arc<lockstep_grammar::Wfsa>>) -> Self {
        Self { wfsa: wfsa.into(), vocab: Vocabulary::bytes() }
    }

    /// The automaton with these arcs, initial and final weights (state, natural logarithm).
    ///
    /// # Errors
    /// As [`lockstep_grammar::Wfsa::from_arcs`]: among others if the texts from some state weigh
    /// infinitely much; the error names the state.
    pub fn from_arcs(
        arcs: &[WeightedArc],
        initial: &[(u32, f64)],
        finals: &[(u32, f64)],
    ) -> Result<Self, RegexError> {
        Ok(Self::new(lockstep_grammar::Wfsa::from_arcs(arcs, initial, finals)?))
    }

    /// The texts that `pattern` matches as a whole, generated character by character, each option
    /// of a state as likely as any other. Characters are those of [`RegexOptions::charset`], by
    /// default the 100 printable ASCII characters of Python's `string.printable`.
    ///
    /// # Errors
    /// Naming the construct and its offset in the pattern, or the limit that was exceeded; an
    /// empty language is an error too.
    pub fn from_regex(pattern: &str, options: &RegexOptions) -> Result<Self, RegexError> {
        Ok(Self::new(lockstep_grammar::Wfsa::from_regex(pattern, options)?))
    }

    /// The automaton.
    #[must_use]
    pub fn weights(&self) -> &Arc<lockstep_grammar::Wfsa> {
        &self.wfsa
    }
}

impl Potential for Wfsa {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        Claims { tight: true, mass_exact: true, monotone: true, ..Claims::default() }
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(States::open(self.clone(), Arc::new(self.wfsa.start().clone()), n))
    }
}

/// The states are forward weights, shared by rows of equal origin.
impl Machine for Wfsa {
    type State = Arc<Forward>;

    fn vocab(&self) -> &Vocabulary {
        &self.vocab
    }

    fn prefix(&self, forward: &Arc<Forward>) -> f64 {
        forward.log_total()
    }

    fn complete(&self, forward: &Arc<Forward>) -> f64 {
        self.wfsa.complete(forward)
    }

    fn step(&self, forward: &Arc<Forward>, token: TokenId) -> Option<Arc<Forward>> {
        let next = self.wfsa.next(forward, u8::try_from(token.0).ok()?);
        (next.log_total() > f64::NEG_INFINITY).then(|| Arc::new(next))
    }

    fn row(&self, forward: &Arc<Forward>) -> Row {
        let (mut positions, mut weights): (Vec<u32>, Vec<f64>) =
            self.wfsa.log_shares(forward).into_iter().map(|(byte, share)| (u32::from(byte), share)).unzip();
        let stop = self.wfsa.complete(forward) - forward.log_total();
        if stop > f64::NEG_INFINITY {
            // The end stands behind all bytes.
            positions.extend(u32::try_from(self.vocab.eos_position()));
            weights.push(stop);
        }
        Row::sparse(positions, weights)
    }
}
