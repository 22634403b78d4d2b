//! A model read byte by byte, against the exact marginal of its bytes.

use std::sync::Arc;

use lockstep_control::potential::{BeamParams, ByteLlm, Claims, Potential, Run};
use lockstep_control::testkit::{
    Tolerance, assert_batch_consistency, assert_claims, assert_contract, assert_cursor, assert_soundness,
    assert_sparse, words,
};
use lockstep_control::{ErrorKind, PromptedLlm};
use lockstep_engine::TokenId;
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::vocab::Vocabulary;

use crate::support::{DEAD, assert_equal, bytes, ids, members, start, vocabulary, with_memory};

const TEXTS: [&str; 8] = ["a", "b", "ab", "aba", "bb", "a", "<s>", "</s>"];

fn tokens() -> Arc<Vocabulary> {
    vocabulary(&TEXTS, &[6], &[7])
}

fn script() -> impl Fn(&[TokenId]) -> Vec<f32> + Clone + Send + 'static {
    let free = with_memory(8);
    move |history| {
        let mut logits = free(history);
        // A special token has no bytes: what is left out would only be divided by.
        logits[6] = f32::NEG_INFINITY;
        logits
    }
}

fn llm(prompt: &[u32]) -> PromptedLlm {
    PromptedLlm::new(start(ScriptedModel::new(8, script())), tokens(), &ids(prompt)).unwrap()
}

fn byte_llm(params: BeamParams) -> ByteLlm {
    ByteLlm::new(llm(&[0]), params).unwrap()
}

/// The probability that the model's text begins with `text`, by all token sequences that cover it;
/// `ended` that it is `text`.
fn marginal(vocab: &Vocabulary, history: &mut Vec<TokenId>, text: &[u8], ended: bool) -> f64 {
    let logits = script()(history);
    let weights: Vec<f64> = logits.iter().map(|logit| f64::from(*logit).exp()).collect();
    let total: f64 = weights.iter().sum();
    if text.is_empty() {
        return if ended { weights[7] / total } else { 1.0 };
    }
    let mut sum = 0.0;
    for token in members(vocab) {
        let (own, p) = (vocab.bytes_of(token), weights[token.index()] / total);
        if own.is_empty() {
            continue;
        }
        if text.starts_with(own) {
            history.push(token);
            sum += p * marginal(vocab, history, &text[own.len()..], ended);
            history.pop();
        } else if own.starts_with(text) && !ended {
            sum += p;
        }
    }
    sum
}

#[test]
fn potentials_27_one_hypothesis_is_consistent() {
    let symbols = bytes("ab");
    for params in [
        BeamParams::new(1),
        BeamParams { heal: false, ..BeamParams::new(1) },
        BeamParams { prune_threshold: 0.3, ..BeamParams::new(2) },
        BeamParams::new(3),
    ] {
        let potential = byte_llm(params);
        let contexts = words(&[symbols.as_slice(), &bytes("x")].concat(), 3);
        let tolerance = Tolerance { absolute: 1e-9, relative: 0.0 };
        assert_contract(&potential, &contexts, tolerance);
        assert_batch_consistency(&potential, &words(&symbols, 5));
        assert_soundness(&potential, &symbols, 3);
        assert_eq!(potential.claims(), Claims { mass_exact: true, monotone: true, ..Claims::default() });
        assert_claims(&potential, &symbols, 5, 0, tolerance);
        for seed in 0..4 {
            assert_cursor(&potential, &[symbols.as_slice(), &ids(&[300])].concat(), 50, seed, tolerance);
        }
    }
}

#[test]
fn a_beam_that_loses_nothing_gives_the_exact_marginal_of_the_bytes() {
    let vocab = tokens();
    let texts = words(&bytes("ab"), 6);
    let error_of = |params: BeamParams| {
        let mut cursor = byte_llm(params).open(texts.len(), &Run::default()).unwrap();
        let rows: Vec<usize> = (0..texts.len()).collect();
        let spans: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
        let _ = cursor.advance(&rows, &spans);
        let (prefixes, completes) = (cursor.score(&rows), cursor.complete(&rows));
        let mut worst = 0.0_f64;
        for ((prefix, complete), text) in prefixes.into_iter().zip(completes).zip(&texts) {
            let text: Vec<u8> = text.iter().map(|byte| byte.0 as u8).collect();
            for (actual, ended) in [(prefix, false), (complete, true)] {
                let expected = marginal(&vocab, &mut ids(&[0]), &text, ended).ln();
                worst = worst.max((actual.unwrap() - expected).abs());
            }
        }
        worst
    };
    assert!(error_of(BeamParams::new(1000)) < 1e-9);
    let [few, one] = [8, 1].map(|k| error_of(BeamParams::new(k)));
    assert!(0.0 < few && few < one, "K bounds how close it comes: {few} of 8, {one} of 1");
}

#[test]
fn without_special_tokens_or_with_them_a_row_sums_to_one() {
    // Here the model does give special tokens mass: it is left out.
    let model = ScriptedModel::new(8, with_memory(8));
    let llm = PromptedLlm::new(start(model), tokens(), &ids(&[0])).unwrap();
    let potential = ByteLlm::new(llm, BeamParams::new(2)).unwrap();
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    for byte in bytes("abbaabab") {
        let total = cursor.logw_next(&[0]).remove(0).unwrap().log_total();
        assert!(total.abs() < 1e-12, "{total}");
        let _ = cursor.advance(&[0], &[&[byte]]);
    }
}

/// A model that always takes the token "abac", hardly ever another.
fn stubborn() -> PromptedLlm {
    let model =
        ScriptedModel::new(8, |_| vec![-9.0, -10.0, -11.0, 0.0, -12.0, -9.5, f32::NEG_INFINITY, -8.0]);
    let vocab = vocabulary(&["a", "b", "c", "abac", "bb", "a", "<s>", "</s>"], &[6], &[7]);
    PromptedLlm::new(start(model), vocab, &ids(&[0])).unwrap()
}

#[test]
fn healing_keeps_the_cut_with_most_mass() {
    // After "aba" the one hypothesis is inside "abac". Only healing knows of b, the end and others.
    let text = bytes("aba");
    let row = |params: BeamParams| {
        let potential = ByteLlm::new(stubborn(), params).unwrap();
        let mut cursor = potential.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[&text]);
        cursor.logw_next(&[0]).remove(0).unwrap()
    };
    let plain = row(BeamParams { heal: false, ..BeamParams::new(1) });
    assert_eq!([plain.at(b'b'.into()), plain.at(b'c'.into()), plain.at(256)], [DEAD, 0.0, DEAD]);
    let healed = row(BeamParams::new(1));
    assert!(healed.log_total().abs() < 1e-12);
    let logits: [f64; 8] = [-9.0, -10.0, -11.0, 0.0, -12.0, -9.5, f64::NEG_INFINITY, -8.0];
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    let p = |id: usize| logits[id].exp() / total;
    // The best cut is a, b, a with the likelier a (id 0) both times; p("abac") has all bytes but c.
    let cut = p(0) * p(1) * p(0);
    let masses = [(b'c', p(3)), (b'a', cut * (p(0) + p(3) + p(5))), (b'b', cut * (p(1) + p(4)))];
    let eos = cut * p(7);
    let sum: f64 = masses.iter().map(|(_, mass)| mass).sum::<f64>() + eos;
    for (byte, mass) in masses {
        assert!((healed.at(byte.into()) - (mass / sum).ln()).abs() < 1e-9, "{byte}");
    }
    assert!((healed.at(256) - (eos / sum).ln()).abs() < 1e-9);

    let potential = ByteLlm::new(stubborn(), BeamParams::new(1)).unwrap();
    assert_contract(&potential, &words(&bytes("abc"), 4), Tolerance::WEIGHTED);
    assert_sparse(&potential, &words(&bytes("abc"), 4));
    let mut cursor = potential.open(1, &Run::default()).unwrap();
    let _ = cursor.advance(&[0], &[&bytes("abaabacbbab")]);
    assert!(cursor.score(&[0]).remove(0).unwrap() > DEAD);
}

#[test]
fn prompts_are_the_rows_own_and_equal_bytes_share_forwards() {
    let model = ScriptedModel::new(8, script());
    let log = model.log();
    let first = PromptedLlm::new(start(model), tokens(), &ids(&[0, 2])).unwrap();
    let second = first.spawn(&ids(&[1, 2])).unwrap();
    let of = |llm: &PromptedLlm| ByteLlm::new(llm.clone(), BeamParams::new(3)).unwrap();
    let run = Run::default();
    let (mut a, mut b) = (of(&first).open(4, &run).unwrap(), of(&second).open(4, &run).unwrap());
    let rows = [0, 1, 2, 3];
    let _ = (a.logw_next(&rows), b.logw_next(&rows));
    assert_eq!(log.rows(), [1, 1], "one history each, however many rows");
    for cursor in [&mut a, &mut b] {
        let spans = vec![bytes("abab"); 4];
        let spans: Vec<&[TokenId]> = spans.iter().map(Vec::as_slice).collect();
        let _ = cursor.advance(&rows, &spans);
    }
    let scores = [a.score(&[3]).remove(0).unwrap(), b.score(&[3]).remove(0).unwrap()];
    assert_ne!(scores[0], scores[1]);
    for (score, llm) in scores.into_iter().zip([llm(&[0, 2]), llm(&[1, 2])]) {
        let mut alone = of(&llm).open(1, &Run::default()).unwrap();
        let _ = alone.advance(&[0], &[&bytes("abab")]);
        assert_eq!(alone.score(&[0]).remove(0).unwrap(), score);
    }
    assert_equal(&of(&first), &of(&first), &words(&bytes("ab"), 2), Tolerance::EXACT);
}

#[test]
fn parameters_outside_their_ranges_are_named() {
    for (params, start) in [
        (BeamParams::new(0), "k: is 0"),
        (BeamParams { prune_threshold: 1.0, ..BeamParams::new(1) }, "prune_threshold: 1 is a share"),
        (BeamParams { prune_threshold: f64::NAN, ..BeamParams::new(1) }, "prune_threshold: NaN"),
    ] {
        let error = ByteLlm::new(llm(&[0]), params).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().starts_with(start), "{error}");
    }
}
