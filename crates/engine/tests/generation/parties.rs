//! Generating rows and parties in one engine.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lockstep_engine::{Engine, EngineConfig, RowSpec, StragglerWait};

use crate::support::{Clock, alone, config, model, result, spec, start};

fn endless(which: u32, n: usize) -> RowSpec {
    RowSpec { ignore_eos: true, ..spec(which, 3, n) }
}

#[test]
fn parties_and_generating_rows_share_forwards_and_change_nothing_for_each_other() {
    let model = model();
    let log = model.log();
    let engine = Engine::start(model, config());
    let clock = Clock::new(&engine);
    let streams = engine.submit((0..3).map(|which| endless(which, 20)).collect()).unwrap();
    let shared: Vec<f64> = (0..20).map(|_| clock.tick()).collect();
    drop(clock);
    for (which, stream) in (0..3).zip(streams) {
        assert_eq!(result(&stream.wait()), alone(endless(which, 20)));
    }
    // The engine waited for the party at every step.
    assert_eq!(log.rows(), [4; 20]);
    assert_eq!(engine.stats().draw_passes, 20);

    let clock = Clock::new(&start());
    assert_eq!(shared, (0..20).map(|_| clock.tick()).collect::<Vec<f64>>());
}

#[test]
fn a_thread_that_waits_for_a_generating_row_is_not_waited_for() {
    let engine = start();
    let clock = Clock::new(&engine);
    clock.tick();
    // User code of a run that calls the engine for text.
    let nested = engine.submit(vec![endless(1, 5)]).unwrap().remove(0).wait();
    assert_eq!(result(&nested), alone(endless(1, 5)));
    clock.tick();
}

#[test]
fn b_46_two_parties_fall_into_step_and_a_late_one_is_not_waited_for() {
    let model = model();
    let log = model.log();
    let wait = StragglerWait::Fixed(Duration::from_secs(3));
    let engine = Engine::start(model, EngineConfig { straggler_wait: wait, ..config() });
    let (joined, resume) = (Barrier::new(2), Barrier::new(2));
    const STEPS: usize = 200;
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let slow = Clock::new(&engine);
            joined.wait();
            // At work on something long.
            resume.wait();
            for _ in 0..STEPS {
                slow.tick();
            }
        });
        let quick = Clock::new(&engine);
        joined.wait();
        for _ in 0..10 {
            quick.tick();
        }
        let stats = engine.stats();
        resume.wait();
        // However many steps pass until the other is there.
        while !slow.is_finished() {
            quick.tick();
        }
        // Only now: whoever is still waited for at a barrier would keep a failure from being told.
        assert_eq!((stats.straggler_waits, stats.steps), (2, 10));
    });
    // Both are quick now. Whenever the slow one comes in between two steps of the other, they meet and
    // stay together (but for a thread that sleeps longer than it is waited for).
    let together = log.rows().iter().filter(|rows| **rows == 2).count();
    assert!(together > STEPS / 2, "{together} of {STEPS} steps were shared");
    assert_eq!(engine.stats().rows, log.rows().iter().sum::<usize>() as u64);
}
