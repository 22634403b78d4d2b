//! Going on from what is there already: continued rows and stored prompts.

use lockstep_engine::generation::Generated;
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::{Engine, EngineConfig, RowSpec, RowStream, TokenId};

use crate::support::{config, model, prompt, result, spec, start, tokens};

fn endless(which: u32, prompt: usize, n: usize) -> RowSpec {
    RowSpec { ignore_eos: true, ..spec(which, prompt, n) }
}

fn wait(engine: &Engine, spec: RowSpec) -> Generated {
    engine.submit(vec![spec]).unwrap().remove(0).wait()
}

/// Of each kind of state: plain, recurrent, sliding window 4.
fn models() -> [fn() -> ScriptedModel; 3] {
    [model, || model().recurrent(), || model().sliding_window(4)]
}

#[test]
fn b_35_a_continued_row_is_the_whole_row() {
    for model in models() {
        let scripted = model();
        let log = scripted.log();
        let uncached = EngineConfig { prompt_cache_bytes: Some(0), ..config() };
        let engine = Engine::start(scripted, uncached.clone());
        let kept = || RowSpec { keep: true, ..endless(1, 6, 7) };
        // Beside others, so that it is fed in batches.
        let mut streams = engine.submit(vec![kept(), endless(2, 3, 9), endless(3, 9, 4)]).unwrap();
        let mut first = streams.remove(0).wait();
        let continuation = first.finished.continuation.take().unwrap();
        let before = [prompt(1, 6), first.ids()].concat();
        assert_eq!(continuation.held(), &before[..12]);
        assert_eq!(continuation.pending(), Some(before[12]));
        // It holds memory for what it holds.
        streams.into_iter().for_each(|stream| drop(stream.wait()));
        assert_eq!((engine.reserved_kv_bytes(), log.held()), (12, 1));

        let fed_before: usize = log.tokens().iter().flatten().sum();
        let more = RowSpec { prompt: tokens(&[4, 5]), continues: Some(continuation), ..endless(8, 0, 6) };
        let generated = wait(&engine, more);
        let fed: usize = log.tokens().iter().flatten().sum::<usize>() - fed_before;
        assert_eq!(fed, 1 + 2 + 5, "the pending token, the new ones, and what was drawn but the last");
        assert_eq!(
            (generated.finished.usage.prompt_tokens, generated.finished.usage.cached_tokens),
            (15, 12)
        );

        let whole = RowSpec { prompt: [before, tokens(&[4, 5])].concat(), ..endless(8, 0, 6) };
        assert_eq!(result(&generated), result(&wait(&Engine::start(model(), uncached), whole)));
        assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
    }
}

#[test]
fn b_35_a_continuation_alone_feeds_its_pending_token_and_a_dropped_one_is_freed() {
    let scripted = model();
    let log = scripted.log();
    let engine = Engine::start(scripted, EngineConfig { prompt_cache_bytes: Some(0), ..config() });
    let mut first = wait(&engine, RowSpec { keep: true, ..endless(1, 6, 4) });
    let more = RowSpec {
        prompt: vec![],
        continues: first.finished.continuation.take(),
        keep: true,
        ..endless(1, 0, 3)
    };
    let mut second = wait(&engine, more);
    assert_eq!(second.finished.usage.cached_tokens, 9);
    drop(second.finished.continuation.take());
    drop(wait(&engine, spec(2, 1, 1)));
    assert_eq!((engine.reserved_kv_bytes(), log.held()), (0, 0));
    // One of another engine is refused, and survives the refusal's neighbours.
    let mut foreign = wait(&start(), RowSpec { keep: true, ..endless(1, 6, 4) });
    let more = RowSpec { continues: foreign.finished.continuation.take(), ..endless(1, 1, 3) };
    let error = engine.submit(vec![more]).unwrap_err().to_string();
    assert!(error.starts_with("rows[0].continues: is a row of another engine"), "{error}");
}

#[test]
fn a_cancelled_row_can_be_kept() {
    let engine = start();
    let mut stream = engine.submit(vec![RowSpec { keep: true, ..endless(1, 3, 10_000) }]).unwrap().remove(0);
    stream.next();
    stream.cancel();
    let mut generated = stream.wait();
    let continuation = generated.finished.continuation.take().unwrap();
    assert_eq!(continuation.held()[..3], prompt(1, 3));
    assert_eq!(continuation.held().len() + 1, 3 + generated.finished.usage.drawn_tokens);
}

#[test]
fn b_36_the_same_prompt_again_and_a_chat_that_goes_on() {
    for model in models() {
        let scripted = model();
        let truncates = lockstep_engine::model::Model::capabilities(&scripted).truncates;
        let engine = Engine::start(scripted, config());
        let reference = result(&wait(&Engine::start(model(), config()), endless(1, 8, 5)));
        let first = wait(&engine, endless(1, 8, 5));
        let again = wait(&engine, endless(1, 8, 5));
        assert_eq!((&result(&first), &result(&again)), (&reference, &reference));
        // A state that cannot be cut to replay the last token is recomputed.
        assert_eq!(again.finished.usage.cached_tokens, if truncates { 7 } else { 0 });
        // The prompt, its completion, and a new turn: only the drawn token that was never fed and the
        // new ones are.
        let longer = [prompt(1, 8), first.ids(), tokens(&[3, 3])].concat();
        let chat = || RowSpec { prompt: longer.clone(), ..endless(2, 0, 4) };
        let turn = wait(&engine, chat());
        assert_eq!(turn.finished.usage.cached_tokens, 8 + 4);
        assert_eq!(result(&turn), result(&wait(&Engine::start(model(), config()), chat())));
        assert_eq!(engine.reserved_kv_bytes(), 0);
        assert!(engine.stored_kv_bytes() > 0);
    }
}

#[test]
fn rows_at_work_share_their_prompt_with_those_that_come() {
    let engine = start();
    let system = prompt(4, 20);
    let with =
        |which: u32| RowSpec { prompt: [system.clone(), prompt(which, 3)].concat(), ..endless(which, 0, 50) };
    let mut first = engine.submit(vec![with(1)]).unwrap().remove(0);
    first.next();
    // The first still draws.
    let second = wait(&engine, with(2));
    assert!(second.finished.usage.cached_tokens >= 20);
    let reference = wait(&start(), with(2));
    assert_eq!(result(&second), result(&reference));
    first.cancel();
}

#[test]
fn b_37_a_prefix_of_one_token_and_entries_that_must_go() {
    let cache = |bytes| EngineConfig { prompt_cache_bytes: Some(bytes), ..config() };
    let engine = Engine::start(model(), cache(50));
    wait(&engine, endless(1, 1, 1));
    let hit = wait(&engine, RowSpec { prompt: vec![prompt(1, 1)[0], TokenId(10)], ..endless(1, 0, 2) });
    assert_eq!(hit.finished.usage.cached_tokens, 1);
    // An entry above the budget is not stored, and takes nothing away.
    let stored = engine.stored_kv_bytes();
    wait(&engine, endless(2, 60, 2));
    assert_eq!(engine.stored_kv_bytes(), stored);
    // Stored prompts go before a row waits.
    let config = EngineConfig { kv_bytes: Some(30), prompt_cache_bytes: Some(30), ..config() };
    let engine = Engine::start(model(), config);
    wait(&engine, endless(3, 12, 8));
    assert_eq!(engine.stored_kv_bytes(), 19);
    wait(&engine, endless(4, 12, 15));
    assert!(engine.stored_kv_bytes() <= 30 && engine.reserved_kv_bytes() == 0);
    drop(engine.reserve(30).unwrap());
    assert_eq!(engine.stored_kv_bytes(), 0);
}

#[test]
fn b_37_a_tiny_cache_under_load_never_stands_in_the_way() {
    for model in models() {
        let scripted = model();
        let log = scripted.log();
        let config = EngineConfig { kv_bytes: Some(64), prompt_cache_bytes: Some(24), ..config() };
        let engine = Engine::start(scripted, config);
        let make = |at: u32| {
            let shared = prompt(at % 3, 2 + at as usize % 7);
            RowSpec { prompt: [shared, prompt(at, 1)].concat(), ..endless(at, 0, 1 + at as usize % 6) }
        };
        let streams = engine.submit((0..60).map(make).collect()).unwrap();
        let generated: Vec<Generated> = streams.into_iter().map(RowStream::wait).collect();
        let reference = EngineConfig { prompt_cache_bytes: Some(0), ..crate::support::config() };
        let reference = Engine::start(model(), reference);
        for (at, generated) in (0..60).zip(&generated) {
            assert_eq!(result(generated), result(&wait(&reference, make(at))), "row {at}");
        }
        assert!(engine.stats().cached_tokens > 0);
        assert_eq!(engine.reserved_kv_bytes(), 0);
        assert!(engine.stored_kv_bytes() <= 24);
        // What is held is what is stored.
        drop(engine.reserve(64).unwrap());
        wait(&engine, endless(1, 1, 1));
        assert!(log.held() <= 1);
    }
}
