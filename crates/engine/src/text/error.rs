//! What can be wrong with a tokenizer, a text or a chat template.

use crate::vocab::VocabError;

/// An error of a tokenizer, a text or a chat template, in one line.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TextError(#[from] Problem);

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("the tokenizer model {0:?} is not supported, only \"gpt2\", which is byte-level BPE")]
    Model(String),
    #[error("the pre-tokenizer {0:?} is not supported, only \"smollm\" and \"gpt-2\"")]
    Pre(String),
    #[error("token_types has {types} entries for {tokens} tokens: give one each")]
    TypeCount { types: usize, tokens: usize },
    #[error("token_types[{id}] is {ty}, which a byte-level tokenizer does not have")]
    Type { id: usize, ty: i32 },
    #[error("tokens[{id}] is {text:?}, and {char:?} stands for no byte")]
    NotByteLevel { id: usize, text: String, char: char },
    #[error("merges[{index}] is {text:?}, not two tokens with a space between them")]
    Merge { index: usize, text: String },
    #[error("merges[{index}] needs the token {token:?}, which tokens lacks")]
    MergeToken { index: usize, token: String },
    #[error("bos is the id {id}, but there are only {tokens} tokens")]
    Bos { id: u32, tokens: usize },
    #[error(transparent)]
    Vocab(#[from] VocabError),
    #[error("the text has the byte {byte:#04x} at {at}, which this model has no token for: leave it out")]
    Unspeakable { byte: u8, at: usize },
    #[error("the tokenizer failed: {0}")]
    Bpe(String),
    #[error("the chat template failed: {0}")]
    Template(String),
    #[error("the chat template refuses this chat: {0}")]
    Refused(String),
}

/// `text` on one line: messages of libraries and of templates may have more.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
