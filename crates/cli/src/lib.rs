//! Lockstep generates text with language models, and controls it.
//!
//! This crate is the program and the facade of the library: one dependency that brings every room.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use lockstep::control::{BoolFsa, Coerced, Direct, Product, PromptedLlm, Smc, SmcOptions};
//! use lockstep::model::{self, LoadOptions};
//!
//! let model = model::load("smollm2-135m", &LoadOptions::default())?;
//! let vocab = model.tokenizer.vocabulary();
//! let prompt = model.tokenizer.encode("The Apollo 11 moon landing happened on this date (YYYY-MM-DD):", false)?;
//! let llm = PromptedLlm::new(model.engine.clone(), Arc::clone(vocab), &prompt)?;
//! let date = BoolFsa::from_regex(" (19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-9]{2}")?;
//! let target = Product::new(Arc::new(llm), Arc::new(Coerced::new(Arc::new(date), Arc::clone(vocab))?))?;
//! let sequences = Smc::new(Arc::new(Direct::new(Arc::new(target))), None)?.run(&SmcOptions::default())?;
//! for (text, probability) in sequences.decoded_posterior(|token| vocab.bytes_of(token)) {
//!     println!("{probability:.3} {text}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use lockstep_control as control;
pub use lockstep_engine as engine;
pub use lockstep_grammar as grammar;
pub use lockstep_native as native;
pub use lockstep_sample as sample;

pub mod model;
