//! Random submissions, removals, continuations and faults against a simple model of the engine: a
//! row gives what it gives alone, exactly once, and nothing is left behind.

use std::num::NonZero;

use lockstep_engine::model::ModelErrorKind;
use lockstep_engine::{Engine, EngineConfig, RowLimits, RowStream};
use proptest::prelude::*;

use crate::support::{Result_, alone, config, mixed, model, result};

#[derive(Clone, Debug)]
enum Action {
    /// So many rows, from this one on.
    Submit(u32, u32),
    /// A group of one row's copies.
    Group(u32, u32),
    /// Take so many events of a stream.
    Read(usize, usize),
    /// Cancel one.
    Cancel(usize),
    /// Let go of one.
    Drop(usize),
    /// Wait for one.
    Wait(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        4 => (0u32..60, 1u32..5).prop_map(|(first, n)| Action::Submit(first, n)),
        1 => (0u32..60, 2u32..4).prop_map(|(first, n)| Action::Group(first, n)),
        3 => (0usize..20, 1usize..4).prop_map(|(at, n)| Action::Read(at, n)),
        2 => (0usize..20).prop_map(Action::Cancel),
        1 => (0usize..20).prop_map(Action::Drop),
        2 => (0usize..20).prop_map(Action::Wait),
    ];
    prop::collection::vec(action, 1..25)
}

struct Live {
    which: u32,
    choice: u32,
    stream: RowStream,
    read: usize,
    cancelled: bool,
}

fn expected(which: u32, choice: u32) -> Result_ {
    alone(lockstep_engine::RowSpec { choice, ..mixed(which) })
}

/// A row is whole, or the beginning of one if it was cancelled or in a forward that failed.
fn check(live: Live, faults: bool) -> Result<(), TestCaseError> {
    let expected = expected(live.which, live.choice);
    let given = result(&live.stream.wait());
    if given.reason == "cancelled" || given.reason == "error" {
        let expects = if given.reason == "error" { faults } else { live.cancelled };
        prop_assert!(expects);
        prop_assert!(expected.ids[live.read..].starts_with(&given.ids));
    } else {
        prop_assert_eq!(&expected.ids[live.read..], &given.ids[..]);
        prop_assert_eq!(expected.reason, given.reason);
        prop_assert!(expected.text.ends_with(&given.text));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn b_02_random_submissions_and_removals(
        actions in actions(),
        decode in 1usize..6,
        prefill in 1usize..4,
        chunk in prop::option::of(1usize..5),
        kv in 60usize..200,
        cache in prop_oneof![Just(0usize), 10usize..60],
        faults in prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(1u64..40, 1..4)],
    ) {
        let model = model();
        let log = model.log();
        let fails = !faults.is_empty();
        let model = model.fails_at(faults.clone(), ModelErrorKind::Limit);
        let engine = Engine::start(model, EngineConfig {
            limits: RowLimits::new(decode.max(4), prefill).unwrap(),
            prefill_step_tokens: chunk.and_then(NonZero::new),
            kv_bytes: Some(kv),
            prompt_cache_bytes: Some(cache),
            ..config()
        });
        let mut live: Vec<Live> = Vec::new();
        let mut submitted = 0;
        for action in actions {
            match action {
                Action::Submit(first, n) => {
                    let streams = engine.submit((first..first + n).map(mixed).collect()).unwrap();
                    for (which, stream) in (first..).zip(streams) {
                        prop_assert_eq!(stream.id().0, submitted);
                        submitted += 1;
                        live.push(Live { which, choice: 0, stream, read: 0, cancelled: false });
                    }
                }
                Action::Group(which, n) => {
                    let specs = (0..n).map(|choice| lockstep_engine::RowSpec { choice, ..mixed(which) });
                    for (choice, stream) in (0..).zip(engine.submit_group(specs.collect()).unwrap()) {
                        submitted += 1;
                        live.push(Live { which, choice, stream, read: 0, cancelled: false });
                    }
                }
                Action::Read(at, n) if at < live.len() => {
                    for _ in 0..n {
                        if let Some(lockstep_engine::RowEvent::Token(token)) = live[at].stream.try_next() {
                            let whole = expected(live[at].which, live[at].choice);
                            prop_assert_eq!(whole.ids[live[at].read], token.token);
                            live[at].read += 1;
                        } else {
                            break;
                        }
                    }
                }
                Action::Cancel(at) if at < live.len() => {
                    live[at].stream.cancel();
                    live[at].cancelled = true;
                }
                Action::Drop(at) if at < live.len() => drop(live.swap_remove(at)),
                Action::Wait(at) if at < live.len() => {
                    let row = live.swap_remove(at);
                    if row.stream.is_open() {
                        check(row, fails)?;
                    }
                }
                _ => {}
            }
        }
        for row in live.into_iter().filter(|row| row.stream.is_open()) {
            check(row, fails)?;
        }
        // Served after everything else was seen to.
        drop(engine.reserve(kv).unwrap());
        // Faults end: each ends one row here at most.
        let mut last = None;
        for _ in 0..=faults.len() {
            submitted += 1;
            last = Some(result(&engine.submit(vec![mixed(0)]).unwrap().remove(0).wait()));
            if last.as_ref().is_some_and(|last| last.reason != "error") {
                break;
            }
        }
        prop_assert_eq!(last, Some(alone(mixed(0))));
        let stats = engine.stats();
        let finished = stats.finished_stop + stats.finished_length + stats.finished_cancelled + stats.finished_error;
        prop_assert_eq!(finished, submitted);
        prop_assert_eq!(engine.reserved_kv_bytes(), 0);
        prop_assert!(engine.stored_kv_bytes() <= cache);
        prop_assert_eq!(log.held() > 1, false);
        prop_assert!(fails || stats.finished_error == 0);
    }
}
