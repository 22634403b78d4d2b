//! Exact oracles for tests: the laws of potentials and samplers, enumeration of every random choice and of
//! every order, finite languages.

mod contract;
mod enumerator;
mod orders;
mod proper;
mod ratio;
mod weighted_set;

pub use contract::{
    Tolerance, assert_autoreg_fact, assert_batch_consistency, assert_claims, assert_contract, assert_cursor,
    assert_logw_next_consistency, assert_soundness, assert_sparse, assert_tight, words,
};
pub use enumerator::Enumerator;
pub use orders::{for_each_order, two_loops};
pub use proper::assert_properly_weighted;
pub use ratio::Ratio;
pub use weighted_set::WeightedSet;
