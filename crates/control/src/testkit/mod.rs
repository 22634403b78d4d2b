//! Exact oracles for tests: enumeration of every random choice, finite languages, scripted
//! potentials.

mod enumerator;
mod weighted_set;

pub use enumerator::Enumerator;
pub use weighted_set::WeightedSet;
