//! Records of runs: exact, valid whatever happens, and without effect.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::io;
use std::sync::Arc;

use lockstep_control::potential::{FromSequences, SequencePotential};
use lockstep_control::record::{Contents, Mode, RecordedToken, StepRecord, unescape};
use lockstep_control::{
    ControlError, Direct, ErrorKind, JsonLinesRecord, JsonRecord, MemoryRecord, Record, Recording, Sequences,
    Smc, SmcOptions, SmcRun,
};
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::{EosSet, TokenId};

const DEAD: f64 = f64::NEG_INFINITY;
const TOKENS: [&[u8]; 9] = [b"|", b"a b", b"<<<", b"EOS", b"\\", b"\n", b"\x80", b"", b"nan-inf"];

fn vocab() -> Arc<Vocabulary> {
    let entry = |bytes: &&[u8]| TokenEntry { bytes: bytes.to_vec(), special: false };
    Vocabulary::new(TOKENS.iter().map(entry).collect(), EosSet::new([])).unwrap()
}

/// Every token as likely as the end, times a function of the context.
struct Weighted<F>(Arc<Vocabulary>, F);

impl<F: Fn(&[TokenId]) -> Result<f64, ControlError> + Send + Sync> SequencePotential for Weighted<F> {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.0
    }
    fn prefix(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        (self.1)(context)
    }
    fn complete(&self, context: &[TokenId]) -> Result<f64, ControlError> {
        (self.1)(context)
    }
}

fn smc(critic: impl Fn(&[TokenId]) -> Result<f64, ControlError> + Send + Sync + 'static) -> Smc {
    let vocab = vocab();
    let even = FromSequences::new(Weighted(Arc::clone(&vocab), |_: &[TokenId]| Ok(0.0)));
    let critic = FromSequences::new(Weighted(vocab, critic));
    Smc::new(Arc::new(Direct::new(Arc::new(even))), Some(Arc::new(critic))).unwrap()
}

/// Spreads the weights; a context with two of `\` is dead.
fn uneven(context: &[TokenId]) -> Result<f64, ControlError> {
    let dead = context.iter().filter(|token| token.0 == 4).count() > 1;
    Ok(if dead { DEAD } else { context.iter().map(|token| -0.4 * f64::from(token.0)).sum() })
}

fn options(seed: u64) -> SmcOptions {
    SmcOptions {
        n_particles: 24,
        ess_threshold: 0.7,
        max_tokens: 12,
        seed: Some(seed),
        ..SmcOptions::default()
    }
}

fn finish(mut run: SmcRun) -> Sequences {
    run.by_ref().for_each(|step| assert!(step.is_ok()));
    run.sequences()
}

fn spelled(context: &[TokenId]) -> Vec<RecordedToken> {
    let spell = |token: &TokenId| match token.is_eos() {
        true => RecordedToken::Eos,
        false => RecordedToken::Bytes(TOKENS[token.index()].to_vec()),
    };
    context.iter().map(spell).collect()
}

#[test]
fn smc_26_increments_along_ancestors_rebuild_the_final_contexts() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = [false; TOKENS.len()];
    for seed in 0..6 {
        let path = folder.path().join("run.json");
        let run = smc(uneven).start(&options(seed)).unwrap();
        let sequences = finish(run.with_record(JsonRecord::create(&path).unwrap()));
        assert!(sequences.n_resamples() > 1);

        let recording = Recording::read(&path).unwrap();
        let last = recording.contents().last().unwrap();
        for (i, (context, weight)) in sequences.iter().enumerate() {
            assert_eq!(unescape(&last[i]).unwrap(), spelled(context));
            let particle = &recording.steps().last().unwrap().particles[i];
            assert_eq!(particle.logweight.to_bits(), weight.to_bits());
            context.iter().filter(|token| !token.is_eos()).for_each(|token| seen[token.index()] = true);
        }
        assert!(sequences.log_weights().iter().any(|weight| *weight > DEAD));
        // No resampling is lost, and each weight is its parent's and the increment.
        let resamples = recording.steps().iter().filter(|step| step.mode == Mode::Resample).count();
        assert_eq!(resamples, sequences.n_resamples());
        for pair in recording.steps().windows(2) {
            assert_eq!(pair[1].step, pair[0].step + 1);
            for (i, particle) in pair[1].particles.iter().enumerate() {
                let parent = pair[0].particles[pair[1].parent(i)].logweight;
                assert!(
                    (parent + particle.weight_incr - particle.logweight).abs() < 1e-12
                        || parent + particle.weight_incr == particle.logweight
                );
            }
        }
    }
    assert_eq!(seen, [true; TOKENS.len()]);
}

#[test]
fn smc_27_dead_particles_leave_neither_nan_nor_inf_in_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    // Without resampling dead particles stay; token 8, whose text would be found, is not drawn.
    let critic = |context: &[TokenId]| match context.iter().any(|token| token.0 == 8) {
        true => Ok(DEAD),
        false => uneven(context),
    };
    let options = SmcOptions { ess_threshold: 1e-9, n_particles: 40, ..options(3) };
    let run = smc(critic).start(&options).unwrap();
    let sequences = finish(run.with_record(JsonRecord::create(&path).unwrap()));
    let dead = sequences.log_weights().iter().filter(|weight| **weight == DEAD).count();
    assert!(dead > 2 && dead < 40, "{dead}");

    let text = std::fs::read_to_string(&path).unwrap().replace("nan-inf", "");
    assert!(!text.to_lowercase().contains("nan"));
    assert!(!text.contains("-inf") && text.contains("\"-Infinity\""));
    let recording = Recording::read(&path).unwrap();
    // A particle that stays dead has no increment.
    let stays = recording.steps().windows(2).flat_map(|pair| {
        let after = pair[1].particles.iter().enumerate();
        after.filter(|(i, _)| pair[0].particles[*i].logweight == DEAD).map(|(_, particle)| particle)
    });
    let stays: Vec<_> = stays.collect();
    assert!(!stays.is_empty());
    for particle in stays {
        assert_eq!(particle.contents, Contents::Increment(String::new()));
        assert_eq!((particle.logweight, particle.weight_incr), (DEAD, 0.0));
    }
}

#[test]
fn all_writers_record_the_same_steps_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let plain = finish(smc(uneven).start(&options(5)).unwrap());
    let memory = MemoryRecord::default();
    assert_eq!(finish(smc(uneven).start(&options(5)).unwrap().with_record(memory.clone())), plain);
    let file = JsonRecord::create(&path).unwrap();
    assert_eq!(file.path(), path);
    assert_eq!(finish(smc(uneven).start(&options(5)).unwrap().with_record(file)), plain);
    let lines = folder.path().join("run.jsonl");
    let writer = JsonLinesRecord::new(std::fs::File::create(&lines).unwrap());
    assert_eq!(finish(smc(uneven).start(&options(5)).unwrap().with_record(writer)), plain);

    let recording = Recording::new(memory.steps()).unwrap();
    assert_eq!(Recording::read(&path).unwrap(), recording);
    assert_eq!(Recording::read(&lines).unwrap(), recording);
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_gets_the_list_too() {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    let memory = MemoryRecord::default();
    let expected = finish(smc(uneven).start(&options(5)).unwrap().with_record(memory.clone()));
    let (mut reader, writer) = std::io::pipe().unwrap();
    let record = JsonRecord::create(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap();
    drop(writer);
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(finish(smc(uneven).start(&options(5)).unwrap().with_record(record)), expected);
    let text = reading.join().unwrap().unwrap();
    assert_eq!(Recording::parse(&text).unwrap(), Recording::new(memory.steps()).unwrap());
}

#[test]
fn a_record_that_begins_late_begins_with_the_whole_state() {
    let memory = MemoryRecord::default();
    let mut run = smc(uneven).start(&options(5)).unwrap();
    assert!(run.by_ref().take(3).all(|step| step.is_ok()));
    let sequences = finish(run.with_record(memory.clone()));
    let recording = Recording::new(memory.steps()).unwrap();
    assert_eq!((recording.steps()[0].step, recording.steps()[0].mode), (4, Mode::Init));
    for (text, context) in recording.contents().last().unwrap().iter().zip(sequences.contexts()) {
        assert_eq!(unescape(text).unwrap(), spelled(context));
    }
}

#[test]
fn a_step_after_a_resampling_to_finished_particles_only_is_recorded_empty() {
    // A sequence that has not ended by step 1 weighs almost nothing.
    let vocab = vocab();
    let light = |context: &[TokenId]| Ok(if context.is_empty() { 0.0 } else { -60.0 });
    let even = FromSequences::new(Weighted(Arc::clone(&vocab), |_: &[TokenId]| Ok(0.0)));
    let critic = FromSequences::new(Weighted(vocab, light));
    let smc = Smc::new(Arc::new(Direct::new(Arc::new(even))), Some(Arc::new(critic))).unwrap();
    let memory = MemoryRecord::default();
    let run = smc.start(&SmcOptions { n_particles: 40, ..options(1) }).unwrap();
    let sequences = finish(run.with_record(memory.clone()));
    assert!(sequences.contexts().iter().all(|context| context == &[TokenId::EOS]));
    let steps = memory.steps();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[1].mode, Mode::Resample);
    for (particle, weight) in steps[1].particles.iter().zip(sequences.log_weights()) {
        assert_eq!(particle.contents, Contents::Increment(String::new()));
        assert_eq!(particle.logweight, *weight);
    }
}

#[test]
fn a_run_that_ends_in_an_error_leaves_a_valid_file_of_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let critic = |context: &[TokenId]| match context.len() {
        4 => Err(ControlError::new(ErrorKind::Custom, "four is too many")),
        _ => Ok(0.0),
    };
    let mut run = smc(critic).start(&options(2)).unwrap().with_record(JsonRecord::create(&path).unwrap());
    assert!(Recording::read(&path).unwrap().steps().is_empty());
    let mut steps = 0;
    let error = loop {
        match run.next().unwrap() {
            Ok(_) => steps += 1,
            Err(error) => break error,
        }
        assert_eq!(Recording::read(&path).unwrap().steps().len(), steps);
    };
    assert_eq!(error.to_string(), "four is too many");
    assert_eq!(steps, 3);
    assert_eq!(Recording::read(&path).unwrap().steps().len(), 3);
}

#[test]
fn a_record_that_cannot_be_written_ends_the_run() {
    struct Full;
    impl Record for Full {
        fn write(&mut self, step: &StepRecord) -> io::Result<()> {
            if step.step < 3 { Ok(()) } else { Err(io::Error::other("the disk is full")) }
        }
    }
    let mut run = smc(uneven).start(&options(2)).unwrap().with_record(Full);
    assert!(run.next().unwrap().is_ok() && run.next().unwrap().is_ok());
    let error = run.next().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Record, "record: the disk is full".into()));
    assert!(run.next().is_none());
}
