//! Boolean finite-state automata over bytes.

use std::sync::{Arc, LazyLock};

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::{Dfa, Limits, RegexError, RegexOptions};

use super::automaton::TokenAutomaton;
use super::{Claims, Cursor, Potential, Run, Wfsa};
use crate::cache::Cache;
use crate::error::ControlError;

/// The bytes that the automata of patterns may take while nobody uses them.
const COMPILED_BYTES: usize = 64 << 20;

/// Patterns that were compiled before.
static COMPILED: LazyLock<Cache<(Arc<str>, RegexOptions), BoolFsa>> =
    LazyLock::new(|| Cache::new(COMPILED_BYTES));

/// Weight 1 for the texts of a regular language, 0 for all others, over the 256 bytes.
///
/// Every state can reach acceptance, so a live prefix always has a completion.
#[derive(Clone, Debug)]
pub struct BoolFsa {
    dfa: Arc<Dfa>,
    automaton: Arc<TokenAutomaton>,
}

impl BoolFsa {
    /// The language of `pattern`, matched in full over UTF-8. A pattern that was compiled before is
    /// often still at hand, and its automaton shared.
    ///
    /// # Errors
    /// Naming the construct and its offset in the pattern, or the limit that was exceeded; an
    /// empty language is an error too.
    pub fn from_regex(pattern: &str) -> Result<Self, RegexError> {
        Self::from_regex_with(pattern, &RegexOptions::default())
    }

    /// The language of `pattern`, matched in full: bytewise or over a set of characters if the
    /// options say so.
    ///
    /// # Errors
    /// As [`BoolFsa::from_regex`].
    pub fn from_regex_with(pattern: &str, options: &RegexOptions) -> Result<Self, RegexError> {
        let key = (Arc::from(pattern), options.clone());
        if let Some(known) = COMPILED.find(&key) {
            return Ok(Self::clone(&known));
        }
        let fresh = Arc::new(Self::from_dfa(Dfa::from_regex(pattern, options)?));
        let bytes = fresh.dfa.byte_len() + pattern.len();
        Ok(Self::clone(&COMPILED.insert(key, fresh, bytes)))
    }

    /// The finite language of the given strings.
    ///
    /// # Errors
    /// If there are none.
    pub fn from_strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Result<Self, RegexError> {
        Ok(Self::from_dfa(Dfa::from_strings(strings)?))
    }

    /// The texts to which `wfsa` gives a weight.
    ///
    /// # Errors
    /// If an equivalent deterministic automaton exceeds the default limits.
    pub fn from_wfsa(wfsa: &Wfsa) -> Result<Self, RegexError> {
        Ok(Self::from_dfa(wfsa.weights().support(&Limits::default())?))
    }

    /// The texts in both languages, as one automaton: unlike a product it is tight.
    ///
    /// # Errors
    /// If no text is in both, or the default limits are exceeded.
    pub fn intersect(&self, other: &Self) -> Result<Self, RegexError> {
        Ok(Self::from_dfa(self.dfa.intersect(&other.dfa, &Limits::default())?))
    }

    /// The language of an automaton.
    #[must_use]
    pub fn from_dfa(dfa: Dfa) -> Self {
        let dfa = Arc::new(dfa);
        let automaton = TokenAutomaton::new(Arc::clone(&dfa), Vocabulary::bytes())
            .expect("a live automaton accepts some text, and every byte is a token");
        Self { dfa, automaton: Arc::new(automaton) }
    }
}

impl Potential for BoolFsa {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.automaton.vocab()
    }

    fn claims(&self) -> Claims {
        Claims { boolean: true, tight: true, monotone: true, ..Claims::default() }
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(self.automaton.open(n))
    }

    fn automaton(&self) -> Option<&Arc<Dfa>> {
        Some(&self.dfa)
    }
}
