//! Draws from a proposal, weighted for a target.

use std::sync::Arc;

use lockstep_control::potential::{FromSequences, Potential, Run};
use lockstep_control::sampler::TokenSampler;
use lockstep_control::testkit::{Enumerator, WeightedSet};
use lockstep_control::{Awrs, AwrsOptions, Direct, ErrorKind, PromptedLlm};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::{Engine, EngineConfig, TokenId};

use crate::support::{DEAD, Table, keys, sample, sample_start};

fn table(log_weights: &[f64]) -> Arc<dyn Potential> {
    let names: Vec<String> = (1..log_weights.len()).map(|i| i.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Arc::new(FromSequences::new(Table::new(&vocabulary(&names, &[]), log_weights)))
}

fn log_softmax(logits: [f64; 3]) -> Vec<f64> {
    let log_z = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
    logits.iter().map(|l| l - log_z).collect()
}

#[test]
fn samplers_02_importance_weights_of_a_proposal() {
    let (proposal, target) = (log_softmax([5.0, 0.0, 0.0]), log_softmax([1.0, 2.0, 5.0]));
    let sampler = Direct::with_proposal(table(&target), table(&proposal)).unwrap();
    let enumerator = Enumerator::default();
    let mut seen = Vec::new();
    loop {
        let mut cursor = sampler.open(1, &Run::default()).unwrap();
        let drawn = sample(&mut *cursor, &keys(1, 1), &mut enumerator.start())[0];
        assert!((drawn.logp.unwrap() - enumerator.log_probability()).abs() < 1e-12);
        seen.push(drawn.logw);
        if !enumerator.next_leaf() {
            break;
        }
    }
    for (logw, expected) in seen.iter().zip([-4.052_498_0, 1.947_502_0, 4.947_502_0]) {
        assert!((logw - expected).abs() < 5e-8, "{logw} {expected}");
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn samplers_02_target_and_proposal_are_asked_in_one_tick() {
    let model = ScriptedModel::new(3, |history: &[TokenId]| vec![0.0, history.len() as f32, 0.5]);
    let log = model.log();
    let engine = Engine::start(model, EngineConfig::default());
    let llm = |prompt: &[u32]| -> Arc<dyn Potential> {
        let prompt: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
        Arc::new(PromptedLlm::new(engine.clone(), vocabulary(&["a", "b", "$"], &[2]), &prompt).unwrap())
    };
    let sampler = Direct::with_proposal(llm(&[0]), llm(&[0, 1])).unwrap();
    let drawn = sample_start(&sampler, &keys(1, 5));
    assert!(drawn.iter().all(|drawn| drawn.logw.is_finite()));
    assert_eq!((log.forwards(), log.rows()), (1, vec![2]));
}

#[test]
fn samplers_03_a_proposal_over_other_tokens_is_refused() {
    let set =
        |alphabet: &str| -> Arc<dyn Potential> { WeightedSet::new(alphabet, &[("a", 1.0)]).potential() };
    let error = Direct::with_proposal(set("ab"), set("ba")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Vocabulary);
    assert_eq!(error.to_string(), "proposals with different tokenizers are not supported");
}

/// `E[exp(logw) · 1{token = t}]` over many keys is the target's weight where the condition accepts,
/// within 5 standard errors: about 2 false alarms in 10⁶ choices of the keys.
#[test]
fn awrs_under_a_proposal_is_properly_weighted() {
    let ln = |p: [f64; 4]| p.map(f64::ln).to_vec();
    let (proposal, target) = ([0.5, 0.3, 0.1, 0.1], [0.1, 0.4, 0.3, 0.2]);
    let accepted = [true, false, true, false];
    let vocab = vocabulary(&["1", "2", "3"], &[]);
    let condition = Arc::new(FromSequences::new(Table::accepting(&vocab, &[0, 2])));
    for max_rejects in [None, Some(2)] {
        let options = AwrsOptions { max_rejects, ..AwrsOptions::default() };
        let sampler = Awrs::new(table(&ln(target)), condition.clone(), options)
            .unwrap()
            .with_proposal(table(&ln(proposal)))
            .unwrap();
        let n = 20_000;
        let drawn = sample_start(&sampler, &keys(3, n));
        for position in 0..4 {
            let token = vocab.token_at(position);
            let weights = drawn.iter().map(|d| if d.token == Some(token) { d.logw.exp() } else { 0.0 });
            let (sum, squares) = weights.fold((0.0, 0.0), |(s, q), w| (s + w, q + w * w));
            let mean = sum / f64::from(n);
            let error = ((squares / f64::from(n) - mean * mean) / f64::from(n)).sqrt();
            let expected = if accepted[position] { target[position] } else { 0.0 };
            assert!((mean - expected).abs() <= 5.0 * error, "{position}: {mean} {expected} {error}");
        }
    }
}

#[test]
fn samplers_12_improper_weights_under_a_proposal_are_0_or_dead() {
    let vocab = vocabulary(&["1", "2", "3"], &[]);
    let condition = Arc::new(FromSequences::new(Table::accepting(&vocab, &[0, 2])));
    let options =
        AwrsOptions { proper_weights: false, max_rejects: Some(1), max_accepts: 1, ..AwrsOptions::default() };
    let proposal = table(&[0.4_f64.ln(), 0.3_f64.ln(), 0.2_f64.ln(), 0.1_f64.ln()]);
    let sampler = Awrs::new(table(&[-1.0, -2.0, -3.0, -4.0]), condition, options)
        .unwrap()
        .with_proposal(proposal)
        .unwrap();
    let drawn = sample_start(&sampler, &keys(1, 200));
    assert!(drawn.iter().all(|drawn| drawn.logw == 0.0 || drawn.logw == DEAD));
    assert!(drawn.iter().any(|drawn| drawn.logw == 0.0) && drawn.iter().any(|drawn| drawn.logw == DEAD));
}
