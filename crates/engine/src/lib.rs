//! The model seam, vocabularies, tokenizers, and the scheduler that turns rows into one batch.

pub mod model;

pub use lockstep_sample::TokenId;
