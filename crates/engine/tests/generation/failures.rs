//! What fails, and who notices.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use lockstep_engine::generation::Constraint;
use lockstep_engine::model::ModelErrorKind;
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::{Engine, EngineError, RowEvent, RowSpec, RowStream};
use lockstep_sample::{
    Bitset, LogitsProcessor, LogprobRows, RowNoise, RowSampler, SampleError, SharedSampler, TokenId,
};

use crate::support::{IDS, NoRepeats, alone, config, error_text, model, result, script, spec, start};

fn endless(which: u32, n: usize) -> RowSpec {
    RowSpec { ignore_eos: true, ..spec(which, 3, n) }
}

struct Failing;
impl LogitsProcessor for Failing {
    fn process(&mut self, history: &[TokenId], _: &mut [f32]) -> Result<(), SampleError> {
        if history.len() < 5 { Ok(()) } else { Err(SampleError::new("out of ideas")) }
    }
}

struct Panicking;
impl RowSampler for Panicking {
    fn draw(
        &mut self,
        _: LogprobRows<'_>,
        _: &mut RowNoise<'_>,
        _: &mut [TokenId],
    ) -> Result<(), SampleError> {
        panic!("out of luck")
    }
}

#[test]
fn b_42_a_failing_processor_and_a_panicking_sampler_end_their_rows_alone() {
    let engine = start();
    let sampler: SharedSampler = Arc::new(Mutex::new(Panicking));
    let specs = vec![
        endless(0, 8),
        RowSpec { processors: vec![Box::new(Failing)], ..endless(1, 8) },
        RowSpec { sampler: Some(sampler), ..endless(2, 8) },
        endless(3, 8),
    ];
    let generated: Vec<_> = engine.submit(specs).unwrap().into_iter().map(RowStream::wait).collect();
    assert_eq!(result(&generated[0]), alone(endless(0, 8)));
    assert_eq!(result(&generated[3]), alone(endless(3, 8)));
    assert_eq!((error_text(&generated[1]).as_str(), generated[1].ids().len()), ("out of ideas", 2));
    assert_eq!(error_text(&generated[2]), "a sampler or processor panicked: out of luck");
    assert_eq!(result(&engine.submit(vec![endless(4, 8)]).unwrap().remove(0).wait()), alone(endless(4, 8)));
    assert_eq!((engine.stats().finished_error, engine.reserved_kv_bytes()), (2, 0));
}

#[test]
fn bad_logits_and_an_empty_support_end_their_rows_alone() {
    let model = ScriptedModel::new(IDS, |history: &[TokenId]| match history.last() {
        Some(TokenId(0)) => [vec![f32::NAN], vec![0.0; IDS - 1]].concat(),
        Some(TokenId(1)) => vec![f32::NEG_INFINITY; IDS],
        _ => script(history),
    });
    let engine = Engine::start(model, config());
    let ending = |last: u32| RowSpec { prompt: vec![TokenId(5), TokenId(last)], ..spec(1, 0, 1) };
    let generated: Vec<_> =
        engine.submit((0..3).map(ending).collect()).unwrap().into_iter().map(RowStream::wait).collect();
    assert!(error_text(&generated[0]).contains("NaN") || error_text(&generated[0]).contains("finite"));
    assert!(!error_text(&generated[1]).is_empty());
    assert_eq!(generated[2].finished.reason.name(), "length");
}

/// Allows everything, until it fails at its third token, as told.
struct Third(u32, fn() -> Result<Arc<Bitset>, String>);
impl Constraint for Third {
    fn mask(&mut self) -> Result<Arc<Bitset>, String> {
        if self.0 == 3 { (self.1)() } else { Ok(Arc::new(Bitset::full(IDS))) }
    }
    fn accept(&mut self, _: TokenId) -> Result<(), String> {
        self.0 += 1;
        Ok(())
    }
}

#[test]
fn a_failing_constraint_ends_its_row_alone() {
    let constrained = |fail| RowSpec { constraint: Some(Box::new(Third(0, fail))), ..endless(1, 8) };
    let specs = vec![
        constrained(|| Err("no way out".into())),
        constrained(|| panic!("out of luck")),
        constrained(|| Ok(Arc::new(Bitset::full(3)))),
        constrained(|| Ok(Arc::new(Bitset::new(IDS)))),
        endless(2, 8),
    ];
    let generated: Vec<_> = start().submit(specs).unwrap().into_iter().map(RowStream::wait).collect();
    let errors = [
        "constraint: no way out",
        "constraint: it panicked: out of luck",
        "constraint: its mask has 3 ids but the row has 12",
    ];
    for (generated, error) in generated.iter().zip(errors) {
        assert_eq!((error_text(generated).as_str(), generated.ids().len()), (error, 3));
    }
    assert!(matches!(
        generated[3].finished.reason,
        lockstep_engine::FinishReason::Error(EngineError::Row(_))
    ));
    assert_eq!(result(&generated[4]), alone(endless(2, 8)));
}

#[test]
fn b_42_a_failing_forward_ends_the_rows_in_it_and_the_engine_goes_on() {
    let inner = model();
    let log = inner.log();
    let engine = Engine::start(inner.fails_at([3], ModelErrorKind::Limit), config());
    let mut streams = engine.submit((0..3).map(|which| endless(which, 8)).collect()).unwrap();
    streams.extend(engine.submit_group(vec![endless(5, 8), endless(5, 8)]).unwrap());
    let mut failed = 0;
    for generated in streams.into_iter().map(RowStream::wait) {
        // The group may have come too late for that forward.
        if generated.finished.reason.name() == "error" {
            failed += 1;
            assert_eq!(
                (error_text(&generated).as_str(), generated.ids().len() <= 2),
                ("model: no room", true)
            );
        }
    }
    assert!(failed >= 3);
    assert_eq!(result(&engine.submit(vec![endless(4, 8)]).unwrap().remove(0).wait()), alone(endless(4, 8)));
    assert_eq!(engine.reserved_kv_bytes(), 0);
    drop(engine.reserve(100_000).unwrap());
    drop(engine.submit(vec![endless(4, 1)]).unwrap().remove(0).wait());
    assert!(log.held() <= 1);
}

#[test]
fn b_42_a_group_whose_prompt_fails_ends_whole() {
    let inner = model();
    let log = inner.log();
    let engine = Engine::start(inner.fails_at([1], ModelErrorKind::Limit), config());
    let streams = engine.submit_group((0..3).map(|_| endless(5, 8)).collect()).unwrap();
    for generated in streams.into_iter().map(RowStream::wait) {
        assert_eq!((error_text(&generated).as_str(), generated.ids().len()), ("model: no room", 0));
    }
    assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
}

#[test]
fn after_a_fatal_error_everybody_is_answered_and_submissions_are_refused() {
    let fatal = model().fails_at([2], ModelErrorKind::Fatal);
    let engine = Engine::start(
        fatal,
        lockstep_engine::EngineConfig { limits: lockstep_engine::RowLimits::new(2, 2).unwrap(), ..config() },
    );
    let streams = engine.submit((0..4).map(|which| endless(which, 8)).collect()).unwrap();
    let generated: Vec<_> = streams.into_iter().map(RowStream::wait).collect();
    assert_eq!(error_text(&generated[0]), "model: no room");
    assert_eq!(error_text(&generated[3]), "the engine has stopped: no room");
    assert!(matches!(engine.submit(vec![endless(1, 1)]), Err(EngineError::Stopped(_))));
    assert_eq!(engine.reserved_kv_bytes(), 0);
}

/// Waits for its latch at every call.
struct Blocked(Arc<Mutex<Receiver<()>>>);
impl LogitsProcessor for Blocked {
    fn process(&mut self, _: &[TokenId], _: &mut [f32]) -> Result<(), SampleError> {
        self.0.lock().unwrap().recv().map_err(|_| SampleError::new("left alone"))
    }
}

#[test]
fn b_45_a_processor_that_blocks_delays_its_row_alone() {
    let engine = start();
    let (open, latch) = channel();
    let latch = Arc::new(Mutex::new(latch));
    let blocked = RowSpec { processors: vec![Box::new(Blocked(Arc::clone(&latch)))], ..endless(1, 4) };
    let abandoned = RowSpec { processors: vec![Box::new(Blocked(latch))], ..endless(7, 4) };
    let mut streams = engine.submit(vec![blocked, endless(2, 30), endless(3, 30)]).unwrap();
    let waiting = streams.remove(0);
    for (which, stream) in [2, 3].into_iter().zip(streams) {
        assert_eq!(result(&stream.wait()), alone(endless(which, 30)));
    }
    assert!(engine.stats().straggler_waits <= 2, "late twice, it is not waited for");
    for _ in 0..4 {
        open.send(()).unwrap();
    }
    assert_eq!(result(&waiting.wait()), alone(endless(1, 4)));
    // A row that is away can be cancelled, and what it holds is given back at once.
    let mut abandoned = engine.submit(vec![abandoned]).unwrap().remove(0);
    let beside = engine.submit(vec![endless(4, 3)]).unwrap().remove(0);
    assert_eq!(result(&beside.wait()), alone(endless(4, 3)));
    abandoned.cancel();
    let Some(RowEvent::Finished(finished)) = abandoned.next() else { panic!() };
    assert_eq!((finished.reason.name(), engine.reserved_kv_bytes()), ("cancelled", 0));
    drop(open);
}

/// Waits for its latch before every mask.
struct Late(Receiver<()>, NoRepeats);
impl Constraint for Late {
    fn mask(&mut self) -> Result<Arc<Bitset>, String> {
        self.0.recv().map_err(|_| "left alone".to_owned())?;
        self.1.mask()
    }
    fn accept(&mut self, token: TokenId) -> Result<(), String> {
        self.1.accept(token)
    }
}

#[test]
fn b_45_a_constraint_that_blocks_delays_its_row_alone_and_is_never_skipped() {
    let engine = start();
    let (open, latch) = channel();
    let constrained =
        |constraint: Box<dyn Constraint>| RowSpec { constraint: Some(constraint), ..endless(1, 5) };
    let late = constrained(Box::new(Late(latch, NoRepeats::default())));
    let mut streams = engine.submit(vec![late, endless(2, 30)]).unwrap();
    assert_eq!(result(&streams.pop().unwrap().wait()), alone(endless(2, 30)));
    // One for each of its five masks and none more: it takes the latch with it as it ends.
    for _ in 0..5 {
        open.send(()).unwrap();
    }
    let expected = alone(constrained(Box::<NoRepeats>::default()));
    assert_eq!(result(&streams.pop().unwrap().wait()), expected);
    assert!(expected.ids.windows(2).all(|pair| pair[0] != pair[1]));
}
