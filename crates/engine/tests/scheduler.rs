//! The scheduler, driven from outside with a scripted model.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::num::NonZero;
use std::sync::{Arc, Barrier};
use std::thread;

use lockstep_engine::model::ModelErrorKind;
use lockstep_engine::row::{Reply, RowRequest, Wish};
use lockstep_engine::testkit::{Call, ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{Engine, EngineConfig, EngineError, Party, Sequence, StragglerWait, TokenId};
use lockstep_sample::{Bitset, DrawKey, DrawMethod, ProblemKey};

fn vocab() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "c", "$"], &[3])
}

/// Logits that tell the history.
fn script(history: &[TokenId]) -> Vec<f32> {
    let (length, last) = (history.len() as f32, history.last().map_or(0, |t| t.0) as f32);
    (0..4).map(|t| 0.1 * length * (t + 1) as f32 * (1.0 + last)).collect()
}

/// Forwards wait for every party, so counts of forwards are exact.
fn config() -> EngineConfig {
    EngineConfig {
        straggler_wait: StragglerWait::Unlimited,
        kv_bytes: Some(1000),
        threads: NonZero::new(2),
        ..EngineConfig::default()
    }
}

fn row(seq: &Sequence, tokens: &[u32], wish: Wish) -> RowRequest {
    RowRequest {
        seq: seq.id(),
        tokens: tokens.iter().copied().map(TokenId).collect(),
        temperature: 1.0,
        vocab: vocab(),
        wishes: vec![wish],
    }
}

/// The log-weights of a, b, c and EOS after `tokens` on `seq`.
fn weights(party: &Party, seq: &Sequence, tokens: &[u32]) -> Vec<f64> {
    let all = Wish::Tokens(vec![TokenId(0), TokenId(1), TokenId(2), TokenId::EOS]);
    let mut answers = party.submit(vec![row(seq, tokens, all)]).unwrap().wait();
    match answers.remove(0).remove(0) {
        Ok(Reply::Tokens(weights)) => weights,
        other => panic!("{other:?}"),
    }
}

/// What [`weights`] must be after `history`.
fn expected(history: &[u32]) -> Vec<f64> {
    let history: Vec<TokenId> = history.iter().copied().map(TokenId).collect();
    let logits = script(&history);
    let log_z = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
    logits.iter().map(|l| f64::from(*l) - log_z).collect()
}

fn assert_close(a: &[f64], b: &[f64]) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
}

#[test]
fn every_wish_gets_its_answer_and_forks_keep_their_histories() {
    let engine = Engine::start(ScriptedModel::new(4, script), config());
    let party = engine.party();
    let seq = party.open(None);
    let key = DrawKey::new(ProblemKey::new(1, 0), 0, 1, 0);
    let mask = Arc::new(Bitset::from_ids(4, [1]));
    let request = RowRequest {
        wishes: vec![
            Wish::Draw { key, method: DrawMethod::GumbelMax, mask: Some(mask) },
            Wish::Row,
            Wish::Hold,
            Wish::Tokens(vec![TokenId::EOS]),
        ],
        ..row(&seq, &[0, 2], Wish::Hold)
    };
    let answers = party.submit(vec![request]).unwrap().wait().remove(0);
    let [Ok(Reply::Drawn(drawn)), Ok(Reply::Row(shown)), Ok(Reply::Row(held)), Ok(Reply::Tokens(eos))] =
        &answers[..]
    else {
        panic!("{answers:?}");
    };
    let row_after = expected(&[0, 2]);
    assert_eq!((drawn.token, drawn.logp), (TokenId(1), 0.0));
    assert_close(&[drawn.log_mass], &row_after[1..2]);
    let mut filled = [0.0; 4];
    shown.fill(&mut filled);
    assert_close(&filled, &row_after);
    assert_close(&[held.logw(TokenId(2)), eos[0]], &row_after[2..]);

    let fork = seq.fork();
    assert_close(&weights(&party, &fork, &[1]), &expected(&[0, 2, 1]));
    assert_close(&weights(&party, &seq, &[0]), &expected(&[0, 2, 0]));
    seq.truncate(1);
    assert_close(&weights(&party, &seq, &[1]), &expected(&[0, 1]));
    // The handles that were read earlier still hold their own forward's logits.
    assert_close(&[held.logw(TokenId(2))], &row_after[2..3]);
}

#[test]
fn rows_beyond_a_batch_are_served_in_slices_of_one_step() {
    let model = ScriptedModel::new(4, script).max_batch_tokens(3);
    let log = model.log();
    let engine = Engine::start(model, config());
    let party = engine.party();
    let histories: Vec<Vec<u32>> = vec![vec![0], vec![1, 2, 0, 1, 2], vec![2], vec![0, 0]];
    let rows: Vec<Sequence> = histories.iter().map(|_| party.open(None)).collect();
    let requests = rows.iter().zip(&histories).map(|(seq, tokens)| row(seq, tokens, Wish::Row)).collect();
    let answers = party.submit(requests).unwrap().wait();
    for (answer, history) in answers.iter().zip(&histories) {
        let [Ok(Reply::Row(row))] = &answer[..] else { panic!("{answer:?}") };
        let mut filled = [0.0; 4];
        row.fill(&mut filled);
        assert_close(&filled, &expected(history));
    }
    let stats = engine.stats();
    assert_eq!((log.forwards(), stats.forwards, stats.steps, stats.draw_passes), (3, 3, 1, 1));
    assert_eq!((stats.rows, stats.tokens), (4, 9));
}

#[test]
fn smc_32_two_parties_on_two_threads_take_the_larger_of_their_step_counts() {
    let model = ScriptedModel::new(4, script);
    let log = model.log();
    let engine = Engine::start(model, config());
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        for (steps, rows) in [(7, 2), (12, 3)] {
            let (engine, ready) = (&engine, &ready);
            scope.spawn(move || {
                let party = engine.party();
                let seqs: Vec<Sequence> = (0..rows).map(|_| party.open(None)).collect();
                ready.wait();
                for _ in 0..steps {
                    let requests = seqs.iter().map(|seq| row(seq, &[1], Wish::Hold)).collect();
                    let answers = party.submit(requests).unwrap().wait();
                    assert!(answers.iter().flatten().all(Result::is_ok));
                }
            });
        }
    });
    assert_eq!(log.forwards(), 12);
    assert_eq!(log.rows(), [vec![5; 7], vec![3; 5]].concat());
}

#[test]
fn smc_32_a_nested_call_of_the_same_engine_does_not_wait_for_its_caller() {
    let engine = Engine::start(ScriptedModel::new(4, script), config());
    let outer = engine.party();
    let seq = outer.open(None);
    assert_close(&weights(&outer, &seq, &[0]), &expected(&[0]));
    // `outer` is busy here: user code, which calls the engine as a party of its own.
    let inner = engine.party();
    let nested = inner.open(None);
    assert_close(&weights(&inner, &nested, &[1]), &expected(&[1]));
    drop(inner);
    assert_close(&weights(&outer, &seq, &[2]), &expected(&[0, 2]));
}

#[test]
fn a_busy_party_is_not_waited_for_longer_than_the_straggler_wait() {
    let config = EngineConfig { straggler_wait: StragglerWait::Adaptive, ..config() };
    let engine = Engine::start(ScriptedModel::new(4, script), config);
    // At work on another thread, for as long as it lives.
    let _busy = thread::scope(|scope| scope.spawn(|| engine.party()).join().unwrap());
    let party = engine.party();
    let seq = party.open(None);
    for _ in 0..4 {
        weights(&party, &seq, &[0]);
    }
    // At least twice. (The wait is tiny here, so `party` too is late if it is slow to block.)
    let stats = engine.stats();
    assert!(stats.straggler_waits >= 2, "{stats:?}");
    assert_eq!(stats.steps, 4);
}

#[test]
fn requests_are_refused_whole_and_name_row_and_field() {
    let engine = Engine::start(ScriptedModel::new(4, script), config());
    let party = engine.party();
    let (good, bad) = (party.open(None), party.open(None));
    let refused = |request: RowRequest, field: &str| {
        let rows = vec![row(&good, &[0], Wish::Row), request];
        let error = party.submit(rows).unwrap_err();
        assert!(error.to_string().starts_with(&format!("rows[1].{field}: ")), "{error}");
    };
    refused(row(&bad, &[], Wish::Row), "tokens");
    refused(row(&bad, &[4], Wish::Row), "tokens");
    refused(row(&bad, &[0; (1 << 16) + 1], Wish::Row), "tokens");
    refused(RowRequest { temperature: 0.0, ..row(&bad, &[0], Wish::Row) }, "temperature");
    refused(RowRequest { temperature: f64::NAN, ..row(&bad, &[0], Wish::Row) }, "temperature");
    let key = DrawKey::new(ProblemKey::new(1, 0), 0, 1, 0);
    let mask = Some(Arc::new(Bitset::full(3)));
    refused(row(&bad, &[0], Wish::Draw { key, method: DrawMethod::GumbelMax, mask }), "mask");
    // Nothing was fed.
    assert_eq!(engine.stats().forwards, 0);
    assert_close(&weights(&party, &good, &[1]), &expected(&[1]));
}

#[test]
fn a_bad_row_errs_alone() {
    let model = ScriptedModel::new(4, |history: &[TokenId]| match history {
        [TokenId(0)] => vec![0.0, f32::NAN, 0.0, 0.0],
        [TokenId(1)] => vec![f32::NEG_INFINITY; 4],
        _ => script(history),
    });
    let engine = Engine::start(model, config());
    let party = engine.party();
    let seqs: Vec<Sequence> = (0..3).map(|_| party.open(None)).collect();
    let mut requests: Vec<RowRequest> =
        seqs.iter().zip(0..).map(|(seq, token)| row(seq, &[token], Wish::Row)).collect();
    // A sequence that has a row in this step already, and an adapter that the model does not have.
    requests.push(row(&seqs[2], &[0], Wish::Row));
    let adapted = party.open(Some("tuned")).fork();
    requests.push(row(&adapted, &[0], Wish::Row));
    let answers = party.submit(requests).unwrap().wait();
    assert!(matches!(answers[0][0], Err(EngineError::Row(_))));
    assert!(matches!(answers[1][0], Err(EngineError::Row(_))));
    let Ok(Reply::Row(good)) = &answers[2][0] else { panic!("{:?}", answers[2]) };
    assert_close(&[good.logw(TokenId(0))], &expected(&[2])[..1]);
    assert!(answers[3][0].as_ref().unwrap_err().to_string().contains("already has a row"));
    assert!(answers[4][0].as_ref().unwrap_err().to_string().contains("no adapter `tuned`"));
}

#[test]
fn a_failing_forward_errs_its_rows_and_the_engine_goes_on() {
    let model = ScriptedModel::new(4, script).fails_at([1], ModelErrorKind::Limit);
    let engine = Engine::start(model, config());
    let party = engine.party();
    let seq = party.open(None);
    let answers = party.submit(vec![row(&seq, &[0], Wish::Row)]).unwrap().wait();
    assert_eq!(answers[0][0].as_ref().unwrap_err().to_string(), "model: no room");
    assert_close(&weights(&party, &seq, &[0]), &expected(&[0]));
}

#[test]
fn a_panicking_model_answers_everybody() {
    let model = ScriptedModel::new(4, script).faults(|call| match call {
        Call::Forward(1) => panic!("out of luck"),
        _ => Ok(()),
    });
    let engine = Engine::start(model, config());
    let party = engine.party();
    let seq = party.open(None);
    let answers = party.submit(vec![row(&seq, &[0], Wish::Row)]).unwrap().wait();
    assert!(answers[0][0].as_ref().unwrap_err().to_string().contains("the model panicked: out of luck"));
    let later = party.submit(vec![row(&seq, &[0], Wish::Row)]).unwrap().wait();
    assert!(matches!(later[0][0], Err(EngineError::Stopped(_))));
}

#[test]
fn a_panic_while_a_sequence_is_freed_ends_the_engine_and_nobody_waits() {
    let model = ScriptedModel::new(4, script).faults(|call| match call {
        Call::Free => panic!("out of luck"),
        Call::Forward(_) => Ok(()),
    });
    let engine = Engine::start(model, config());
    let party = engine.party();
    let (seq, dropped) = (party.open(None), party.open(None));
    assert_close(&weights(&party, &seq, &[0]), &expected(&[0]));
    drop(dropped);
    let answers = party.submit(vec![row(&seq, &[1], Wish::Row)]).unwrap().wait();
    let error = answers[0][0].as_ref().unwrap_err();
    assert!(matches!(error, EngineError::Stopped(_)));
    assert!(error.to_string().contains("the model panicked: out of luck"), "{error}");
}

#[test]
fn a_row_whose_sequence_is_dropped_is_answered() {
    let engine = Engine::start(ScriptedModel::new(4, script), config());
    let (party, busy) = (engine.party(), engine.party());
    let (seq, other) = (party.open(None), busy.open(None));
    // The other party, which is busy, keeps the forward from starting until it waits.
    let ticket = party.submit(vec![row(&seq, &[0], Wish::Row)]).unwrap();
    drop(seq);
    let also = busy.submit(vec![row(&other, &[0], Wish::Row)]).unwrap();
    assert!(also.wait()[0][0].is_ok());
    let error = ticket.wait()[0][0].as_ref().unwrap_err().to_string();
    assert_eq!(error, "model: the sequence was dropped before its forward");
}

#[test]
fn dropped_sequences_are_freed() {
    let model = ScriptedModel::new(4, script);
    let log = model.log();
    let engine = Engine::start(model, config());
    let party = engine.party();
    let seq = party.open(None);
    let forks: Vec<Sequence> = (0..5).map(|_| seq.fork()).collect();
    weights(&party, &seq, &[0]);
    assert_eq!(log.held(), 6);
    drop(forks);
    weights(&party, &seq, &[0]);
    assert_eq!(log.held(), 1);
}
