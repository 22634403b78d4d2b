//! A constraint on what is said in some channels of a Harmony response.
//!
//! A response is a list of messages, each under a channel's name:
//!
//! ```text
//! <|channel|>analysis<|message|> ... <|end|><|start|>assistant<|channel|>final<|message|> ...
//! ```
//!
//! The base potential weighs the content of each message in a constrained channel by itself: by
//! `prefix` while the message is open, by `complete` once it has ended. Everything else weighs 1.
//! Messages in `analysis` and `commentary` end with `<|end|>`, which there has the base's weight of
//! the end, and nothing else ends them; a `final` one ends with the sequence.
//! Control tokens are recognised by id, so text that looks like one is content.

mod cursor;
mod state;

use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::{Claims, Cursor, Demands, Potential, Run};
use crate::error::{ControlError, ErrorKind};
use cursor::HarmonyCursor;
use state::{Channel, Control};

/// A base potential inside the named channels of a Harmony response, and weight 1 elsewhere.
///
/// A sequence begins where the model does, behind `<|start|>assistant`.
#[derive(Clone)]
pub struct Harmony {
    base: Arc<dyn Potential>,
    format: Arc<Format>,
}

/// What all rows know.
#[derive(Debug)]
struct Format {
    vocab: Arc<Vocabulary>,
    control: Control,
    constrained: Vec<Channel>,
    /// Every member, and the end.
    all: Arc<Bitset>,
}

impl Harmony {
    /// `base` in the channels `constrained_channels` (`analysis`, `commentary`, `final`) of responses
    /// in the tokens of `tokenizer`.
    ///
    /// # Errors
    /// If `base` reads other tokens than `tokenizer` has, or they have no `<|channel|>`, `<|message|>`
    /// and `<|end|>`, or `<|end|>` ends sequences, or no channel is named, or one that does not exist.
    pub fn new<S: AsRef<str>>(
        base: Arc<dyn Potential>,
        tokenizer: &Vocabulary,
        constrained_channels: &[S],
    ) -> Result<Self, ControlError> {
        let vocab = Arc::clone(base.vocab());
        if !vocab.same_tokens(tokenizer) {
            return Err(ControlError::new(
                ErrorKind::Vocabulary,
                "base: reads other tokens than the tokenizer has: coerce it to the tokenizer's vocabulary",
            ));
        }
        if constrained_channels.is_empty() {
            return Err(ControlError::argument(format!(
                "constrained_channels: is empty: name some of {}",
                Channel::names()
            )));
        }
        let channel = |(i, name): (usize, &S)| {
            let name = name.as_ref();
            Channel::named(name.as_bytes()).ok_or_else(|| {
                ControlError::argument(format!(
                    "constrained_channels[{i}]: `{}` is no channel: use some of {}",
                    name.escape_debug(),
                    Channel::names()
                ))
            })
        };
        let constrained = constrained_channels.iter().enumerate().map(channel).collect::<Result<_, _>>()?;
        let control = Control::of(&vocab)?;
        let mut all = Bitset::full(vocab.row_len());
        vocab.eos().ids().iter().for_each(|id| all.remove(*id as usize));
        all.insert(vocab.eos_position());
        let format = Format { vocab, control, constrained, all: Arc::new(all) };
        Ok(Self { base, format: Arc::new(format) })
    }
}

impl Format {
    /// The position of `<|end|>` in a row.
    fn end_position(&self) -> usize {
        self.vocab.position_of(self.control.end)
    }

    /// Whether a token may follow where nothing is constrained.
    fn is_known(&self, token: TokenId) -> bool {
        token.is_eos() || self.vocab.is_member(token)
    }
}

impl std::fmt::Debug for Harmony {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Harmony").field("constrained", &self.format.constrained).finish_non_exhaustive()
    }
}

impl Potential for Harmony {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.format.vocab
    }

    fn claims(&self) -> Claims {
        let base = self.base.claims();
        Claims {
            boolean: base.boolean,
            tight: base.tight,
            mass_exact: false,
            // A weighted base may begin above 1.
            monotone: base.boolean && base.monotone,
            terminal_only: false,
        }
    }

    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        let base = self.base.open(n + 1, run)?;
        Ok(Box::new(HarmonyCursor::new(base, Arc::clone(&self.format), n)))
    }

    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        self.base.demand(n + 1, max_tokens, demands)
    }
}
