//! Combinators under the contract test kit, against references written here.
#![allow(clippy::unwrap_used)] // also in the helpers of tests

mod coerced;
mod ensemble;
mod normalized;
mod product;
mod sharing;
#[path = "../potentials/support.rs"]
mod support;
mod tempered;

use std::sync::Arc;

use lockstep_control::potential::{Claims, Potential, Run};
use lockstep_control::testkit::{
    Tolerance, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse, words,
};
use lockstep_control::{BoolFsa, PotentialExt, PromptedLlm};
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use support::{and_strangers, assert_equal, function, ids, members, start, vocabulary, with_memory};

/// Equal bytes, several bytes, a special token, two ends.
fn tokens() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "ab", "ba", "a", "<|a|>", "</s>", "<end>"], &[5], &[6, 7])
}

/// A model over `vocab`, with one id of padding.
fn llm(vocab: &Arc<Vocabulary>) -> PromptedLlm {
    let n = vocab.len() + 1;
    PromptedLlm::new(start(ScriptedModel::new(n, with_memory(n))), Arc::clone(vocab), &ids(&[0])).unwrap()
}

/// The texts that `pattern` matches, over tokens.
fn fsa(pattern: &str, vocab: &Arc<Vocabulary>) -> Arc<dyn Potential> {
    BoolFsa::from_regex(pattern).unwrap().coerce(Arc::clone(vocab)).unwrap().shared()
}

/// All laws and claims to depth 2, where completions add up to `completion` tokens, and random
/// scripts with ids that are no members.
fn check(potential: &dyn Potential, completion: usize) {
    let symbols = members(potential.vocab());
    assert_contract(potential, &words(&symbols, 2), Tolerance::WEIGHTED);
    assert_sparse(potential, &words(&symbols, 1));
    assert_soundness(potential, &symbols, 2);
    assert_claims(potential, &symbols, 2, completion, Tolerance::WEIGHTED);
    for seed in 0..3 {
        assert_cursor(potential, &and_strangers(&symbols, potential.vocab()), 50, seed, Tolerance::WEIGHTED);
    }
}

/// Fails unless `potential` gives every sequence of up to two tokens what `reference` says.
fn check_against<F>(potential: &dyn Potential, reference: F)
where
    F: Fn(&[TokenId], bool) -> f64 + Send + Sync + 'static,
{
    let reference = function(potential.vocab(), Claims::default(), reference);
    assert_equal(potential, &*reference, &words(&members(potential.vocab()), 2), Tolerance::WEIGHTED);
}

/// What a potential gives a whole sequence.
fn weight(potential: &dyn Potential, context: &[TokenId], ended: bool) -> f64 {
    let context = if ended { [context, &[TokenId::EOS]].concat() } else { context.to_vec() };
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    let _ = cursor.advance(&[0], &[&context]);
    cursor.score(&[0]).remove(0).unwrap()
}
