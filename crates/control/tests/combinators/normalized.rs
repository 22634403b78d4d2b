//! Potentials with rows that sum to 1.

use std::sync::Arc;

use lockstep_control::potential::{Claims, Draws, Potential, Run, Want};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{PotentialExt, PromptedLlm};
use lockstep_engine::testkit::ScriptedModel;
use lockstep_sample::{DrawKey, DrawMethod, ProblemKey, TokenId};

use super::{check, check_against, fsa, llm, tokens, weight};
use crate::support::{DEAD, byte_set, bytes, function, ids, start, with_memory};

/// The laws, and the definition as the reference.
fn check_normalized(inner: Arc<dyn Potential>) {
    let normalized = inner.clone().normalize();
    check(&normalized, 3);
    let vocab = Arc::clone(inner.vocab());
    check_against(&normalized, move |context, ended| {
        let whole = weight(&*inner, context, ended);
        if whole == DEAD {
            return DEAD;
        }
        let total = |context: &[TokenId]| {
            let before = weight(&*inner, context, false);
            let tokens = (0..vocab.len() as u32).map(TokenId).filter(|token| vocab.is_member(*token));
            let after = tokens.map(|token| weight(&*inner, &[context, &[token]].concat(), false));
            let steps = after.chain([weight(&*inner, context, true)]).map(|w| (w - before).exp());
            steps.sum::<f64>().ln()
        };
        let passed: f64 = (0..context.len()).map(|n| total(&context[..n])).sum();
        whole - passed - if ended { total(context) } else { 0.0 }
    });
}

#[test]
fn rows_sum_to_one_and_the_weights_are_as_defined() {
    let vocab = tokens();
    check_normalized(WeightedSet::new("ab", &[("", 0.5), ("ab", 3.0), ("ba", 1.0)]).potential());
    check_normalized(byte_set_tempered());
    check_normalized(fsa("(ab)*|b", &vocab));
    check_normalized(llm(&vocab).tempered(0.5).unwrap().shared());
    check_normalized(llm(&vocab).product(fsa("(ab)*a?", &vocab)).unwrap().shared());
}

/// Small weights over a small alphabet, which no power leaves normalised.
fn byte_set_tempered() -> Arc<dyn Potential> {
    let set = WeightedSet::new("abc", &[("a", 0.2), ("abc", 1e-3), ("cc", 7.0)]).potential();
    set.tempered(2.0).unwrap().shared()
}

#[test]
fn potentials_25_a_normalised_forced_step_contributes_nothing() {
    let forced = byte_set(&[("aab", 0.3)]).tempered(3.0).unwrap().normalize();
    let mut cursor = forced.open(1, &Run::default()).unwrap();
    let start = cursor.score(&[0]).remove(0).unwrap();
    for byte in bytes("aab") {
        assert_eq!(cursor.probe(&[0], vec![vec![byte]]).remove(0).unwrap(), [0.0]);
        let _ = cursor.advance(&[0], &[&[byte]]);
        assert_eq!(cursor.score(&[0]).remove(0).unwrap(), start);
    }
    assert_eq!(cursor.complete(&[0]).remove(0).unwrap(), start);
}

#[test]
fn a_row_of_nothing_stays_so() {
    // Live, but with no way on: not tight, so not mass-exact either.
    let vocab = tokens();
    let claims = Claims { monotone: true, ..Claims::default() };
    let stuck = function(&vocab, claims, |context, ended| match (context, ended) {
        ([] | [TokenId(0)], false) => -1.5,
        _ => DEAD,
    });
    let normalized = stuck.clone().normalize();
    assert!(!normalized.claims().mass_exact);
    check(&normalized, 0);
    check_normalized(stuck);
    let mut cursor = normalized.open(1, &Run::default()).unwrap();
    let _ = cursor.advance(&[0], &[&ids(&[0])]);
    assert_eq!(cursor.score(&[0]).remove(0).unwrap(), -1.5);
    assert_eq!(cursor.logw_next(&[0]).remove(0).unwrap().log_total(), DEAD);
}

#[test]
fn a_draw_brings_the_sum_and_no_row_is_looked_at() {
    let vocab = tokens();
    let model = ScriptedModel::new(9, with_memory(9));
    let log = model.log();
    let llm = PromptedLlm::new(start(model), Arc::clone(&vocab), &ids(&[0])).unwrap();
    let product = llm.clone().product(fsa("(ab)*a?", &vocab)).unwrap();
    let normalized = product.clone().normalize();
    let run = Run::default();
    let mut cursor = normalized.open(2, &run).unwrap();
    let keys =
        vec![DrawKey::new(ProblemKey::new(1, 0), 0, 1, 0), DrawKey::new(ProblemKey::new(1, 0), 1, 1, 0)];
    let draws = Draws { keys, method: DrawMethod::default(), masks: None };
    let drawn: Vec<_> = cursor
        .request(&[0, 1], Want::Draw(draws))
        .wait()
        .into_iter()
        .map(|answer| answer.unwrap().into_draw().unwrap())
        .collect();
    let spans: Vec<[TokenId; 1]> = drawn.iter().map(|drawn| [drawn.token]).collect();
    let _ = cursor.advance(&[0, 1], &[&spans[0], &spans[1]]);
    let scores = cursor.score(&[0, 1]);
    assert_eq!(log.rows(), [1], "the draws' one forward is the only one");
    for ((drawn, span), score) in drawn.iter().zip(&spans).zip(scores) {
        assert_eq!(drawn.log_mass, 0.0);
        assert!((score.unwrap() - drawn.logp).abs() < 1e-12);
        assert!((weight(&normalized, span, false) - drawn.logp).abs() < 1e-12);
    }
    // What is mass-exact is normalised already.
    assert_eq!(llm.clone().normalize().claims(), llm.claims());
    assert!(llm.normalize().open(1, &run).unwrap().draws());
}
