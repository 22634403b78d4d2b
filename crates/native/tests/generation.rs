//! Generating rows on the reference model: bit-equal alone, in any batch, chunking and thread count.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use std::num::NonZero;
use std::sync::Arc;

use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_engine::{Engine, EngineConfig, Generated, RowLimits, RowSpec, RowStream, TokenId};
use lockstep_native::testkit::{TinyOptions, tiny_model};
use lockstep_sample::{EosSet, LogprobMode, LogprobRequest, SamplingParams};

const IDS: u32 = 32;

fn vocab() -> Arc<Vocabulary> {
    let entry = |id: u32| TokenEntry { bytes: vec![b'@' + id as u8], special: false };
    Vocabulary::new((0..IDS).map(entry).collect(), EosSet::new([])).unwrap()
}

fn engine(threads: usize, config: EngineConfig) -> Engine {
    let options = TinyOptions { threads, context: 512, ..TinyOptions::default() };
    Engine::start(tiny_model(11, options), EngineConfig { threads: NonZero::new(threads), ..config })
}

fn uncached() -> EngineConfig {
    EngineConfig { prompt_cache_bytes: Some(0), ..EngineConfig::default() }
}

fn prompt(which: u32, n: u32) -> Vec<TokenId> {
    (0..n).map(|i| TokenId((i * (which + 3) + which * 7) % IDS)).collect()
}

fn spec(which: u32, n: u32, max_tokens: usize) -> RowSpec {
    RowSpec {
        seed: Some(u64::from(which)),
        max_tokens,
        params: SamplingParams {
            temperature: 0.7 + 0.1 * f64::from(which % 5),
            top_p: [1.0, 0.9][which as usize % 2],
            ..SamplingParams::default()
        },
        logprobs: Some(LogprobRequest { mode: LogprobMode::Raw, top: 3 }),
        ..RowSpec::new(vocab(), prompt(which, n))
    }
}

/// Everything that a row says about its tokens, bit for bit.
fn said(generated: &Generated) -> Vec<(TokenId, u64, u64)> {
    let bits = |token: &lockstep_engine::generation::RowToken| {
        (token.token, token.logp.to_bits(), token.logprobs.as_ref().unwrap().token.to_bits())
    };
    generated.tokens.iter().map(bits).collect()
}

fn alone(spec: RowSpec) -> Vec<(TokenId, u64, u64)> {
    said(&engine(1, uncached()).submit(vec![spec]).unwrap().remove(0).wait())
}

#[test]
fn b_26_a_row_is_bit_equal_in_every_batch_and_at_every_thread_count() {
    let reference = alone(spec(4, 37, 20));
    for threads in [1, 2, 8] {
        for chunk in [1, 5, 64] {
            let config = EngineConfig { prefill_step_tokens: NonZero::new(chunk), ..EngineConfig::default() };
            let engine = engine(threads, config);
            // It joins late, beside rows that come and go.
            let others =
                engine.submit((5..12).map(|which| spec(which, 3 + which, 5 + which as usize)).collect());
            let row = engine.submit(vec![spec(4, 37, 20)]).unwrap().remove(0);
            let cancelled = engine.submit(vec![spec(20, 90, 200)]).unwrap().remove(0);
            cancelled.cancel();
            assert_eq!(said(&row.wait()), reference, "{threads} threads, chunks of {chunk}");
            others.unwrap().into_iter().for_each(|row| drop(row.wait()));
            // Again with its prompt stored, and the row's own pages shared.
            let again = engine.submit(vec![spec(4, 37, 20)]).unwrap().remove(0).wait();
            assert_eq!((said(&again), again.finished.usage.cached_tokens), (reference.clone(), 36));
        }
    }
}

#[test]
fn b_33_unequal_prompts_in_chunks_are_bit_equal_to_rows_alone() {
    let config = EngineConfig {
        limits: RowLimits::new(3, 2).unwrap(),
        prefill_step_tokens: NonZero::new(8),
        ..uncached()
    };
    let engine = engine(2, config);
    let make = |at: u32| spec(at, [5, 20, 9, 30][at as usize], 2 + at as usize);
    let rows = engine.submit((0..4).map(make).collect()).unwrap();
    for (at, row) in (0..4).zip(rows) {
        assert_eq!(said(&row.wait()), alone(make(at)));
    }
}

#[test]
fn b_35_a_continued_row_is_bit_equal_to_the_whole_row() {
    let engine = engine(2, uncached());
    let mut rows = engine
        .submit(vec![RowSpec { keep: true, ..spec(1, 21, 15) }, spec(2, 40, 6), spec(3, 5, 30)])
        .unwrap();
    let mut first = rows.remove(0).wait();
    rows.into_iter().map(RowStream::wait).for_each(drop);
    let before = [prompt(1, 21), first.ids()].concat();
    let more = |prompt, continues| RowSpec { prompt, continues, ..spec(9, 0, 12) };
    let continued = engine.submit(vec![more(prompt(6, 4), first.finished.continuation.take())]).unwrap();
    let whole = more([before, prompt(6, 4)].concat(), None);
    assert_eq!(said(&continued.into_iter().next().unwrap().wait()), alone(whole));
}

#[test]
fn choices_of_one_prompt_are_bit_equal_to_rows_alone() {
    let engine = engine(2, EngineConfig::default());
    let choice = |choice| RowSpec { choice, ..spec(7, 33, 10) };
    let rows = engine.submit_group((0..5).map(choice).collect()).unwrap();
    for (at, row) in (0..5).zip(rows) {
        assert_eq!(said(&row.wait()), alone(choice(at)));
    }
    assert_eq!(engine.stats().prompt_tokens, 33);
}
