//! Where a Harmony response stands.

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use crate::error::{ControlError, ErrorKind};

/// A channel of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Analysis,
    Commentary,
    Final,
}

const CHANNELS: [(&str, Channel); 3] =
    [("analysis", Channel::Analysis), ("commentary", Channel::Commentary), ("final", Channel::Final)];

/// The bytes of a header that are kept: more than any channel's name has.
const NAME: usize = 16;

impl Channel {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        CHANNELS.into_iter().find(|(known, _)| known.as_bytes() == name).map(|(_, channel)| channel)
    }

    pub(super) fn names() -> String {
        CHANNELS.map(|(name, _)| format!("`{name}`")).join(", ")
    }
}

/// The ids of the tokens that structure a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    channel: TokenId,
    message: TokenId,
    pub(super) end: TokenId,
    start: Option<TokenId>,
}

impl Control {
    /// # Errors
    /// If the vocabulary lacks one that is needed, or it ends sequences.
    pub(super) fn of(vocab: &Vocabulary) -> Result<Self, ControlError> {
        let find = |text: &str| {
            let ids = (0..).map(TokenId).take(vocab.len());
            ids.into_iter().find(|id| vocab.is_special(*id) && vocab.text_of(*id) == text.as_bytes())
        };
        let needed = |text: &str| match find(text) {
            Some(id) if vocab.is_member(id) => Ok(id),
            Some(_) => Err(ControlError::new(
                ErrorKind::Vocabulary,
                format!("tokenizer: `{text}` ends sequences: take it out of the end-of-sequence set"),
            )),
            None => Err(ControlError::new(
                ErrorKind::Vocabulary,
                format!("tokenizer: has no special token `{text}`: Harmony responses need it"),
            )),
        };
        Ok(Self {
            channel: needed("<|channel|>")?,
            message: needed("<|message|>")?,
            end: needed("<|end|>")?,
            start: find("<|start|>"),
        })
    }
}

/// Where one row stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Between messages, or in one that is not constrained.
    Free,
    /// In the header of a message, after `<|channel|>`: the first bytes since then.
    Header(Vec<u8>),
    /// In a constrained message.
    Inside(Channel),
}

impl Place {
    /// The constrained channel that `token` would enter.
    pub(super) fn enters(
        &self,
        control: &Control,
        constrained: &[Channel],
        token: TokenId,
    ) -> Option<Channel> {
        match self {
            Self::Header(header) if token == control.message => {
                let words = header.split(|byte| byte.is_ascii_whitespace());
                let name = words.into_iter().find(|word| !word.is_empty())?;
                Channel::named(name).filter(|channel| constrained.contains(channel))
            }
            _ => None,
        }
    }

    /// Where an unconstrained row stands after a token that enters no constrained channel.
    pub(super) fn after(self, control: &Control, vocab: &Vocabulary, token: TokenId) -> Self {
        if token == control.channel {
            return Self::Header(Vec::new());
        }
        if [Some(control.message), Some(control.end), control.start].contains(&Some(token)) {
            return Self::Free;
        }
        match self {
            Self::Header(mut header) => {
                // A special token ends a word.
                let bytes = if vocab.is_special(token) { b" " } else { vocab.bytes_of(token) };
                header.extend(bytes);
                header.truncate(NAME);
                Self::Header(header)
            }
            other => other,
        }
    }
}
