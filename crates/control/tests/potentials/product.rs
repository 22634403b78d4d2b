//! Products: of a model and a constraint, of two models, of languages.

use std::sync::Arc;

use lockstep_control::potential::{BoolFsa, Claims, Coerced, Potential, Run, Want};
use lockstep_control::testkit::{
    Tolerance, WeightedSet, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse,
    words,
};
use lockstep_control::{ErrorKind, Product, PromptedLlm};
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use crate::support::{
    DEAD, and_strangers, assert_equal, function, ids, members, start, vocabulary, with_memory,
};

fn tokens() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "ab", "ba", "a", "<|a|>", "</s>", "<end>"], &[5], &[6, 7])
}

fn llm(vocab: &Arc<Vocabulary>) -> PromptedLlm {
    PromptedLlm::new(start(ScriptedModel::new(9, with_memory(9))), Arc::clone(vocab), &ids(&[5])).unwrap()
}

/// The laws, random scripts, and the sum of the factors as the reference.
fn check(first: Arc<dyn Potential>, second: Arc<dyn Potential>) -> Product {
    let vocab = Arc::clone(first.vocab());
    let symbols = members(&vocab);
    let product = Product::new(Arc::clone(&first), Arc::clone(&second)).unwrap();
    assert_contract(&product, &words(&symbols, 2), Tolerance::WEIGHTED);
    assert_sparse(&product, &words(&symbols, 2));
    assert_soundness(&product, &symbols, 2);
    assert_claims(&product, &symbols, 2, 0, Tolerance::WEIGHTED);
    for seed in 0..4 {
        assert_cursor(&product, &and_strangers(&symbols, &vocab), 60, seed, Tolerance::WEIGHTED);
    }
    let whole = |potential: &dyn Potential, context: &[TokenId]| {
        let mut cursor = potential.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[context]);
        cursor.score(&[0]).remove(0).unwrap()
    };
    let reference = function(&vocab, Claims::default(), move |context, ended| {
        let context = if ended { [context, &[TokenId::EOS]].concat() } else { context.to_vec() };
        let weights = [whole(&*first, &context), whole(&*second, &context)];
        if weights.contains(&DEAD) { DEAD } else { weights[0] + weights[1] }
    });
    assert_equal(&product, &*reference, &words(&symbols, 2), Tolerance::WEIGHTED);
    product
}

#[test]
fn a_model_times_a_constraint_keeps_the_contract() {
    let vocab = tokens();
    let fsa = Arc::new(BoolFsa::from_regex("(ab)*a?").unwrap());
    let constraint: Arc<dyn Potential> = Arc::new(Coerced::new(fsa, Arc::clone(&vocab)).unwrap());
    let product = check(Arc::new(llm(&vocab)), Arc::clone(&constraint));
    assert_eq!(product.claims(), Claims { monotone: true, ..Claims::default() });
    check(constraint, Arc::new(llm(&vocab)));
}

#[test]
fn two_models_keep_the_contract_and_share_a_forward() {
    let vocab = tokens();
    let model = ScriptedModel::new(9, with_memory(9));
    let log = model.log();
    let first = PromptedLlm::new(start(model), Arc::clone(&vocab), &ids(&[0])).unwrap();
    let second = first.spawn(&ids(&[1, 0])).unwrap();
    let product = Product::new(Arc::new(first.clone()), Arc::new(second.clone())).unwrap();
    let run = Run::default();
    let mut cursor = product.open(1, &run).unwrap();
    let ticket = cursor.request(&[0], Want::Row);
    assert_eq!(ticket.wait().len(), 1);
    assert_eq!(log.rows(), [2]);
    drop((cursor, run));
    check(Arc::new(first), Arc::new(second));
    check(Arc::new(llm(&vocab)), Arc::new(llm(&vocab)));
}

#[test]
fn what_the_constraint_kills_costs_the_model_nothing_more() {
    let vocab = tokens();
    let model = ScriptedModel::new(9, with_memory(9));
    let log = model.log();
    let llm = PromptedLlm::new(start(model), Arc::clone(&vocab), &ids(&[5])).unwrap();
    let fsa = Arc::new(BoolFsa::from_regex("(ab)*").unwrap());
    let constraint = Coerced::new(fsa, vocab).unwrap();
    let product = Product::new(Arc::new(llm), Arc::new(constraint)).unwrap();
    let mut cursor = product.open(2, &Run::default()).unwrap();
    let _ = cursor.logw_next(&[0, 1]);
    let _ = cursor.advance(&[0, 1], &[&ids(&[0]), &ids(&[1])]);
    let _ = cursor.logw_next(&[0, 1]);
    assert_eq!((log.rows(), log.held()), (vec![1, 1], 1));
}

#[test]
fn two_languages_keep_the_contract_and_lose_tightness() {
    let set = |strings: &[(&str, f64)]| WeightedSet::new("ab", strings).potential();
    let (first, second) = (set(&[("a", 1.0), ("ab", 2.0)]), set(&[("aa", 1.0), ("ab", 3.0), ("b", 1.0)]));
    let product = check(first, second);
    assert!(!product.claims().tight && !product.claims().mass_exact);
}

#[test]
fn factors_over_other_tokens_or_other_ends_are_refused() {
    let vocab = tokens();
    let fsa: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex("(a|b)*").unwrap());
    let refused = Product::new(Arc::new(llm(&vocab)), Arc::clone(&fsa)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Vocabulary);
    assert!(refused.to_string().contains("coerce"), "{refused}");
    let one_end = vocab.with_eos(lockstep_sample::EosSet::new([7])).unwrap();
    let coerced = Coerced::new(fsa, one_end).unwrap();
    let refused = Product::new(Arc::new(llm(&vocab)), Arc::new(coerced)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Vocabulary);
}
