//! Calls of concurrent runs that become one call.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use lockstep_control::potential::{Autobatched, BatchPotential, Claims, Potential, RowResult, Run};
use lockstep_control::testkit::{
    Tolerance, assert_batch_consistency, assert_claims, assert_contract, assert_cursor, words,
};
use lockstep_control::{ControlError, Direct, ErrorKind, PromptedLlm, Sequences, Smc, SmcOptions};
use lockstep_engine::testkit::{ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{Engine, EngineConfig, StragglerWait, TokenId};

/// Minus a quarter for each `a`, minus the length at the end. Token `b` is what it may fail on.
struct Scorer {
    vocab: Arc<Vocabulary>,
    calls: Arc<Mutex<Vec<usize>>>,
    on_b: OnB,
    cancelled: Arc<AtomicBool>,
}

#[derive(Clone, Copy, PartialEq)]
enum OnB {
    Score,
    FailRow,
    FailBatch,
    Panic,
}

impl Scorer {
    fn new(on_b: OnB) -> Self {
        Self {
            vocab: vocabulary(&["a", "b", "$"], &[2]),
            calls: Arc::default(),
            on_b,
            cancelled: Arc::default(),
        }
    }

    fn batch(
        &self,
        contexts: &[&[TokenId]],
        score: impl Fn(&[TokenId]) -> f64,
    ) -> Result<Vec<RowResult<f64>>, ControlError> {
        self.calls.lock().unwrap().push(contexts.len());
        if self.cancelled.swap(false, Ordering::SeqCst) {
            return Err(ControlError::new(ErrorKind::Cancelled, "cancelled"));
        }
        let has_b = |context: &&[TokenId]| context.contains(&TokenId(1));
        match self.on_b {
            OnB::FailBatch if contexts.iter().any(has_b) => {
                return Err(ControlError::new(ErrorKind::Custom, "no b"));
            }
            OnB::Panic => assert!(!contexts.iter().any(has_b), "no b"),
            _ => {}
        }
        let one = |context: &&[TokenId]| {
            if self.on_b == OnB::FailRow && has_b(context) {
                return Err(ControlError::new(ErrorKind::Custom, "no b"));
            }
            Ok(score(context))
        };
        Ok(contexts.iter().map(one).collect())
    }
}

fn count_a(context: &[TokenId]) -> f64 {
    context.iter().filter(|token| token.0 == 0).count() as f64
}

impl BatchPotential for Scorer {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }
    fn claims(&self) -> Claims {
        Claims { tight: true, monotone: true, ..Claims::default() }
    }
    fn batch_prefix(&self, contexts: &[&[TokenId]]) -> Result<Vec<RowResult<f64>>, ControlError> {
        self.batch(contexts, |context| -0.25 * count_a(context))
    }
    fn batch_complete(&self, contexts: &[&[TokenId]]) -> Result<Vec<RowResult<f64>>, ControlError> {
        self.batch(contexts, |context| -0.25 * count_a(context) - context.len() as f64)
    }
}

fn merged(scorer: Scorer) -> Autobatched<Scorer> {
    Autobatched::with_straggler_wait(scorer, StragglerWait::Unlimited)
}

/// The scores of `rows` copies of each of two contexts, asked for by two threads at once.
fn scores_of_two(potential: &dyn Potential, contexts: [&[u32]; 2], rows: usize) -> [Vec<RowResult<f64>>; 2] {
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let handles = contexts.map(|context| {
            let ready = &ready;
            scope.spawn(move || {
                let mut cursor = potential.open(rows, &Run::default()).unwrap();
                let tokens: Vec<TokenId> = context.iter().copied().map(TokenId).collect();
                let all: Vec<usize> = (0..rows).collect();
                cursor.advance(&all, &vec![tokens.as_slice(); rows]);
                ready.wait();
                cursor.score(&all)
            })
        });
        handles.map(|handle| handle.join().unwrap())
    })
}

#[test]
fn potentials_29_two_runs_of_n_rows_make_one_call_of_2n_rows() {
    let scorer = Scorer::new(OnB::Score);
    let calls = Arc::clone(&scorer.calls);
    let potential = merged(scorer);
    let [first, second] = scores_of_two(&potential, [&[0, 0], &[0, 1]], 3);
    assert_eq!(*calls.lock().unwrap(), [6]);
    assert!(first.iter().all(|score| *score.as_ref().unwrap() == -0.5));
    assert!(second.iter().all(|score| *score.as_ref().unwrap() == -0.25));
}

#[test]
fn potentials_29_a_row_that_fails_fails_only_its_own_run() {
    for on_b in [OnB::FailRow, OnB::FailBatch, OnB::Panic] {
        let potential = merged(Scorer::new(on_b));
        let [healthy, failing] = scores_of_two(&potential, [&[0], &[1]], 2);
        assert!(healthy.iter().all(|score| *score.as_ref().unwrap() == -0.25));
        for score in failing {
            let error = score.unwrap_err();
            assert!(error.kind() == ErrorKind::Custom && error.to_string().contains("no b"), "{error}");
        }
    }
}

#[test]
fn potentials_29_cancelling_the_run_that_makes_the_batch_abandons_it_for_the_others() {
    let scorer = Scorer::new(OnB::Score);
    let (calls, cancelled) = (Arc::clone(&scorer.calls), Arc::clone(&scorer.cancelled));
    let potential = merged(scorer);
    cancelled.store(true, Ordering::SeqCst);
    let [first, second] = scores_of_two(&potential, [&[0], &[1]], 2);
    let mut kinds: Vec<ErrorKind> =
        [first, second].iter().map(|scores| scores[0].as_ref().unwrap_err().kind()).collect();
    kinds.sort_by_key(|kind| *kind == ErrorKind::BatchAbandoned);
    assert_eq!(kinds, [ErrorKind::Cancelled, ErrorKind::BatchAbandoned]);
    // The next tick works, and nothing was asked one by one.
    let [first, second] = scores_of_two(&potential, [&[0], &[1]], 2);
    assert!(first.iter().chain(&second).all(Result::is_ok));
    assert_eq!(*calls.lock().unwrap(), [4, 4]);
}

fn solo(engine: &Engine, critic: &Arc<dyn Potential>, seed: u64) -> (Smc, SmcOptions) {
    let vocab = vocabulary(&["a", "b", "$"], &[2]);
    let llm = PromptedLlm::new(engine.clone(), vocab, &[TokenId(seed as u32 % 2)]).unwrap();
    let smc = Smc::new(Arc::new(Direct::new(Arc::new(llm))), Some(Arc::clone(critic))).unwrap();
    let options = SmcOptions { n_particles: 4, max_tokens: 8, seed: Some(seed), ..SmcOptions::default() };
    (smc, options)
}

#[test]
fn potentials_29_merging_changes_no_run() {
    let config = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..EngineConfig::default() };
    let engine = || {
        Engine::start(
            ScriptedModel::new(3, |h: &[TokenId]| vec![0.0, 0.3 * h.len() as f32, -1.0]),
            config.clone(),
        )
    };
    let alone: Vec<Sequences> = (0..3)
        .map(|seed| {
            let critic: Arc<dyn Potential> = Arc::new(merged(Scorer::new(OnB::Score)));
            let (smc, options) = solo(&engine(), &critic, seed);
            smc.run(&options).unwrap()
        })
        .collect();
    let scorer = Scorer::new(OnB::Score);
    let calls = Arc::clone(&scorer.calls);
    let critic: Arc<dyn Potential> = Arc::new(merged(scorer));
    let (engine, ready) = (engine(), Barrier::new(3));
    thread::scope(|scope| {
        for (seed, alone) in alone.iter().enumerate() {
            let (engine, critic, ready) = (&engine, &critic, &ready);
            scope.spawn(move || {
                let (smc, options) = solo(engine, critic, seed as u64);
                let mut run = smc.start(&options).unwrap();
                ready.wait();
                run.by_ref().for_each(|step| assert!(step.is_ok()));
                let together = run.sequences();
                assert_eq!(together.contexts(), alone.contexts());
                assert_eq!(together.log_weights(), alone.log_weights());
            });
        }
    });
    // Sequences that end and sequences that go on are two calls of one batch.
    let calls = calls.lock().unwrap();
    assert!(calls[0] > 4, "{calls:?}");
}

#[test]
fn an_autobatched_potential_keeps_the_contract() {
    let potential = merged(Scorer::new(OnB::Score));
    let symbols = [TokenId(0), TokenId(1)];
    let contexts = words(&symbols, 3);
    assert_contract(&potential, &contexts, Tolerance::WEIGHTED);
    assert_batch_consistency(&potential, &contexts);
    for seed in 0..5 {
        assert_cursor(&potential, &symbols, 40, seed, Tolerance::WEIGHTED);
    }
    assert_claims(&potential, &symbols, 3, 0, Tolerance::WEIGHTED);
}
