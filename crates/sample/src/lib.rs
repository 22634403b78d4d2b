//! Logits in, tokens out: keyed random numbers, draws for many rows in one pass.
//!
//! This room knows no model and does no I/O.
//!
//! - [`DrawKey`] names a draw; [`philox4x32_10`] turns it into noise that depends on nothing else.
//! - [`Normalizer`] turns a logit row at a temperature into log-weights.
//! - [`draw()`] picks one entry of a row of log-weights, [`GumbelOrder`] lists all of them in random
//!   order without replacement, and [`draw_rows`] goes from many logit rows to tokens in one pass.
//! - [`SamplingParams`] are a row's settings; [`sample_rows`] takes rows of any mix of them through
//!   penalties, masks, filters and draw in one pass.
//! - [`RowSampler`] and [`LogitsProcessor`] are for samplers and processors that we did not write;
//!   [`sample_custom_rows`] runs them, and [`make_sampler`] wraps settings as one.
//!
//! Invariant: every result is a function of its row and its key, equal bit for bit at any thread
//! count and any SIMD level, and whether absent entries are listed as `-inf` or left out.

mod bitset;
mod blocks;
mod chain;
mod custom;
mod draw;
mod eos;
mod filters;
mod history;
mod logprobs;
mod mask;
pub mod math;
mod normalizer;
mod order;
mod params;
mod penalties;
mod race;
mod rng;
mod sampler;
mod settings;
mod share;
mod simd;
mod token;
mod visits;

pub use bitset::Bitset;
pub use chain::{ChainRow, Sampled, sample_row, sample_rows};
pub use custom::{CustomPass, CustomRow, sample_custom_rows};
pub use draw::{
    DRAW_METHODS, DrawMethod, Drawn, Pick, RowDraw, UnknownDrawMethod, Weights, draw, draw_row, draw_rows,
    log_mass, log_total,
};
pub use eos::EosSet;
pub use history::History;
pub use logprobs::{LogprobMode, LogprobRequest, Logprobs};
pub use normalizer::{Normalizer, RowError};
pub use order::GumbelOrder;
pub use params::{ParamsError, SamplingParams};
pub use rng::{DrawKey, POPULATION, ProblemKey, philox4x32_10};
pub use sampler::{
    Independence, LogitsProcessor, LogprobRows, RowNoise, RowSampler, SampleError, SharedSampler,
};
pub use settings::make_sampler;
pub use share::SHARED_FROM;
pub use token::TokenId;
