//! A finite language with a weight for each string.

use std::sync::Arc;

use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::{EosSet, TokenId, math};

use crate::error::ControlError;
use crate::potential::{Claims, FromSequences, SequencePotential};

/// `complete(s) = ln w(s)`; `prefix(x)` is the log of the total weight of the strings that extend
/// x. Tokens are single characters.
#[derive(Clone, Debug)]
pub struct WeightedSet {
    vocab: Arc<Vocabulary>,
    strings: Vec<(Vec<TokenId>, f64)>,
}

impl WeightedSet {
    /// The set of `strings` with their weights, over one-character tokens in `alphabet`'s order.
    ///
    /// # Panics
    /// If a string leaves the alphabet.
    #[must_use]
    pub fn new(alphabet: &str, strings: &[(&str, f64)]) -> Self {
        let tokens =
            alphabet.chars().map(|c| TokenEntry { bytes: c.to_string().into_bytes(), special: false });
        let vocab = Vocabulary::new(tokens.collect(), EosSet::new([])).expect("an alphabet has characters");
        let spell = |text: &str| -> Vec<TokenId> {
            text.chars()
                .map(|c| vocab.find(c.to_string().as_bytes()).expect("strings stay in the alphabet"))
                .collect()
        };
        let strings = strings.iter().map(|(text, weight)| (spell(text), *weight)).collect();
        Self { vocab, strings }
    }

    /// The set as a potential.
    #[must_use]
    pub fn potential(self) -> Arc<FromSequences<Self>> {
        Arc::new(FromSequences::new(self))
    }
}

impl SequencePotential for WeightedSet {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        Claims { tight: true, mass_exact: true, monotone: true, ..Claims::default() }
    }

    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        let extending = self.strings.iter().filter(|(string, _)| string.starts_with(context));
        Ok(math::ln(extending.map(|(_, weight)| weight).sum()))
    }

    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        let same = self.strings.iter().filter(|(string, _)| string == context);
        Ok(math::ln(same.map(|(_, weight)| weight).sum()))
    }
}
