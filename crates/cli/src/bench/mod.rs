//! `lockstep bench`: measurements of this machine, as ratios taken in one run.

pub(crate) mod draw;
mod figures;
pub(crate) mod mask;
mod plain;
pub(crate) mod step;
mod timed;
