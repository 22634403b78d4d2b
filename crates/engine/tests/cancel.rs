//! Parties that are cancelled: their waits end, and nobody else notices.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::sync::{Arc, mpsc};
use std::thread;

use lockstep_engine::row::{Reply, RowRequest, Wish};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::{Engine, EngineConfig, EngineError, Sequence, StragglerWait, TokenId};

fn engine() -> (Engine, Arc<lockstep_engine::testkit::ForwardLog>) {
    let model = ScriptedModel::new(3, |history: &[TokenId]| vec![history.len() as f32, 0.0, 1.0]);
    let log = model.log();
    let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..EngineConfig::default() };
    (Engine::start(model, config), log)
}

fn row(seq: &Sequence, wishes: usize) -> RowRequest {
    RowRequest {
        seq: seq.id(),
        tokens: vec![TokenId(1)],
        temperature: 1.0,
        vocab: vocabulary(&["a", "b", "c"], &[]),
        wishes: vec![Wish::Tokens(vec![TokenId(0)]); wishes],
    }
}

#[test]
fn cancelling_a_party_ends_its_waits_and_leaves_the_other_its_row() {
    let (engine, log) = engine();
    // Never waits, so that no forward starts.
    let idle = engine.party();
    let (send, parties) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let party = Arc::new(engine.party());
            let seqs = [party.open(None), party.open(None)];
            let ticket = party.submit(vec![row(&seqs[0], 2), row(&seqs[1], 1)]).unwrap();
            send.send(Arc::clone(&party)).unwrap();
            let answers = ticket.wait();
            assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
            assert!(answers.iter().flatten().all(|answer| matches!(answer, Err(EngineError::Cancelled))));
            // Later rows end at once, too.
            let refused = party.submit(vec![row(&seqs[0], 1)]);
            assert!(matches!(refused, Err(EngineError::Cancelled)));
        });
        let other = scope.spawn(|| {
            let party = engine.party();
            let seq = party.open(None);
            party.submit(vec![row(&seq, 1)]).unwrap().wait().remove(0).remove(0)
        });
        parties.recv().unwrap().cancel();
        waiting.join().unwrap();
        assert_eq!(log.forwards(), 0);
        drop(idle);
        assert!(matches!(other.join().unwrap(), Ok(Reply::Tokens(_))));
    });
    // The rows of the cancelled party went with its sequences.
    assert_eq!(log.rows(), [1]);
}

#[test]
fn what_is_answered_before_the_cancellation_stays_answered() {
    let (engine, _) = engine();
    let party = engine.party();
    let seq = party.open(None);
    let ticket = party.submit(vec![row(&seq, 1)]).unwrap();
    let second = engine.party();
    // Waits on the same thread, for a later row: the first is answered with it.
    let other = second.open(None);
    assert!(second.submit(vec![row(&other, 1)]).unwrap().wait()[0][0].is_ok());
    party.cancel();
    assert!(ticket.wait()[0][0].is_ok());
}
