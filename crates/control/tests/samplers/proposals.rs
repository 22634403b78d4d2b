//! Draws from a proposal, weighted for a target.

use std::sync::Arc;

use lockstep_control::chooser::RowToDraw;
use lockstep_control::potential::{FromSequences, Potential, Row, Run};
use lockstep_control::sampler::{Sampled, TokenSampler, direct_token_sampler};
use lockstep_control::testkit::{Enumerator, WeightedSet};
use lockstep_control::{Awrs, AwrsOptions, Direct, ErrorKind, Keyed, PromptedLlm, draw_from};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::{Engine, EngineConfig, TokenId};
use lockstep_sample::{Bitset, math};

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

/// Every outcome of a draw from each row, weighed for each: together they weigh as the target does.
#[test]
fn a_draw_from_a_row_is_properly_weighted_for_another() {
    let p = |p: [f64; 4]| Row::dense(p.map(f64::ln).to_vec());
    // The end is in the middle, as with a model whose end-of-sequence set has a lower id.
    let (row_len, eos_position) = (4, 2);
    let rows = [
        p([0.1, 0.2, 0.3, 0.4]),
        p([5.0, 0.0, 0.25, 2.0]),
        Row::sparse(vec![1, 2], vec![0.3, -1.0]),
        Row::bits(Arc::new(Bitset::from_ids(4, [0, 2, 3]))),
        Row::dead(),
    ];
    let mut is_covered = 0;
    for row in &rows {
        for target in rows.iter().map(Some).chain([None]) {
            let weights = target.unwrap_or(row);
            let enumerator = Enumerator::default();
            let mut terms = vec![Vec::new(); row_len];
            loop {
                let to_draw = RowToDraw { row, row_len, eos_position, key: keys(1, 1)[0] };
                let drawn = draw_from(&mut enumerator.start(), &to_draw, target).unwrap();
                match drawn.token {
                    None => assert_eq!(drawn, Sampled::DEAD),
                    Some(token) => {
                        let position = if token.is_eos() { eos_position } else { token.index() };
                        let logp = enumerator.log_probability();
                        assert!((drawn.logp.unwrap() - logp).abs() < 1e-12);
                        terms[position].push(drawn.logw + logp);
                    }
                }
                if !enumerator.next_leaf() {
                    break;
                }
            }
            for (position, terms) in terms.iter().enumerate() {
                // What the row lacks cannot be drawn.
                let is_live = row.at(position) > DEAD;
                let expected = if is_live { weights.at(position) } else { DEAD };
                let found = math::log_sum_exp(terms);
                assert!(found == expected || (found - expected).abs() < 1e-12, "{row:?} {target:?}");
                is_covered += usize::from(is_live && expected > DEAD);
            }
        }
    }
    // What two rows share, over all pairs, and each row once more.
    assert_eq!(is_covered, 38 + 12);

    let short = Row::dense([0.0, 0.0]);
    let to_draw = |row| RowToDraw { row, row_len, eos_position, key: keys(1, 1)[0] };
    for (row, target) in [(&rows[0], Some(&short)), (&short, Some(&rows[0])), (&short, None)] {
        let error = draw_from(&mut Keyed::default(), &to_draw(row), target).unwrap_err();
        assert_eq!(error.to_string(), "a row of next-token weights has 2 positions, its vocabulary 4");
    }
}

#[test]
fn a_draw_from_a_row_is_what_the_direct_sampler_does() {
    let (proposal, target) = (log_softmax([5.0, 0.0, 0.0]), log_softmax([1.0, 2.0, 5.0]));
    let sampler = direct_token_sampler(table(&target), Some(table(&proposal))).unwrap();
    let plain = direct_token_sampler(table(&target), None).unwrap();
    let (proposal, target) = (Row::dense(proposal), Row::dense(target));
    for key in keys(5, 50) {
        let from = |row, target| {
            let to_draw = RowToDraw { row, row_len: 3, eos_position: 2, key };
            draw_from(&mut Keyed::default(), &to_draw, target).unwrap()
        };
        assert_eq!(from(&proposal, Some(&target)), sample_start(&sampler, &[key])[0]);
        assert_eq!(from(&target, None), sample_start(&plain, &[key])[0]);
    }
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
