//! Errors in a run, and runs that are cancelled: nobody else is hurt, and nobody waits for ever.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use lockstep_control::potential::{
    Autobatched, BatchPotential, Claims, Demands, FromSequences, Potential, RowResult, Run, SequencePotential,
};
use lockstep_control::{
    Canceller, ControlError, Direct, ErrorKind, Product, PromptedLlm, Sequences, Smc, SmcOptions,
};
use lockstep_engine::testkit::{ForwardLog, ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{Engine, EngineConfig, StragglerWait, TokenId};

const DEAD: f64 = f64::NEG_INFINITY;

fn vocab() -> Arc<Vocabulary> {
    vocabulary(&["a", "b", "c", "$"], &[3])
}

/// A model that likes what came before, waits for stragglers without limit, and has no logits
/// after the history `broken`.
fn engine_with(broken: &[u32]) -> (Engine, Arc<ForwardLog>) {
    let broken: Vec<TokenId> = broken.iter().copied().map(TokenId).collect();
    let model = ScriptedModel::new(4, move |history: &[TokenId]| {
        if history == broken {
            return vec![f32::NAN; 4];
        }
        let seen = |t: u32| history.iter().filter(|token| token.0 == t).count() as f32;
        (0..4).map(|t| 0.2 * seen(t) + if t == 3 { 0.1 * history.len() as f32 - 3.0 } else { 0.0 }).collect()
    });
    let log = model.log();
    let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..EngineConfig::default() };
    (Engine::start(model, config), log)
}

fn llm(engine: &Engine, prompt: u32) -> Arc<dyn Potential> {
    Arc::new(PromptedLlm::new(engine.clone(), vocab(), &[TokenId(prompt)]).unwrap())
}

/// A function of contexts.
struct Given<F>(F);

impl<F: Fn(&[TokenId]) -> Result<f64, ControlError> + Send + Sync> SequencePotential for Given<F> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        static VOCAB: std::sync::LazyLock<Arc<Vocabulary>> = std::sync::LazyLock::new(vocab);
        &VOCAB
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        (self.0)(context)
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        (self.0)(context)
    }
}

fn given<F>(f: F) -> Arc<dyn Potential>
where
    F: Fn(&[TokenId]) -> Result<f64, ControlError> + Send + Sync + 'static,
{
    Arc::new(FromSequences::new(Given(f)))
}

fn smc(target: Arc<dyn Potential>, critic: Option<Arc<dyn Potential>>) -> Smc {
    Smc::new(Arc::new(Direct::new(target)), critic).unwrap()
}

fn options(n: usize, seed: u64) -> SmcOptions {
    SmcOptions { n_particles: n, max_tokens: 9, seed: Some(seed), ..SmcOptions::default() }
}

fn solo(prompt: u32, options: &SmcOptions) -> Sequences {
    smc(llm(&engine_with(&[]).0, prompt), None).run(options).unwrap()
}

fn is_cancelled(error: &ControlError) -> bool {
    error.kind() == ErrorKind::Cancelled && error.to_string() == "the run was cancelled"
}

#[test]
fn smc_21_a_critic_that_raises_ends_its_run_and_no_other() {
    let expected = solo(1, &options(6, 2));
    let (engine, _) = engine_with(&[]);
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let critic = given(|context| match context.len() {
                3 => Err(ControlError::new(ErrorKind::Custom, "three is too many")),
                _ => Ok(0.0),
            });
            let mut run = smc(llm(&engine, 0), Some(critic)).start(&options(5, 1)).unwrap();
            ready.wait();
            let error = run.find_map(Result::err).unwrap();
            assert!(run.next().is_none());
            // The results stay with their owner; the engine has everything back, so the neighbour
            // does not wait for this thread, which ends only after it.
            (error, run)
        });
        let neighbour = scope.spawn(|| {
            let run = smc(llm(&engine, 1), None).start(&options(6, 2)).unwrap();
            ready.wait();
            run.finish().unwrap()
        });
        assert_eq!(neighbour.join().unwrap(), expected);
        let (error, run) = failing.join().unwrap();
        assert_eq!(error.to_string(), "three is too many");
        // What there was after the last whole step.
        assert_eq!(run.sequences().contexts().iter().map(Vec::len).max(), Some(2));
        assert_eq!(engine.reserved_kv_bytes(), 0);
    });
}

#[test]
fn smc_21_cancelling_one_run_wakes_it_and_leaves_the_other_unchanged() {
    let expected = solo(1, &options(6, 2));
    let (engine, log) = engine_with(&[]);
    // A party that never waits: no forward can start while it is there.
    let idle = engine.party();
    let (send, cancellers) = mpsc::channel();
    let (started, ready) = (Barrier::new(3), Barrier::new(2));
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| {
            let mut run = smc(llm(&engine, 0), Some(llm(&engine, 2))).start(&options(5, 1)).unwrap();
            send.send(run.canceller()).unwrap();
            started.wait();
            // Whether it waits already or not, only the cancellation can end this.
            let error = run.next().unwrap().unwrap_err();
            assert!(run.next().is_none());
            ready.wait();
            (error, run)
        });
        let neighbour = scope.spawn(|| {
            let run = smc(llm(&engine, 1), None).start(&options(6, 2)).unwrap();
            started.wait();
            run.finish().unwrap()
        });
        started.wait();
        cancellers.recv().unwrap().cancel();
        ready.wait();
        // Only the neighbour is left.
        assert_eq!(engine.reserved_kv_bytes(), 1 + 6 * 9);
        assert_eq!(log.forwards(), 0);
        drop(idle);
        assert_eq!(neighbour.join().unwrap(), expected);
        let (error, _run) = cancelled.join().unwrap();
        assert!(is_cancelled(&error), "{error}");
        assert!(log.rows().iter().all(|rows| *rows <= 6), "{:?}", log.rows());
    });
}

/// Whatever the threads' timing: the one ends, cancelled or not, and the other is as if alone.
#[test]
fn smc_21_cancelled_at_any_moment() {
    let expected = solo(1, &options(6, 2));
    for moment in 0..16 {
        let (engine, _) = engine_with(&[]);
        let ready = Barrier::new(2);
        let (send, steps) = mpsc::channel();
        let run = smc(llm(&engine, 0), Some(llm(&engine, 2))).start(&options(5, 1)).unwrap();
        let canceller = run.canceller();
        thread::scope(|scope| {
            let ready = &ready;
            scope.spawn(move || {
                ready.wait();
                for step in run {
                    assert!(step.as_ref().err().is_none_or(is_cancelled));
                    // Nobody listens once it is cancelled.
                    let _ = send.send(step.is_ok());
                }
            });
            let engine = &engine;
            let neighbour = scope.spawn(move || {
                let run = smc(llm(engine, 1), None).start(&options(6, 2)).unwrap();
                ready.wait();
                run.finish().unwrap()
            });
            for _ in 0..moment % 8 {
                let _ = steps.recv();
            }
            canceller.cancel();
            assert_eq!(neighbour.join().unwrap(), expected);
        });
        assert_eq!(engine.reserved_kv_bytes(), 0);
    }
}

/// Memory for one run of five particles with nine tokens each, and three tokens more.
fn tight() -> Engine {
    let model = ScriptedModel::new(4, |_: &[TokenId]| vec![0.0; 4]);
    Engine::start(model, EngineConfig { kv_bytes: Some(1 + 5 * 9 + 3), ..EngineConfig::default() })
}

#[test]
fn smc_21_a_run_that_waits_for_memory_is_cancelled_and_lets_those_behind_move_up() {
    let engine = tight();
    let smc = |n, canceller: Option<Canceller>| {
        let options = SmcOptions { canceller, ..options(n, 1) };
        smc(llm(&engine, 0), None).start(&options)
    };
    let canceller = Canceller::default();
    let holder = smc(5, None).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| smc(4, Some(canceller.clone())).unwrap_err());
        while !engine.line_up(0).unwrap().is_waiting() {
            thread::yield_now();
        }
        // Memory for two tokens is there, but the run comes first.
        let behind = engine.line_up(2).unwrap();
        assert!(behind.is_waiting());
        let behind = scope.spawn(|| behind.wait().unwrap());
        canceller.cancel();
        assert!(is_cancelled(&waiting.join().unwrap()));
        assert_eq!(behind.join().unwrap().bytes(), 2);
        assert_eq!(engine.reserved_kv_bytes(), 1 + 5 * 9);
        // Who is cancelled already does not begin.
        assert!(is_cancelled(&smc(4, Some(canceller.clone())).unwrap_err()));
    });
    drop(holder);
    assert_eq!(engine.reserved_kv_bytes(), 0);
    // Its own canceller is the one of the options.
    let mut run = smc(4, Some(Canceller::default())).unwrap();
    let own = run.canceller();
    own.cancel();
    assert!(is_cancelled(&run.next().unwrap().unwrap_err()));
}

#[test]
fn smc_21_a_run_that_waits_for_its_second_engine_gives_back_the_first() {
    let (first, second) = (tight(), tight());
    let both = |canceller: &Canceller| {
        let mut demands = Demands::default();
        [&first, &second].into_iter().for_each(|engine| demands.add(engine, 40));
        Run::reserve_with(demands, canceller.clone())
    };
    // Whichever of them comes last in the order of engines is full.
    for full in [&first, &second] {
        let canceller = Canceller::default();
        let taken = full.reserve(20).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| both(&canceller).map(drop).unwrap_err());
            canceller.cancel();
            assert!(is_cancelled(&waiting.join().unwrap()));
        });
        drop(taken);
        assert_eq!((first.reserved_kv_bytes(), second.reserved_kv_bytes()), (0, 0));
    }
    assert!(both(&Canceller::default()).is_ok());
}

#[test]
fn smc_21_a_run_cancelled_between_steps_takes_no_other() {
    let (engine, log) = engine_with(&[]);
    let mut run = smc(llm(&engine, 0), None).start(&options(4, 1)).unwrap();
    assert!(run.next().unwrap().is_ok());
    let canceller = run.canceller();
    assert!(!canceller.is_cancelled());
    canceller.cancel();
    canceller.cancel();
    assert!(is_cancelled(&run.next().unwrap().unwrap_err()));
    assert!(run.next().is_none());
    assert_eq!((log.forwards(), engine.reserved_kv_bytes()), (1, 0));
    // What there was stays readable.
    assert!(run.sequences().contexts().iter().all(|context| context.len() == 1));
}

#[test]
fn a_run_that_is_over_does_not_hold_up_others_while_its_results_are_kept() {
    let (engine, _) = engine_with(&[]);
    let mut first = smc(llm(&engine, 0), None).start(&SmcOptions { max_tokens: 1, ..options(4, 1) }).unwrap();
    let second = smc(llm(&engine, 1), None).start(&options(6, 2)).unwrap();
    assert!(first.by_ref().all(|step| step.is_ok()));
    // Another thread runs the second: this one, which has the first, is busy all the while.
    thread::scope(|scope| {
        let ended = scope.spawn(|| second.finish().unwrap());
        assert_eq!(ended.join().unwrap(), solo(1, &options(6, 2)));
    });
    assert_eq!(engine.reserved_kv_bytes(), 0);
    assert!(first.sequences().log_ml().is_finite());
}

/// Without an order of engines two runs would soon hold one each and wait for the other.
#[test]
fn runs_on_two_engines_never_wait_for_each_others_second_half() {
    let model = || ScriptedModel::new(4, |_: &[TokenId]| vec![0.0; 4]);
    let engine = || Engine::start(model(), EngineConfig { kv_bytes: Some(10), ..EngineConfig::default() });
    let (a, b) = (engine(), engine());
    assert_ne!(a.number(), b.number());
    thread::scope(|scope| {
        for order in [[&a, &b], [&b, &a]] {
            scope.spawn(move || {
                for _ in 0..500 {
                    let mut demands = Demands::default();
                    order.iter().for_each(|engine| demands.add(engine, 6));
                    drop(Run::reserve(demands).unwrap());
                }
            });
        }
    });
    assert_eq!((a.reserved_kv_bytes(), b.reserved_kv_bytes()), (0, 0));
}

/// Half a nat for each token.
struct Remote(Arc<Vocabulary>);

impl BatchPotential for Remote {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.0
    }
    fn batch_prefix(&self, contexts: &[&[TokenId]]) -> Result<Vec<RowResult<f64>>, ControlError> {
        Ok(contexts.iter().map(|context| Ok(-0.5 * context.len() as f64)).collect())
    }
    fn batch_complete(&self, contexts: &[&[TokenId]]) -> Result<Vec<RowResult<f64>>, ControlError> {
        self.batch_prefix(contexts)
    }
}

#[test]
fn smc_21_a_cancelled_run_does_not_wait_for_a_merged_call() {
    let merged: Arc<dyn Potential> =
        Arc::new(Autobatched::with_straggler_wait(Remote(vocab()), StragglerWait::Unlimited));
    let flat = given(|_| Ok(0.0));
    // A cursor that never asks: no call can be made while it is there.
    let idle = merged.open(1, &Run::default()).unwrap();
    let (send, cancellers) = mpsc::channel();
    let merged = &merged;
    thread::scope(|scope| {
        let cancelled = scope.spawn(move || {
            let mut run = smc(flat, Some(Arc::clone(merged))).start(&options(5, 1)).unwrap();
            send.send(run.canceller()).unwrap();
            run.find_map(Result::err).unwrap()
        });
        cancellers.recv().unwrap().cancel();
        assert!(is_cancelled(&cancelled.join().unwrap()));
    });
    drop(idle);
    // Nobody is waited for any more.
    let after = smc(given(|_| Ok(0.0)), Some(Arc::clone(merged))).run(&options(5, 1)).unwrap();
    assert!(after.log_ml().is_finite());
}

/// The first context of four tokens that exactly one particle of a run passes through.
fn lonely(sequences: &Sequences) -> (usize, Vec<TokenId>) {
    let heads: Vec<_> = sequences.contexts().iter().map(|context| context.get(..4)).collect();
    let alone = |i: &usize| {
        let head = heads[*i].filter(|head| head.iter().all(|token| !token.is_eos()));
        head.is_some() && heads.iter().filter(|other| **other == head).count() == 1
    };
    let i = (0..heads.len()).find(alone).unwrap();
    (i, heads[i].unwrap().to_vec())
}

#[test]
fn smc_22_an_impossible_mask_at_step_5_kills_that_particle_only() {
    let options = SmcOptions { ess_threshold: 0.0, ..options(12, 7) };
    let run = |dead_end: Option<Vec<TokenId>>| {
        let mask = FromSequences::new(Masked(dead_end));
        let target = Product::new(llm(&engine_with(&[]).0, 0), Arc::new(mask)).unwrap();
        smc(Arc::new(target), None).run(&options).unwrap()
    };
    let expected = run(None);
    let (victim, head) = lonely(&expected);
    let sequences = run(Some(head.clone()));
    assert_eq!(sequences.n_failed(), 0);
    for (i, (particle, expected)) in sequences.iter().zip(expected.iter()).enumerate() {
        if i == victim {
            assert_eq!(particle, (&head[..], DEAD));
        } else {
            assert_eq!(particle, expected);
        }
    }
}

/// Boolean; nothing may follow one context.
struct Masked(Option<Vec<TokenId>>);

impl SequencePotential for Masked {
    fn vocab(&self) -> &Arc<Vocabulary> {
        static VOCAB: std::sync::LazyLock<Arc<Vocabulary>> = std::sync::LazyLock::new(vocab);
        &VOCAB
    }
    fn claims(&self) -> Claims {
        Claims { boolean: true, monotone: true, ..Claims::default() }
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        let beyond = self.0.as_ref().is_some_and(|end| context.len() > 4 && context.starts_with(end));
        Ok(if beyond { DEAD } else { 0.0 })
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        Ok(if self.0.as_deref() == Some(context) { DEAD } else { self.prefix(context)? })
    }
}

#[test]
fn smc_22_logits_that_are_no_numbers_kill_and_count_their_particle_only() {
    let options = SmcOptions { ess_threshold: 0.0, ..options(12, 7) };
    let run = |broken: &[u32]| smc(llm(&engine_with(broken).0, 0), None).run(&options).unwrap();
    let expected = run(&[]);
    let (victim, head) = lonely(&expected);
    let history: Vec<u32> = [0].into_iter().chain(head.iter().map(|token| token.0)).collect();
    let sequences = run(&history);
    assert_eq!(sequences.n_failed(), 1);
    for (i, (particle, expected)) in sequences.iter().zip(expected.iter()).enumerate() {
        if i == victim {
            assert_eq!(particle, (&head[..], DEAD));
        } else {
            assert_eq!(particle, expected);
        }
    }
}
