//! The scheduler under an explorer of interleavings. Run by `make test` with `--cfg shuttle`.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::num::NonZero;
use std::sync::Arc;

use lockstep_engine::generation::Constraint;
use lockstep_engine::party::Parties;
use lockstep_engine::row::{Reply, RowRequest, Wish};
use lockstep_engine::testkit::{ForwardLog, ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{
    Engine, EngineConfig, RowLimits, RowSpec, RowStream, Sequence, StragglerWait, TokenId,
};
use lockstep_sample::{Bitset, LogitsProcessor, SampleError};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Arc as ShuttleArc, Barrier};
use shuttle::thread;

const INTERLEAVINGS: usize = 300;

fn vocab() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "c", "$"], &[3])
}

fn script(history: &[TokenId]) -> Vec<f32> {
    let (length, last) = (history.len() as f32, history.last().map_or(0, |t| t.0) as f32);
    (0..4).map(|t| 0.1 * length * (t + 1) as f32 * (1.0 + last)).collect()
}

fn start(config: EngineConfig) -> (Engine, Arc<ForwardLog>) {
    let model = ScriptedModel::new(4, script);
    let log = model.log();
    (Engine::start(model, EngineConfig { threads: NonZero::new(1), ..config }), log)
}

fn tight() -> EngineConfig {
    EngineConfig {
        kv_bytes: Some(14),
        prompt_cache_bytes: Some(8),
        limits: RowLimits::new(2, 1).unwrap(),
        prefill_step_tokens: NonZero::new(1),
        ..EngineConfig::default()
    }
}

fn spec(seed: u64) -> RowSpec {
    let prompt = vec![TokenId(0), TokenId(seed as u32 % 3)];
    RowSpec { seed: Some(seed), max_tokens: 3, ignore_eos: true, ..RowSpec::new(vocab(), prompt) }
}

/// One token for a party's sequence.
fn request(seq: &Sequence) -> RowRequest {
    RowRequest {
        seq: seq.id(),
        tokens: vec![TokenId(1)],
        temperature: 1.0,
        vocab: vocab(),
        wishes: vec![Wish::Tokens(vec![TokenId(2)])],
    }
}

/// The tokens of a row that is whole; `None` if it was cancelled.
fn whole(row: RowStream) -> Option<Vec<TokenId>> {
    let generated = row.wait();
    match generated.finished.reason.name() {
        "length" => Some(generated.ids()),
        "cancelled" => None,
        other => panic!("{other}"),
    }
}

struct Own;
impl LogitsProcessor for Own {
    fn process(&mut self, _: &[TokenId], _: &mut [f32]) -> Result<(), SampleError> {
        thread::yield_now();
        Ok(())
    }
}
impl Constraint for Own {
    fn mask(&mut self) -> Result<Arc<Bitset>, String> {
        thread::yield_now();
        Ok(Arc::new(Bitset::full(4)))
    }
    fn accept(&mut self, _: TokenId) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn rows_are_answered_and_equal_in_every_interleaving() {
    shuttle::check_random(
        || {
            let (engine, log) = start(tight());
            let threads: Vec<_> = (0..3_u64)
                .map(|which| {
                    let engine = engine.clone();
                    thread::spawn(move || {
                        let mut specs = vec![spec(which), spec(which)];
                        match which {
                            0 => specs[1].processors.push(Box::new(Own)),
                            1 => specs[1].constraint = Some(Box::new(Own)),
                            _ => {}
                        }
                        let mut rows = engine.submit(specs).unwrap();
                        let cancelled = rows.remove(0);
                        if which == 2 {
                            cancelled.cancel();
                        }
                        let (first, second) = (whole(cancelled), whole(rows.remove(0)));
                        assert!(second.is_some() && (first == second || (which == 2 && first.is_none())));
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // Everything that was reserved is free again, whatever is stored.
            drop(engine.reserve(14).unwrap());
            assert_eq!(engine.reserved_kv_bytes(), 0);
            assert!(log.rows().iter().all(|rows| *rows <= 2));
            let stats = engine.stats();
            assert_eq!(stats.finished_length + stats.finished_cancelled, 6);
        },
        INTERLEAVINGS,
    );
}

#[test]
fn parties_and_rows_meet_in_every_interleaving() {
    shuttle::check_random(
        || {
            let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..EngineConfig::default() };
            let (engine, log) = start(config);
            let steppers: Vec<_> = (0..2)
                .map(|_| {
                    let engine = engine.clone();
                    thread::spawn(move || {
                        let reservation = engine.reserve(5).unwrap();
                        let party = engine.party();
                        let seq = party.open(None);
                        for _ in 0..3 {
                            let answer =
                                party.submit(vec![request(&seq)]).unwrap().wait().remove(0).remove(0);
                            assert!(matches!(answer, Ok(Reply::Tokens(_))));
                        }
                        drop((seq, party, reservation));
                    })
                })
                .collect();
            let row = engine.submit(vec![spec(1)]).unwrap().remove(0);
            assert!(whole(row).is_some());
            steppers.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(log.rows().iter().sum::<usize>(), 2 * 3 + 3);
            assert_eq!(engine.reserved_kv_bytes(), 0);
        },
        INTERLEAVINGS,
    );
}

#[test]
fn whoever_waits_behind_a_turn_that_is_given_up_moves_up() {
    shuttle::check_random(
        || {
            let (engine, _) = start(tight());
            let first = engine.reserve(10).unwrap();
            let (large, small) = (engine.line_up(14).unwrap(), engine.line_up(4).unwrap());
            let cancel = large.canceller();
            let waiting = thread::spawn(move || large.wait().is_err());
            let behind = thread::spawn(move || small.wait().unwrap().bytes());
            let row = engine.submit(vec![spec(0)]).unwrap().remove(0);
            cancel();
            assert!(waiting.join().unwrap());
            assert_eq!(behind.join().unwrap(), 4);
            drop(first);
            assert!(whole(row).is_some());
            drop(engine.reserve(14).unwrap());
            assert_eq!(engine.reserved_kv_bytes(), 0);
        },
        INTERLEAVINGS,
    );
}

#[test]
fn parties_that_are_served_together_are_at_work_again_together() {
    shuttle::check_random(
        || {
            let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..EngineConfig::default() };
            let (engine, log) = start(config);
            // Where the two meet next, as a potential whose calls are merged.
            let (elsewhere, ready) = (ShuttleArc::new(Parties::new(|| {})), Arc::new(Barrier::new(2)));
            let served = Arc::new(AtomicUsize::new(0));
            let steppers: Vec<_> = (0..2)
                .map(|_| {
                    let (engine, elsewhere) = (engine.clone(), ShuttleArc::clone(&elsewhere));
                    let (ready, served) = (Arc::clone(&ready), Arc::clone(&served));
                    thread::spawn(move || {
                        let (party, other) = (engine.party(), elsewhere.join());
                        let seq = party.open(None);
                        ready.wait();
                        let answers = party.submit(vec![request(&seq)]).unwrap().wait();
                        assert!(matches!(answers[0][0], Ok(Reply::Tokens(_))));
                        // Whoever leaves first leaves the other at work.
                        served.fetch_add(1, Ordering::SeqCst);
                        elsewhere.leave(other);
                        assert!(elsewhere.any_expected() || served.load(Ordering::SeqCst) == 2);
                    })
                })
                .collect();
            steppers.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(log.rows(), [2]);
        },
        INTERLEAVINGS,
    );
}

#[test]
fn an_engine_that_is_let_go_answers_everybody() {
    shuttle::check_random(
        || {
            let (engine, _) = start(tight());
            let rows = engine.submit(vec![spec(0), spec(1), spec(2)]).unwrap();
            drop(engine);
            let dropping = thread::spawn({
                let mut rows = rows.into_iter();
                let first = rows.next().unwrap();
                move || {
                    drop(first);
                    rows.for_each(|row| assert!(whole(row).is_some()));
                }
            });
            dropping.join().unwrap();
        },
        INTERLEAVINGS,
    );
}
