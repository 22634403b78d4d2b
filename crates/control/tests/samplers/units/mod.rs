//! Units of several tokens, in samplers and in runs.

mod boundaries;
mod draws;
mod runs;
mod support;
