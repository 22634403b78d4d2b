//! Whole runs on a model: one batch for everybody, and nobody changes anybody's numbers.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::num::NonZero;
use std::sync::{Arc, Barrier};
use std::thread;

use lockstep_control::potential::{Demands, FromSequences, Run, SequencePotential};
use lockstep_control::{
    Awrs, AwrsOptions, BoolFsa, Coerced, ControlError, Direct, MemoryRecord, Potential, Product, PromptedLlm,
    Sequences, Smc, SmcOptions, TokenSampler,
};
use lockstep_engine::testkit::{ForwardLog, ScriptedModel, vocabulary};
use lockstep_engine::vocab::Vocabulary;
use lockstep_engine::{Engine, EngineConfig, StragglerWait, TokenId};
use lockstep_native::testkit::{TinyOptions, tiny_model};

const TEXTS: [&str; 8] = ["a", "b", "c", "ab", "bc", "abc", "\n", "$"];

fn vocab() -> Arc<Vocabulary> {
    vocabulary(&TEXTS, &[7])
}

fn config(threads: usize) -> EngineConfig {
    EngineConfig {
        straggler_wait: StragglerWait::Unlimited,
        threads: NonZero::new(threads),
        ..EngineConfig::default()
    }
}

fn tiny(threads: usize) -> Engine {
    let options = TinyOptions { vocab: 8, threads, ..TinyOptions::default() };
    Engine::start(tiny_model(3, options), config(threads))
}

/// A model that likes what came before, and its counters.
fn scripted(max_batch_tokens: usize) -> (Engine, Arc<ForwardLog>) {
    let model = ScriptedModel::new(8, |history: &[TokenId]| {
        let seen = |t: u32| history.iter().filter(|token| token.0 == t).count() as f32;
        (0..8).map(|t| 0.3 * seen(t) + if t == 7 { 0.1 * history.len() as f32 - 2.0 } else { 0.0 }).collect()
    })
    .max_batch_tokens(max_batch_tokens);
    let log = model.log();
    (Engine::start(model, config(2)), log)
}

fn prompted(engine: &Engine, prompt: &[u32]) -> PromptedLlm {
    let prompt: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
    PromptedLlm::new(engine.clone(), vocab(), &prompt).unwrap()
}

fn constraint(pattern: &str) -> Arc<dyn Potential> {
    Arc::new(Coerced::new(Arc::new(BoolFsa::from_regex(pattern).unwrap()), vocab()).unwrap())
}

/// One of several different runs: samplers, prompts, critics and thresholds alternate.
fn problem(engine: &Engine, which: u64) -> (Smc, SmcOptions) {
    let llm = Arc::new(prompted(engine, &[[0, 1], [2, 1], [6, 3]][which as usize % 3]));
    let language = constraint("(a|b|c|\n){0,9}");
    let sampler: Arc<dyn TokenSampler> = if which.is_multiple_of(2) {
        Arc::new(Direct::new(Arc::new(Product::new(llm, language).unwrap())))
    } else {
        Arc::new(Awrs::new(llm, language, AwrsOptions::default()).unwrap())
    };
    let critic: Option<Arc<dyn Potential>> =
        (which % 4 < 2).then(|| Arc::new(prompted(engine, &[5, 2])) as Arc<dyn Potential>);
    let options = SmcOptions {
        n_particles: 5 + which as usize,
        ess_threshold: [0.9, 0.5, 0.0][which as usize % 3],
        max_tokens: 6 + which as usize % 3,
        seed: Some(which),
        problem: which,
        ..SmcOptions::default()
    };
    (Smc::new(sampler, critic).unwrap(), options)
}

fn alone(threads: usize, which: u64) -> Sequences {
    let (smc, options) = problem(&tiny(threads), which);
    smc.run(&options).unwrap()
}

fn assert_same(a: &Sequences, b: &Sequences) {
    assert_eq!(a.contexts(), b.contexts());
    let bits = |s: &Sequences| s.log_weights().iter().map(|w| w.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(a), bits(b));
}

#[test]
fn smc_19_a_run_alone_and_among_seven_others_is_the_same_bit_for_bit() {
    let expected: Vec<Sequences> = (0..8).map(|which| alone(1, which)).collect();
    assert!(expected.iter().any(|sequences| sequences.n_resamples() > 0));
    for threads in [1, 2, 8] {
        let engine = tiny(threads);
        let ready = Barrier::new(8);
        thread::scope(|scope| {
            for (which, expected) in expected.iter().enumerate() {
                let (engine, ready) = (&engine, &ready);
                scope.spawn(move || {
                    let (smc, options) = problem(engine, which as u64);
                    // Half of the runs are recorded.
                    let record = MemoryRecord::default();
                    let mut run = smc.start(&options).unwrap();
                    if (which + threads).is_multiple_of(2) {
                        run = run.with_record(record.clone());
                    }
                    ready.wait();
                    let mut run = run;
                    run.by_ref().for_each(|step| assert!(step.is_ok()));
                    assert_same(&run.sequences(), expected);
                    if let Some(last) = record.steps().last() {
                        let recorded = last.particles.iter().map(|particle| particle.logweight);
                        assert!(recorded.eq(expected.log_weights().iter().copied()));
                    }
                    assert_eq!((which + threads).is_multiple_of(2), !record.steps().is_empty());
                });
            }
        });
    }
}

#[test]
fn smc_19_batches_of_1_3_and_64_tokens_give_the_same_run() {
    let run = |max_batch_tokens| {
        let (engine, _) = scripted(max_batch_tokens);
        let (smc, options) = problem(&engine, 0);
        smc.run(&SmcOptions { n_particles: 20, ..options }).unwrap()
    };
    let reference = run(64);
    assert_same(&run(1), &reference);
    assert_same(&run(3), &reference);
}

#[test]
fn smc_20_two_runs_step_in_shared_forwards_and_keep_their_own_numbers() {
    let plain = |engine: &Engine, prompt: &[u32]| {
        Smc::new(Arc::new(Direct::new(Arc::new(prompted(engine, prompt)))), None).unwrap()
    };
    let options = |seed| SmcOptions {
        n_particles: 4,
        ess_threshold: 0.5,
        max_tokens: 9,
        seed: Some(seed),
        ..SmcOptions::default()
    };
    let cases = [(vec![0_u32, 1], 1_u64), (vec![2, 1], 2)];
    let mut solo = Vec::new();
    let mut forwards = Vec::new();
    for (prompt, seed) in &cases {
        let (engine, log) = scripted(1 << 10);
        solo.push(plain(&engine, prompt).run(&options(*seed)).unwrap());
        forwards.push(log.forwards());
    }
    let (engine, log) = scripted(1 << 10);
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        for ((prompt, seed), solo) in cases.iter().zip(&solo) {
            let (engine, ready) = (&engine, &ready);
            scope.spawn(move || {
                let mut run = plain(engine, prompt).start(&options(*seed)).unwrap();
                ready.wait();
                run.by_ref().for_each(|step| assert!(step.is_ok()));
                assert_same(&run.sequences(), solo);
            });
        }
    });
    // The larger, not the sum: every tick serves the rows of both.
    assert_eq!(Some(&log.forwards()), forwards.iter().max());
    assert!(log.rows().iter().any(|rows| *rows > 4), "{:?}", log.rows());
}

#[test]
fn smc_31_an_lm_critic_and_a_product_of_two_lms_take_one_forward_a_step() {
    let options = SmcOptions {
        n_particles: 6,
        max_tokens: 5,
        ess_threshold: 0.5,
        seed: Some(4),
        ..SmcOptions::default()
    };
    let run = |smc: Smc, log: &ForwardLog| {
        let mut steps = 0;
        let before = log.forwards();
        for step in &mut smc.start(&options).unwrap() {
            step.unwrap();
            steps += 1;
        }
        assert_eq!(log.forwards() - before, steps);
    };
    let (engine, log) = scripted(1 << 10);
    let llm = |prompt: &[u32]| -> Arc<dyn Potential> { Arc::new(prompted(&engine, prompt)) };
    run(Smc::new(Arc::new(Direct::new(llm(&[0]))), Some(llm(&[1, 2]))).unwrap(), &log);
    let product = Product::new(llm(&[0]), llm(&[1, 2])).unwrap();
    run(Smc::new(Arc::new(Direct::new(Arc::new(product))), None).unwrap(), &log);
    let awrs = Awrs::new(llm(&[0]), constraint("[abc]*"), AwrsOptions::default()).unwrap();
    run(Smc::new(Arc::new(awrs), Some(llm(&[1, 2]))).unwrap(), &log);
}

#[test]
fn smc_31_a_thousand_particles_run_in_slices_and_equal_the_unsliced_reference() {
    let run = |max_batch_tokens| {
        let (engine, log) = scripted(max_batch_tokens);
        let llm = Arc::new(prompted(&engine, &[0, 1]));
        let target = Product::new(llm, constraint("[abc]{0,12}")).unwrap();
        let smc = Smc::new(Arc::new(Direct::new(Arc::new(target))), None).unwrap();
        let options = SmcOptions { n_particles: 1000, max_tokens: 8, seed: Some(9), ..SmcOptions::default() };
        (smc.run(&options).unwrap(), log.forwards())
    };
    let (reference, whole) = run(1 << 16);
    let (sliced, slices) = run(64);
    assert_same(&sliced, &reference);
    assert!(slices > whole);
}

/// A critic that asks the engine of its run, with a run of its own in each call.
struct Nested(Engine);

impl SequencePotential for Nested {
    fn vocab(&self) -> &Arc<Vocabulary> {
        static VOCAB: std::sync::LazyLock<Arc<Vocabulary>> = std::sync::LazyLock::new(vocab);
        &VOCAB
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        let llm = prompted(&self.0, &[5]);
        let mut demands = Demands::default();
        llm.demand(1, 9, &mut demands)?;
        let mut cursor = llm.open(1, &Run::reserve(demands)?)?;
        cursor.advance(&[0], &[context]);
        cursor.score(&[0]).remove(0)
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        self.prefix(context)
    }
}

#[test]
fn smc_32_critics_that_call_the_same_engine_do_not_deadlock() {
    // Stragglers are waited for without limit.
    let solve = |engine: &Engine, prompt: &[u32]| {
        let critic = FromSequences::new(Nested(engine.clone()));
        let sampler = Direct::new(Arc::new(prompted(engine, prompt)));
        let options = SmcOptions { n_particles: 3, max_tokens: 5, seed: Some(8), ..SmcOptions::default() };
        Smc::new(Arc::new(sampler), Some(Arc::new(critic))).unwrap().run(&options).unwrap()
    };
    let prompts: [&[u32]; 2] = [&[0, 1], &[2, 1]];
    let solo = prompts.map(|prompt| solve(&scripted(1 << 10).0, prompt));
    let (engine, _) = scripted(1 << 10);
    thread::scope(|scope| {
        let both = prompts.map(|prompt| scope.spawn(|| solve(&engine, prompt)));
        for (run, solo) in both.into_iter().zip(&solo) {
            assert_same(&run.join().unwrap(), solo);
        }
    });
    assert_eq!(engine.reserved_kv_bytes(), 0);
}

#[test]
fn a_run_reserves_once_and_gives_everything_back() {
    let (engine, log) = scripted(1 << 10);
    let (smc, options) = problem(&engine, 0);
    let mut run = smc.start(&options).unwrap();
    // Sampler and critic: a prompt of two tokens, and the longest sequence of every particle, each.
    assert_eq!(engine.reserved_kv_bytes(), 2 * (2 + options.n_particles * options.max_tokens));
    run.by_ref().for_each(|step| assert!(step.is_ok()));
    drop(run);
    assert_eq!(engine.reserved_kv_bytes(), 0);
    // The scheduler frees sequences in order; whatever runs next comes after that.
    let (smc, options) = problem(&engine, 0);
    smc.run(&SmcOptions { max_tokens: 1, ..options }).unwrap();
    assert!(log.held() <= 2, "{}", log.held());

    let tight = Engine::start(
        ScriptedModel::new(8, |_: &[TokenId]| vec![0.0; 8]),
        EngineConfig { kv_bytes: Some(10), ..config(1) },
    );
    let (smc, options) = problem(&tight, 0);
    let error = smc.run(&options).unwrap_err();
    assert!(error.to_string().starts_with("kv memory: "), "{error}");
}

#[test]
fn samplers_15_unseeded_runs_differ_and_a_seed_fixes_everything_but_the_problem() {
    let run = |sampler_seed, seed, problem| {
        let llm = Arc::new(prompted(&tiny(1), &[0, 1]));
        let options = AwrsOptions { seed: sampler_seed, ..AwrsOptions::default() };
        let awrs = Awrs::new(llm, constraint("[abc]{0,12}"), options).unwrap();
        // Without resampling, whose keys are the run's, the sampler's keys fix everything.
        let options = SmcOptions {
            n_particles: 8,
            max_tokens: 8,
            ess_threshold: 0.0,
            seed,
            problem,
            ..SmcOptions::default()
        };
        let sequences = Smc::new(Arc::new(awrs), None).unwrap().run(&options).unwrap();
        (sequences.contexts().to_vec(), sequences.log_weights().to_vec())
    };
    assert_ne!(run(None, None, 0), run(None, None, 0));
    assert_eq!(run(Some(7), None, 0), run(Some(7), Some(3), 0));
    assert_eq!(run(None, Some(3), 0), run(None, Some(3), 0));
    assert_ne!(run(Some(7), None, 0), run(Some(7), None, 1));
}
