//! Generating rows and parties in one engine.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lockstep_engine::row::{Reply, RowRequest, Wish};
use lockstep_engine::{Engine, EngineConfig, Party, RowSpec, Sequence, StragglerWait, TokenId};

use crate::support::{alone, config, model, result, spec, vocab};

fn step(party: &Party, seq: &Sequence) -> f64 {
    let request = RowRequest {
        seq: seq.id(),
        tokens: vec![TokenId(1)],
        temperature: 1.0,
        vocab: vocab(),
        wishes: vec![Wish::Tokens(vec![TokenId(2)])],
    };
    let mut answers = party.submit(vec![request]).unwrap().wait();
    let Ok(Reply::Tokens(weights)) = answers.remove(0).remove(0) else { panic!() };
    weights[0]
}

fn endless(which: u32, n: usize) -> RowSpec {
    RowSpec { ignore_eos: true, ..spec(which, 3, n) }
}

#[test]
fn parties_and_generating_rows_share_forwards_and_change_nothing_for_each_other() {
    let model = model();
    let log = model.log();
    let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..config() };
    let engine = Engine::start(model, config.clone());
    let party = engine.party();
    let seq = party.open(None);
    let streams = engine.submit((0..3).map(|which| endless(which, 20)).collect()).unwrap();
    let shared: Vec<f64> = (0..20).map(|_| step(&party, &seq)).collect();
    drop(party);
    for (which, stream) in (0..3).zip(streams) {
        assert_eq!(result(&stream.wait()), alone(endless(which, 20)));
    }
    // The engine waited for the party at every step.
    assert_eq!(log.rows(), [4; 20]);
    assert_eq!(engine.stats().draw_passes, 20);

    let engine = Engine::start(crate::support::model(), config);
    let party = engine.party();
    let seq = party.open(None);
    assert_eq!(shared, (0..20).map(|_| step(&party, &seq)).collect::<Vec<f64>>());
}

#[test]
fn a_thread_that_waits_for_a_generating_row_is_not_waited_for() {
    let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..config() };
    let engine = Engine::start(model(), config);
    let party = engine.party();
    let seq = party.open(None);
    step(&party, &seq);
    // User code of a run that calls the engine for text.
    let nested = engine.submit(vec![endless(1, 5)]).unwrap().remove(0).wait();
    assert_eq!(result(&nested), alone(endless(1, 5)));
    step(&party, &seq);
}

#[test]
fn b_46_two_parties_fall_into_step_and_a_late_one_is_not_waited_for() {
    let model = model();
    let log = model.log();
    let wait = StragglerWait::Fixed(Duration::from_millis(50));
    let engine = Engine::start(model, EngineConfig { straggler_wait: wait, ..config() });
    let (joined, resume) = (Barrier::new(2), Barrier::new(2));
    const STEPS: usize = 200;
    thread::scope(|scope| {
        scope.spawn(|| {
            let slow = engine.party();
            let seq = slow.open(None);
            joined.wait();
            // At work on something long.
            resume.wait();
            for _ in 0..STEPS {
                step(&slow, &seq);
            }
        });
        let quick = engine.party();
        let seq = quick.open(None);
        joined.wait();
        for _ in 0..10 {
            step(&quick, &seq);
        }
        let stats = engine.stats();
        assert_eq!((stats.straggler_waits, stats.steps), (2, 10));
        resume.wait();
        for _ in 0..STEPS {
            step(&quick, &seq);
        }
    });
    // Both are quick now. Whatever the threads' luck, they meet and stay together, mostly.
    let together = log.rows().iter().filter(|rows| **rows == 2).count();
    assert!(together > STEPS / 2, "{together} of {STEPS} steps were shared");
    assert_eq!(engine.stats().rows, 10 + 2 * STEPS as u64);
}
