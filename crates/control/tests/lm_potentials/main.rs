//! Potentials that know a tokenizer or a model: its prompts, its bytes, its canonical tokens.
#![allow(clippy::unwrap_used)] // also in the helpers of tests

mod byte_llm;
mod canonical;
mod harmony;
mod llm;
mod real;
mod stateful;
#[path = "../potentials/support.rs"]
#[allow(dead_code)] // shared with the other tests of potentials
mod support;
