//! The default model: Llama-family GGUF files on the CPU, in Rust.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use lockstep_engine::TokenId;
//! use lockstep_engine::model::{Model, SeqId};
//! use lockstep_native::gguf::Gguf;
//! use lockstep_native::{NativeModel, NativeOptions};
//!
//! let gguf = Gguf::open(Path::new("model.gguf"))?;
//! let mut model = NativeModel::load(&gguf, NativeOptions::default())?;
//! model.open(SeqId(0), None)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: a position's logits depend on its sequence's tokens up to there and on nothing else.
//! They are equal bit for bit whatever shares the batch, however the tokens were cut into
//! forwards, at any thread count and with any instruction set.

pub mod gguf;
pub mod probe;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

mod arch;
mod error;
mod kernels;
mod kv;
mod model;
mod quant;

pub use error::LoadError;
pub use model::{NativeModel, NativeOptions};
