//! Exact oracles for tests: the laws of potentials, enumeration of every random choice, finite
//! languages.

mod contract;
mod enumerator;
mod weighted_set;

pub use contract::{
    Tolerance, assert_autoreg_fact, assert_batch_consistency, assert_claims, assert_contract, assert_cursor,
    assert_logw_next_consistency, assert_soundness, assert_sparse, assert_tight, words,
};
pub use enumerator::Enumerator;
pub use weighted_set::WeightedSet;
