//! A language model under a prompt.
//!
//! `prefix(x) = Σ ln p(x_i | prompt, x_<i)`, and `complete` adds the mass of the end-of-sequence
//! set. The cursor holds one KV sequence for each *distinct* history: rows that share theirs (all
//! of them at first, copies after a selection) share its forwards too, until they part.

mod columns;
mod cursor;

use std::sync::Arc;

use lockstep_engine::Engine;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{EosSet, TokenId};

use columns::Columns;
use cursor::LlmCursor;

use super::{Claims, Cursor, Demands, Potential, Run};
use crate::error::{ControlError, ErrorKind};

/// A language model under a prompt, at a temperature.
///
/// The prompt belongs to the cursors: each is opened under the prompt of the potential that opens
/// it, so runs under different prompts never mix. The temperature never touches the prompt.
#[derive(Clone, Debug)]
pub struct PromptedLlm {
    pub(super) engine: Engine,
    pub(super) vocab: Arc<Vocabulary>,
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) temperature: f64,
    pub(super) adapter: Option<Arc<str>>,
}

impl PromptedLlm {
    /// `engine`'s model under `prompt`, at temperature 1. Of a model with more logits than `vocab`
    /// has ids the rest are dropped before normalising; ids without a logit weigh `-inf`.
    ///
    /// # Errors
    /// If the prompt is empty, holds an unknown id, or leaves no room in the context.
    pub fn new(engine: Engine, vocab: Arc<Vocabulary>, prompt: &[TokenId]) -> Result<Self, ControlError> {
        let this = Self { engine, vocab, prompt: Arc::new([]), temperature: 1.0, adapter: None };
        this.spawn(prompt)
    }

    /// The same model and tables under another prompt.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn spawn(&self, prompt: &[TokenId]) -> Result<Self, ControlError> {
        let capabilities = self.engine.capabilities();
        if prompt.is_empty() {
            return Err(ControlError::argument(
                "prompt: is empty: the model needs at least one token to start from",
            ));
        }
        if prompt.len() >= capabilities.context_length {
            return Err(ControlError::argument(format!(
                "prompt: {} tokens leave no room in the model's context of {}: shorten it",
                prompt.len(),
                capabilities.context_length
            )));
        }
        if let Some(bad) = prompt.iter().find(|token| token.index() >= capabilities.vocab_size) {
            return Err(ControlError::argument(format!("prompt: {bad} is no token of the model")));
        }
        Ok(Self { prompt: prompt.into(), ..self.clone() })
    }

    /// The same model at another temperature: weights of `softmax(l / T)`.
    ///
    /// # Errors
    /// Unless it is finite and greater than 0.
    pub fn with_temperature(self, temperature: f64) -> Result<Self, ControlError> {
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(ControlError::argument(format!(
                "temperature: {temperature} must be finite and greater than 0"
            )));
        }
        Ok(Self { temperature, ..self })
    }

    /// The same model under the adapter `name`, prompt included. A model that has none of that name
    /// says so when the first row is asked for: each row fails with its error.
    #[must_use]
    pub fn with_adapter(self, name: &str) -> Self {
        Self { adapter: Some(name.into()), ..self }
    }

    /// The same model with another end-of-sequence set: every id whose bytes, or display text if it
    /// is special, are one of `strings`. None at all is legal: then nothing ever ends.
    ///
    /// # Errors
    /// If a string is no token's, or is given twice.
    pub fn with_eos_byte_strings<S: AsRef<[u8]>>(self, strings: &[S]) -> Result<Self, ControlError> {
        let mut eos = Vec::new();
        for (i, string) in strings.iter().map(AsRef::as_ref).enumerate() {
            let shown = string.escape_ascii();
            if strings[..i].iter().any(|earlier| earlier.as_ref() == string) {
                return Err(ControlError::argument(format!(
                    "eos_byte_strings[{i}]: `{shown}` is given twice: name each string once"
                )));
            }
            let ids = (0..).take(self.vocab.len()).filter(|id| self.vocab.text_of(TokenId(*id)) == string);
            let before = eos.len();
            eos.extend(ids);
            if eos.len() == before {
                return Err(ControlError::argument(format!(
                    "eos_byte_strings[{i}]: `{shown}` is no token of the vocabulary: give a token's whole text"
                )));
            }
        }
        let vocab = self.vocab.with_eos(EosSet::new(eos));
        let vocab = vocab.map_err(|error| ControlError::new(ErrorKind::Vocabulary, error.to_string()))?;
        Ok(Self { vocab, ..self })
    }

    /// Its prompt.
    #[must_use]
    pub fn prompt(&self) -> &[TokenId] {
        &self.prompt
    }

    /// The adapter that it runs under, if any.
    #[must_use]
    pub fn adapter(&self) -> Option<&str> {
        self.adapter.as_deref()
    }

    /// The engine that runs it.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Potential for PromptedLlm {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    fn claims(&self) -> Claims {
        // Without an end-of-sequence id that the model knows, nothing ever ends.
        let known = self.engine.capabilities().vocab_size;
        let tight = self.vocab.eos().lowest().is_some_and(|id| (id as usize) < known);
        Claims { tight, mass_exact: true, monotone: true, ..Claims::default() }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let columns = Columns::new(self.clone(), n, run.party(&self.engine));
        Ok(Box::new(LlmCursor::new(columns)))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        let context = self.engine.capabilities().context_length;
        // The last token is never fed.
        if (self.prompt.len() - 1).saturating_add(max_tokens) > context {
            return Err(ControlError::argument(format!(
                "max_tokens: {max_tokens} after a prompt of {} exceed the model's context of {context}: use at most {}",
                self.prompt.len(),
                context + 1 - self.prompt.len()
            )));
        }
        demands.add(&self.engine, self.prompt.len() + n * max_tokens);
        Ok(())
    }
}
