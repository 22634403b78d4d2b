//! Every potential under the contract test kit, against oracles written here, and potentials that
//! break a law, which the kit must catch.
#![allow(clippy::unwrap_used)] // helpers of tests, where a panic is the report

mod broken;
mod coerced;
#[path = "../shared/listener.rs"]
mod listener;
mod llm;
mod product;
mod sequences;
mod support;
