//! Logits in, tokens out: keyed random numbers, draws for many rows in one pass.
//!
//! This room knows no model and does no I/O.
//!
//! - [`DrawKey`] names a draw; [`philox4x32_10`] turns it into noise that depends on nothing else.
//! - [`Normalizer`] turns a logit row at a temperature into log-weights.
//! - [`draw()`] picks one entry of a row of log-weights, [`GumbelOrder`] lists all of them in random
//!   order without replacement, and [`draw_rows`] goes from many logit rows to tokens in one pass.
//!
//! Invariant: every result is a function of its row and its key, equal bit for bit at any thread
//! count and any SIMD level, and whether absent entries are listed as `-inf` or left out.

mod bitset;
mod blocks;
mod draw;
mod eos;
pub mod math;
mod normalizer;
mod order;
mod race;
mod rng;
mod simd;
mod token;

pub use bitset::Bitset;
pub use draw::{
    DRAW_METHODS, DrawMethod, Drawn, Pick, RowDraw, UnknownDrawMethod, Weights, draw, draw_row, draw_rows,
    log_total,
};
pub use eos::EosSet;
pub use normalizer::{Normalizer, RowError};
pub use order::GumbelOrder;
pub use rng::{DrawKey, POPULATION, ProblemKey, philox4x32_10};
pub use token::TokenId;
