//! Who enters when.

use std::num::NonZero;

use lockstep_engine::generation::{RowId, Usage};
use lockstep_engine::{Engine, EngineConfig, RowSpec, RowStream};

use crate::support::{Clock, alone, config, limits, model, prompt, result, spec, start, steps, together};

/// Draws exactly `n` tokens.
fn endless(which: u32, prompt: usize, n: usize) -> RowSpec {
    RowSpec { ignore_eos: true, ..spec(which, prompt, n) }
}

#[test]
fn b_29_a_flood_of_8_with_memory_for_4_runs_in_two_waves() {
    let model = model();
    let log = model.log();
    let config = EngineConfig { kv_bytes: Some(4 * 15), prompt_cache_bytes: Some(0), ..config() };
    let engine = Engine::start(model, config);
    let streams = engine.submit((0..8).map(|which| endless(which, 5, 10)).collect()).unwrap();
    let generated: Vec<_> = streams.into_iter().map(RowStream::wait).collect();
    for (which, generated) in (0..8).zip(&generated) {
        assert_eq!(result(generated), alone(endless(which, 5, 10)));
        let wave: Vec<u64> = (1..=10).map(|step| step + if which < 4 { 0 } else { 10 }).collect();
        assert_eq!(steps(generated), wave);
    }
    assert_eq!(log.rows(), [4; 20]);
    assert!(log.most_held_tokens() <= 4 * 15);
    assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
}

#[test]
fn b_30_the_limits_hold_in_every_step_under_random_load() {
    for seed in 0..6_u32 {
        let (decode, prefill) = (1 + seed as usize % 4, 1 + seed as usize % 2);
        let (decode, prefill) = (decode.max(prefill), prefill);
        let model = model();
        let log = model.log();
        let config = EngineConfig {
            prefill_step_tokens: NonZero::new(3),
            kv_bytes: Some(80),
            ..limits(decode, prefill)
        };
        let engine = Engine::start(model, config);
        let make = |at: u32| {
            let which = at * 7 + seed;
            endless(which, 1 + (which as usize * 5) % 12, 1 + (which as usize * 3) % 9)
        };
        for (at, result) in (0..20).zip(together(&engine, (0..20).map(make).collect())) {
            assert_eq!(result, alone(make(at)), "row {at} of load {seed}");
        }
        for forward in log.tokens() {
            assert!(forward.len() <= decode, "{forward:?}");
            // A row that reads more than a token reads its prompt.
            let reading: Vec<&usize> = forward.iter().filter(|tokens| **tokens > 1).collect();
            assert!(reading.len() <= prefill && reading.into_iter().sum::<usize>() <= 3, "{forward:?}");
        }
        assert_eq!(engine.reserved_kv_bytes(), 0);
    }
}

#[test]
fn b_31_nobody_overtakes_a_waiting_head() {
    let config = EngineConfig { kv_bytes: Some(30), prompt_cache_bytes: Some(0), ..config() };
    let engine = Engine::start(model(), config);
    // 20 of 30 bytes are taken; the head needs 20 and the next 10.
    let specs = vec![endless(0, 5, 15), endless(1, 5, 15), endless(2, 5, 5)];
    let generated: Vec<_> = engine.submit(specs).unwrap().into_iter().map(RowStream::wait).collect();
    let first = |at: usize| steps(&generated[at])[0];
    assert_eq!((first(0), first(1), first(2)), (1, 16, 16));
}

#[test]
fn b_32_rows_are_removed_in_line_while_they_read_and_while_they_draw() {
    let config =
        EngineConfig { prefill_step_tokens: NonZero::new(1), prompt_cache_bytes: Some(0), ..limits(2, 2) };
    let model = model();
    let log = model.log();
    let engine = Engine::start(model, config);
    let clock = Clock::new(&engine);
    let specs = vec![endless(0, 1, 100), endless(1, 50, 5), endless(2, 2, 5), endless(3, 2, 4)];
    let streams = engine.submit(specs).unwrap();
    // The first draws, the second reads a long prompt, the others are in line.
    (0..3).for_each(|_| _ = clock.tick());
    engine.cancel(&[streams[1].id(), streams[2].id(), RowId(77)]);
    // The place that became free is taken.
    (0..5).for_each(|_| _ = clock.tick());
    let party = clock.stop();
    streams[0].cancel();
    drop(party);
    let generated: Vec<_> = streams.into_iter().map(RowStream::wait).collect();
    let ends: Vec<_> = generated.iter().map(|row| (row.finished.reason.name(), row.ids().len())).collect();
    assert_eq!(ends, [("cancelled", 8), ("cancelled", 0), ("cancelled", 0), ("length", 4)]);
    assert_eq!(result(&generated[3]), alone(endless(3, 2, 4)));
    // The second had read two tokens, behind the first's one.
    assert_eq!(engine.stats().prompt_tokens, 1 + 2 + 2);
    assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
    let stats = engine.stats();
    assert_eq!((stats.finished_cancelled, stats.finished_length), (3, 1));
}

#[test]
fn dropping_a_stream_cancels_its_row() {
    let engine = start();
    let clock = Clock::new(&engine);
    let stream = engine.submit(vec![endless(0, 2, 100)]).unwrap().remove(0);
    clock.tick();
    drop(stream);
    drop(clock);
    // Served after the cancellation.
    let next = engine.submit(vec![spec(1, 2, 3)]).unwrap().remove(0).wait();
    assert_eq!(result(&next), alone(spec(1, 2, 3)));
    let stats = engine.stats();
    assert_eq!((stats.finished_cancelled, stats.drawn_tokens), (1, 1 + 3));
}

#[test]
fn b_33_unequal_prompts_and_limits_equal_rows_alone() {
    let config = EngineConfig { prefill_step_tokens: NonZero::new(8), ..limits(3, 2) };
    let model = model();
    let log = model.log();
    let engine = Engine::start(model, config);
    let make = |at: u32| RowSpec {
        logprobs: Some(lockstep_sample::LogprobRequest::default()),
        ..endless(at, [5, 20, 9, 30][at as usize], 2 + at as usize)
    };
    let results = together(&engine, (0..4).map(make).collect());
    for (at, result) in (0..4).zip(results) {
        assert_eq!(result, alone(make(at)));
    }
    for forward in log.tokens() {
        let reading: Vec<usize> = forward.iter().copied().filter(|tokens| *tokens > 1).collect();
        assert!(forward.len() <= 3 && reading.len() <= 2, "{forward:?}");
        assert!(reading.into_iter().sum::<usize>() <= 8, "{forward:?}");
    }
}

#[test]
fn a_group_reads_its_prompt_once_and_its_rows_draw_as_if_alone() {
    let model = model();
    let log = model.log();
    let engine = Engine::start(model, EngineConfig { prompt_cache_bytes: Some(0), ..limits(4, 1) });
    let choice = |choice| RowSpec { choice, ..endless(5, 9, 6) };
    let streams = engine.submit_group((0..4).map(choice).collect()).unwrap();
    // A row that does not fit beside the group waits.
    let next = engine.submit(vec![endless(6, 3, 2)]).unwrap().remove(0);
    let generated: Vec<_> = streams.into_iter().map(RowStream::wait).collect();
    for (at, generated) in (0..4).zip(&generated) {
        assert_eq!(result(generated), alone(choice(at)));
        assert_eq!(steps(generated), [1, 2, 3, 4, 5, 6]);
        let cached_tokens = if at == 0 { 0 } else { 9 };
        let usage = Usage { prompt_tokens: 9, cached_tokens, drawn_tokens: 6 };
        assert_eq!(generated.finished.usage, usage);
    }
    assert!(
        crate::support::distinct(generated.iter().map(|g| g.ids().iter().map(|t| t.0).collect::<Vec<_>>()))
            > 1
    );
    assert_eq!(log.tokens()[0], [9]);
    assert_eq!(steps(&next.wait())[0], 7);
    let stats = engine.stats();
    assert_eq!((stats.prompt_tokens, stats.cached_tokens), (9 + 3, 3 * 9));
    assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
}

#[test]
fn a_group_goes_on_when_the_row_that_reads_its_prompt_is_cancelled() {
    let config =
        EngineConfig { prefill_step_tokens: NonZero::new(1), prompt_cache_bytes: Some(0), ..config() };
    let model = model();
    let log = model.log();
    let engine = Engine::start(model, config);
    let clock = Clock::new(&engine);
    let choice = |choice| RowSpec { choice, ..endless(5, 40, 3) };
    let mut streams = engine.submit_group((0..3).map(choice).collect()).unwrap();
    (0..7).for_each(|_| _ = clock.tick());
    let first = streams.remove(0);
    first.cancel();
    drop(clock);
    assert_eq!(first.wait().finished.reason.name(), "cancelled");
    for (at, stream) in (1..).zip(streams) {
        let generated = stream.wait();
        assert_eq!(result(&generated), alone(choice(at)));
        // Where the first had got to, the next went on.
        assert_eq!(steps(&generated), [40, 41, 42]);
    }
    assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
    assert_eq!(engine.stats().prompt_tokens, 40);
}

#[test]
fn groups_that_can_never_enter_are_refused() {
    let engine = Engine::start(model(), limits(2, 1));
    let refused = |specs: Vec<RowSpec>, what: &str| {
        let error = engine.submit_group(specs).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    };
    refused((0..3).map(|_| spec(1, 2, 3)).collect(), "rows[0].group: a group of 3 rows exceeds");
    refused(vec![spec(1, 2, 3), spec(2, 2, 3)], "rows[1].prompt: differs within a group");
    refused(vec![RowSpec { keep: true, ..spec(1, 2, 3) }, spec(1, 2, 3)], "rows[0].keep");
    let share = limits(2, 1).limits.with_group_share(0.5).unwrap();
    let config = EngineConfig { limits: share, kv_bytes: Some(20), ..config() };
    let engine = Engine::start(model(), config);
    let error = engine.submit_group(vec![spec(1, 2, 5), spec(1, 2, 5)]).unwrap_err().to_string();
    assert!(error.starts_with("rows[0].max_tokens: the row may take 12 bytes"), "{error}");
    assert!(engine.reserve(11).is_err() && engine.reserve(10).is_ok());
    assert!(engine.submit_group(vec![]).unwrap().is_empty());
    assert_eq!(prompt(1, 2).len(), 2);
}
