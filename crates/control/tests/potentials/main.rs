//! Every potential under the contract test kit, against oracles written here, and potentials that
//! break a law, which the kit must catch.

mod broken;
mod coerced;
mod llm;
mod product;
mod support;
