//! A language model under a prompt.

use std::sync::Arc;

use lockstep_control::PromptedLlm;
use lockstep_control::potential::{Claims, Potential, Run, Want};
use lockstep_control::testkit::{
    Tolerance, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse, words,
};
use lockstep_engine::testkit::ScriptedModel;
use lockstep_sample::{TokenId, math};

use crate::support::{and_strangers, assert_equal, function, ids, members, start, vocabulary, with_memory};

const TEXTS: [&str; 8] = ["a", "b", "ab", "a", "é", "<s>", "</s>", "<end>"];
/// Logits of the model: two more than there are ids.
const PADDED: usize = 10;

/// A padded model, and its potential by definition.
fn model(eos: &[u32], prompt: &[u32], temperature: f64) -> (PromptedLlm, Arc<dyn Potential>) {
    model_of(PADDED, eos, prompt, temperature)
}

/// A model of some logits, and its potential by definition: sums of log-softmax over the real ids.
fn model_of(
    n_logits: usize,
    eos: &[u32],
    prompt: &[u32],
    temperature: f64,
) -> (PromptedLlm, Arc<dyn Potential>) {
    let vocab = vocabulary(&TEXTS, &[5], eos);
    let script = with_memory(n_logits);
    let prompt = ids(prompt);
    let llm =
        PromptedLlm::new(start(ScriptedModel::new(n_logits, script.clone())), Arc::clone(&vocab), &prompt);
    let tables = Arc::clone(&vocab);
    let reference = function(&vocab, Claims::default(), move |context, ended| {
        let end = ended.then_some(TokenId::EOS);
        let mut history = prompt.clone();
        let mut sum = 0.0;
        for token in context.iter().copied().chain(end) {
            let mut logits: Vec<f64> =
                script(&history).into_iter().map(|l| f64::from(l) / temperature).collect();
            logits.resize(tables.len(), f64::NEG_INFINITY);
            let eos: Vec<f64> = tables.eos().ids().iter().map(|id| logits[*id as usize]).collect();
            let logit = if token.is_eos() { math::log_sum_exp(&eos) } else { logits[token.index()] };
            sum += logit - math::log_sum_exp(&logits);
            history.push(token);
        }
        sum
    });
    (llm.unwrap().with_temperature(temperature).unwrap(), reference)
}

#[test]
fn potentials_19_a_padded_model_is_normalised_over_its_ids_and_consistent() {
    for eos in [&[][..], &[6], &[7, 6]] {
        for temperature in [1.0, 0.7] {
            let (llm, reference) = model(eos, &[5, 1], temperature);
            let symbols = members(llm.vocab());
            let contexts = words(&symbols, 2);
            assert_contract(&llm, &contexts, Tolerance { absolute: 1e-6, relative: 0.0 });
            assert_contract(&llm, &contexts, Tolerance::WEIGHTED);
            assert_equal(&llm, &*reference, &contexts, Tolerance::WEIGHTED);
            for seed in 0..3 {
                assert_cursor(&llm, &and_strangers(&symbols, llm.vocab()), 60, seed, Tolerance::WEIGHTED);
            }
            assert_soundness(&llm, &symbols, 2);
            // Mass-exact: each row sums to 1 over the ids.
            assert!(llm.claims().mass_exact && llm.claims().monotone);
            assert_claims(&llm, &symbols, 2, 0, Tolerance::WEIGHTED);
            assert_eq!(llm.claims().tight, !eos.is_empty());
        }
    }
}

#[test]
fn ids_that_the_model_lacks_weigh_nothing() {
    for (eos, tight) in [(&[][..], false), (&[4, 7], true), (&[6, 7], false)] {
        let (llm, reference) = model_of(6, eos, &[5, 1], 0.7);
        let symbols = members(llm.vocab());
        let contexts = words(&symbols, 2);
        assert_contract(&llm, &contexts, Tolerance::WEIGHTED);
        assert_sparse(&llm, &contexts);
        assert_equal(&llm, &*reference, &contexts, Tolerance::WEIGHTED);
        assert_cursor(&llm, &and_strangers(&symbols, llm.vocab()), 60, 1, Tolerance::WEIGHTED);
        assert_claims(&llm, &symbols, 1, 1, Tolerance::WEIGHTED);
        assert_eq!(llm.claims().tight, tight);
        let mut cursor = llm.open(1, &Run::default()).unwrap();
        let missing = symbols.iter().filter(|token| token.index() >= 6).copied().collect::<Vec<_>>();
        let weights = cursor.probe(&[0], vec![missing.clone()]).remove(0).unwrap();
        assert_eq!(weights, vec![f64::NEG_INFINITY; missing.len()]);
    }
}

#[test]
fn potentials_20_the_masses_of_two_eos_ids_are_folded() {
    let probabilities = [0.3_f32, 0.1, 0.4, 0.2];
    let model = ScriptedModel::new(4, move |_| probabilities.map(f32::ln).to_vec());
    let llm = PromptedLlm::new(start(model), vocabulary(&["a", "<1>", "b", "<2>"], &[], &[1, 3]), &ids(&[0]))
        .unwrap();
    let mut cursor = llm.open(1, &Run::default()).unwrap();
    let row = cursor.logw_next(&[0]).remove(0).unwrap();
    assert!((row.at(1) - 0.3_f64.ln()).abs() < 1e-7, "{}", row.at(1));
    assert_eq!(row.at(3), f64::NEG_INFINITY);
    let probed = cursor.probe(&[0], vec![ids(&[1, 3, 0])]).remove(0).unwrap();
    assert_eq!(probed[..2], [f64::NEG_INFINITY; 2], "ids of the set are no tokens of their own");
    let complete = cursor.complete(&[0]).remove(0).unwrap();
    assert!((complete - 0.3_f64.ln()).abs() < 1e-7, "{complete}");
}

#[test]
fn potentials_21_prompts_with_one_last_token_do_not_mix_in_a_batch() {
    let solo = |prompt: &[u32]| {
        let (llm, _) = model(&[6], prompt, 1.0);
        let row = llm.open(1, &Run::default()).unwrap().logw_next(&[0]).remove(0).unwrap();
        row.to_dense()
    };
    let model = ScriptedModel::new(PADDED, with_memory(PADDED));
    let log = model.log();
    let first = PromptedLlm::new(start(model), vocabulary(&TEXTS, &[5], &[6]), &ids(&[0, 2])).unwrap();
    let second = first.spawn(&ids(&[1, 2])).unwrap();
    let run = Run::default();
    let (mut a, mut b) = (first.open(1, &run).unwrap(), second.open(1, &run).unwrap());
    let (in_a, in_b) = (a.request(&[0], Want::Row), b.request(&[0], Want::Row));
    let rows = [in_a, in_b].map(|ticket| ticket.wait().remove(0).unwrap().into_row().to_dense());
    assert_eq!(log.rows(), [2], "one forward of two rows");
    assert_ne!(rows[0], rows[1]);
    assert_eq!(rows, [solo(&[0, 2]), solo(&[1, 2])]);
}

#[test]
fn rows_of_one_history_share_a_forward_and_give_their_sequences_back() {
    let model = ScriptedModel::new(PADDED, with_memory(PADDED));
    let log = model.log();
    let llm = PromptedLlm::new(start(model), vocabulary(&TEXTS, &[5], &[6]), &ids(&[0])).unwrap();
    let run = Run::default();
    let mut cursor = llm.open(3, &run).unwrap();
    let _ = cursor.logw_next(&[0, 1, 2]);
    let _ = cursor.advance(&[0, 1, 2], &[&ids(&[1]), &ids(&[2]), &ids(&[1])]);
    let _ = cursor.logw_next(&[0, 1, 2]);
    assert_eq!(log.rows(), [1, 2]);
    cursor.release(&[0, 2]);
    let _ = cursor.advance(&[1], &[&ids(&[1])]);
    let _ = cursor.logw_next(&[1]);
    assert_eq!((log.rows(), log.held()), (vec![1, 2, 1], 1));
}

#[test]
fn a_row_that_has_ended_keeps_its_score_whatever_is_asked_of_it() {
    let (llm, _) = model(&[6], &[0], 1.0);
    let mut cursor = llm.open(2, &Run::default()).unwrap();
    let _ = cursor.advance(&[0, 1], &[&[TokenId::EOS], &ids(&[1])]);
    let score = cursor.score(&[0]).remove(0).unwrap();
    let rows = cursor.logw_next(&[0, 1]);
    assert!(rows[0].is_err() && rows[1].is_ok());
    assert_eq!(cursor.score(&[0]).remove(0).unwrap(), score);
}

#[test]
fn prompts_and_lengths_that_do_not_fit_are_errors_naming_the_field() {
    let (llm, _) = model(&[6], &[0], 1.0);
    for (prompt, text) in [(vec![], "prompt: is empty"), (ids(&[10]), "prompt: 10 is no token")] {
        let error = llm.spawn(&prompt).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(
            llm.clone().with_temperature(temperature).unwrap_err().to_string().starts_with("temperature")
        );
    }
    assert!(Arc::ptr_eq(llm.spawn(&ids(&[1])).unwrap().vocab(), llm.vocab()));
}
