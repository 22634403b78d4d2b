//! Text to tokens and back, and chats to text.
//!
//! A [`Tokenizer`] is built from what a model file says ([`TokenizerSpec`]). Decoding is exact: the
//! bytes of a token are those that the model was trained to mean, whether or not they are UTF-8 on
//! their own, and `decode(encode(text)) == text` for every text that the vocabulary can spell.
//!
//! A [`ChatTemplate`] turns [`Message`]s into the text that the model was trained to see.
//!
//! Invariant: text never becomes a special token unless the caller asks for it with
//! `encode(text, true)`, as a rendered chat template needs.

mod byte_level;
mod error;
mod merges;
mod pre;
mod template;
mod tokenizer;

pub use error::TextError;
pub use merges::Merge;
pub use template::{ChatTemplate, Message};
pub use tokenizer::{Tokenizer, TokenizerSpec};
