//! `lockstep bench`: measurements of this machine, as ratios taken in one run, and of inference.

pub(crate) mod cache;
pub(crate) mod draw;
pub(crate) mod engine;
mod figures;
pub(crate) mod inference;
pub(crate) mod mask;
mod plain;
mod rotation;
mod select;
pub(crate) mod smc;
pub(crate) mod step;
mod timed;
