//! Logits in, tokens out: keyed random numbers, draws for many rows in one pass.
//!
//! This room knows no model and does no I/O.

mod token;

pub use token::TokenId;
