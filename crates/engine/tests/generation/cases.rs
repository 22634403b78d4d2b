//! Rows of different settings in one batch.

use std::sync::{Arc, Mutex};

use lockstep_engine::generation::StoppedBy;
use lockstep_engine::{Engine, FinishReason, RowSpec};
use lockstep_sample::{
    Independence, LogprobMode, LogprobRequest, LogprobRows, RowNoise, RowSampler, SampleError,
    SamplingParams, SharedSampler, TokenId,
};

use crate::support::{
    Clock, EOS, Recorder, alone, config, error_text, limits, mixed, model, prompt, result, script, spec,
    start, steps, together, tokens, vocab,
};

#[test]
fn b_01_plain_and_penalised_rows_in_any_interleaving() {
    let penalised = |which| RowSpec {
        params: SamplingParams {
            repetition_penalty: 1.5,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            ..SamplingParams::default()
        },
        ..spec(which, 4, 9)
    };
    for pattern in 0..16_u32 {
        let make = |at: u32| if pattern >> at & 1 == 0 { spec(at, 4, 9) } else { penalised(at) };
        let results = together(&start(), (0..4).map(make).collect());
        for (at, result) in (0..4).zip(results) {
            assert_eq!(result, alone(make(at)), "row {at} of {pattern:04b}");
        }
    }
}

#[test]
fn b_03_every_row_keeps_its_sampler_when_others_leave_and_come() {
    let engine = start();
    let long = |which| RowSpec { ignore_eos: true, ..spec(which, 3, 40) };
    let sampled = || RowSpec {
        params: SamplingParams { temperature: 0.6, top_k: 3, ..SamplingParams::default() },
        ..long(9)
    };
    let clock = Clock::new(&engine);
    let mut streams = engine.submit((0..4).map(long).collect()).unwrap();
    clock.tick();
    let kept = streams.remove(2);
    let gone: Vec<_> = streams.iter().map(lockstep_engine::RowStream::id).collect();
    engine.cancel(&gone);
    let new = engine.submit(vec![sampled()]).unwrap().remove(0);
    drop(clock);
    assert_eq!(result(&new.wait()), alone(sampled()));
    assert_eq!(result(&kept.wait()), alone(long(2)));
    for stream in streams {
        let generated = stream.wait();
        assert_eq!((generated.finished.reason.name(), generated.ids().len()), ("cancelled", 1));
    }
}

#[test]
fn b_08_32_rows_of_32_settings_are_one_draw_pass_a_step() {
    // Without rows of their own code, whose tokens need no draw pass of ours.
    let which: Vec<u32> = (0..64).filter(|which| which % 8 != 5).take(32).collect();
    let engine = start();
    let results = together(&engine, which.iter().map(|which| mixed(*which)).collect());
    for (which, result) in which.iter().zip(&results) {
        assert_eq!(result, &alone(mixed(*which)), "row {which}");
    }
    let stats = engine.stats();
    assert_eq!(stats.draw_passes, stats.steps);
    let drawn: usize = results.iter().map(|result| result.ids.len()).sum();
    assert_eq!(stats.drawn_tokens, drawn as u64);

    // Where all can enter at once and no row's own code has to be waited for, each step takes all rows.
    let engine = Engine::start(model(), limits(32, 32));
    let specs = which.iter().map(|which| RowSpec { constraint: None, ..mixed(*which) }).collect();
    let longest = together(&engine, specs).iter().map(|result| result.ids.len()).max();
    let stats = engine.stats();
    assert_eq!((Some(stats.steps as usize), stats.draw_passes), (longest, stats.steps));
}

/// Takes the first possible id, and notes the widths of its calls.
struct First {
    independence: Independence,
    widths: Arc<Mutex<Vec<usize>>>,
}

impl RowSampler for First {
    fn independence(&self) -> Independence {
        self.independence
    }

    fn draw(
        &mut self,
        rows: LogprobRows<'_>,
        _: &mut RowNoise<'_>,
        out: &mut [TokenId],
    ) -> Result<(), SampleError> {
        self.widths.lock().unwrap().push(rows.len());
        out.fill(TokenId(0));
        Ok(())
    }
}

#[test]
fn b_05_an_unmarked_sampler_is_called_row_by_row_and_b_06_a_stacked_one_once() {
    for (independence, widths_a_step) in
        [(Independence::PerRow, vec![1; 4]), (Independence::Stacked, vec![4])]
    {
        let widths = Arc::new(Mutex::new(Vec::new()));
        let sampler: SharedSampler =
            Arc::new(Mutex::new(First { independence, widths: Arc::clone(&widths) }));
        let mut specs: Vec<RowSpec> = (0..6).map(|which| spec(which, 2, 3)).collect();
        for spec in &mut specs[1..5] {
            spec.sampler = Some(Arc::clone(&sampler));
        }
        let engine = start();
        let results = together(&engine, specs);
        for result in &results[1..5] {
            assert_eq!(result.ids, tokens(&[0, 0, 0]));
        }
        for which in [0, 5] {
            assert_eq!(results[which as usize], alone(spec(which, 2, 3)));
        }
        assert_eq!(*widths.lock().unwrap(), widths_a_step.repeat(3));
        assert_eq!(engine.stats().opaque_calls, 3 * widths_a_step.len() as u64);
    }
}

#[test]
fn b_22_a_processor_sees_the_prompt_then_prompt_and_drawn_tokens_also_after_a_prefix_hit() {
    let engine = start();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for cached in [0, 5] {
        let recording = RowSpec {
            processors: vec![Box::new(Recorder(Arc::clone(&seen)))],
            ignore_eos: true,
            ..spec(1, 6, 4)
        };
        let generated = engine.submit(vec![recording]).unwrap().remove(0).wait();
        assert_eq!(generated.finished.usage.cached_tokens, cached);
        let all = [prompt(1, 6), generated.ids()].concat();
        let expected: Vec<_> = (0..4).map(|drawn| all[..6 + drawn].to_vec()).collect();
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), expected);
    }
}

#[test]
fn b_34_decoding_rows_draw_in_every_step_while_a_long_prompt_is_read() {
    let config =
        lockstep_engine::EngineConfig { prefill_step_tokens: std::num::NonZero::new(32), ..config() };
    let engine = Engine::start(model(), config);
    let decoding = |which| RowSpec { ignore_eos: true, ..spec(which, 2, 200) };
    let clock = Clock::new(&engine);
    let streams = engine.submit((0..8).map(decoding).collect()).unwrap();
    clock.tick();
    let long = engine.submit(vec![spec(20, 1000, 2)]).unwrap().remove(0);
    drop(clock);
    for stream in streams {
        assert_eq!(steps(&stream.wait()), (1..=200).collect::<Vec<u64>>());
    }
    let long = long.wait();
    assert_eq!(result(&long), alone(spec(20, 1000, 2)));
    assert_eq!(steps(&long)[0], 1 + 1000_u64.div_ceil(32));
}

#[test]
fn b_38_no_tokens_and_unequal_limits() {
    let engine = start();
    let none = engine.submit(vec![spec(1, 4, 0)]).unwrap().remove(0).wait();
    assert_eq!((none.text.as_str(), none.ids().len(), none.finished.reason.name()), ("", 0, "length"));
    assert_eq!(engine.stats().forwards, 0);
    // The prompt is read for its log-probabilities alone.
    let scored = RowSpec { prompt_logprobs: Some(3), ..spec(1, 4, 0) };
    let scored = engine.submit(vec![scored]).unwrap().remove(0).wait();
    assert_eq!((scored.ids().len(), scored.finished.reason.name()), (0, "length"));
    let logprobs = scored.finished.prompt_logprobs.unwrap();
    let prompt = prompt(1, 4);
    assert_eq!(logprobs.len(), 3);
    for (at, logprobs) in logprobs.iter().enumerate() {
        let logits = script(&prompt[..=at]);
        let log_z = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
        assert!((logprobs.token - (f64::from(logits[prompt[at + 1].index()]) - log_z)).abs() < 1e-6);
        assert!(logprobs.top.len() == 3 && logprobs.top[0].1 >= logprobs.token);
    }
    // One bad row, and nothing is lined up.
    let before = engine.stats();
    let error = engine.submit(vec![spec(1, 4, 3), RowSpec { min_tokens: 5, ..spec(2, 4, 3) }]).unwrap_err();
    assert_eq!(error.to_string(), "rows[1].min_tokens: 5 exceeds `max_tokens` = 3");
    assert_eq!(engine.stats().steps, before.steps);
}

#[test]
fn scores_of_a_prompt_come_with_tokens_and_in_chunks_alike() {
    let scored = || RowSpec { prompt_logprobs: Some(1), ..spec(3, 9, 4) };
    let chunked =
        lockstep_engine::EngineConfig { prefill_step_tokens: std::num::NonZero::new(2), ..config() };
    let one = start().submit(vec![scored()]).unwrap().remove(0).wait();
    let many = Engine::start(model(), chunked).submit(vec![scored()]).unwrap().remove(0).wait();
    assert_eq!(result(&one), result(&many));
    assert_eq!(result(&one), alone(spec(3, 9, 4)));
    assert_eq!(one.finished.prompt_logprobs.as_ref().map(Vec::len), Some(8));
    assert_eq!(one.finished.prompt_logprobs, many.finished.prompt_logprobs);
}

/// Draws the letters of a text, then the end.
fn spelling(text: &'static str) -> RowSpec {
    struct Speller(&'static str, usize);
    impl RowSampler for Speller {
        fn draw(
            &mut self,
            _: LogprobRows<'_>,
            _: &mut RowNoise<'_>,
            out: &mut [TokenId],
        ) -> Result<(), SampleError> {
            let next = self.0.as_bytes().get(self.1).map_or(EOS, |byte| match byte {
                b' ' => 9,
                byte => u32::from(byte - b'a'),
            });
            self.1 += 1;
            out.fill(TokenId(next));
            Ok(())
        }
    }
    let sampler: SharedSampler = Arc::new(Mutex::new(Speller(text, 0)));
    RowSpec { sampler: Some(sampler), max_tokens: 100, ..spec(0, 1, 100) }
}

#[test]
fn b_39_stop_strings_cut_at_the_earliest_end_and_win_over_the_limit() {
    let run = |spec: RowSpec| {
        let generated = start().submit(vec![spec]).unwrap().remove(0).wait();
        let FinishReason::Stop(by) = generated.finished.reason else { panic!("{generated:?}") };
        (generated.text, by, generated.finished.usage.drawn_tokens)
    };
    let stops = |stop: &[&str]| stop.iter().map(|stop| (*stop).into()).collect::<Vec<String>>();
    let spec = RowSpec { stop: stops(&["gh", "ef g"]), ..spelling("abc def ghi") };
    assert_eq!(run(spec), ("abc d".into(), StoppedBy::Text(1), 9));
    // Stop and limit in one token: it is a stop.
    let spec = RowSpec { stop: stops(&["def"]), max_tokens: 7, ..spelling("abc def ghi") };
    assert_eq!(run(spec), ("abc ".into(), StoppedBy::Text(0), 7));
    let spec = RowSpec { stop: stops(&["def"]), include_stop_str_in_output: true, ..spelling("abc def ghi") };
    assert_eq!(run(spec), ("abc def".into(), StoppedBy::Text(0), 7));
    let spec = RowSpec { stop_token_ids: tokens(&[9]), ..spelling("abc def") };
    assert_eq!(run(spec), ("abc".into(), StoppedBy::Token(TokenId(9)), 4));
    // The end counts as a token and is no text. At the limit it is a stop too.
    assert_eq!(
        run(RowSpec { max_tokens: 3, ..spelling("ab") }),
        ("ab".into(), StoppedBy::Token(TokenId(EOS)), 3)
    );
    // Before `min_tokens` no stop string acts.
    let spec = RowSpec { stop: stops(&["b"]), min_tokens: 3, ..spelling("abab ab") };
    assert_eq!(run(spec), ("aba".into(), StoppedBy::Text(0), 4));
}

#[test]
fn b_40_what_may_become_a_stop_string_is_delivered_at_the_end() {
    let held = RowSpec { stop: vec!["cd".into()], ..spelling("abc") };
    let mut stream = start().submit(vec![held]).unwrap().remove(0);
    let mut shown = Vec::new();
    for event in &mut stream {
        match event {
            lockstep_engine::RowEvent::Token(token) => shown.push(token.text),
            lockstep_engine::RowEvent::Finished(finished) => shown.push(finished.text),
        }
    }
    assert_eq!(shown, ["a", "b", "", "", "c"]);
    let error = start().submit(vec![RowSpec { stop: vec![String::new()], ..spec(0, 1, 1) }]).unwrap_err();
    assert!(error.to_string().starts_with("rows[0].stop: string 0 is empty"), "{error}");
}

#[test]
fn b_41_an_empty_prompt_is_refused_and_one_token_is_enough() {
    let error = start().submit(vec![RowSpec::new(vocab(), vec![])]).unwrap_err();
    assert_eq!(error.to_string(), "rows[0].prompt: is empty: give at least one token to continue");
    assert_eq!(start().submit(vec![spec(3, 1, 5)]).unwrap().remove(0).wait().finished.usage.prompt_tokens, 1);
}

#[test]
fn refusals_name_row_and_field() {
    let engine = Engine::start(model(), limits(4, 2));
    let refused = |spec: RowSpec, field: &str| {
        let error = engine.submit(vec![self::spec(0, 1, 1), spec]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("rows[1].{field}: ")), "{error}");
    };
    let good = || spec(1, 2, 3);
    refused(RowSpec { prompt: tokens(&[12]), ..good() }, "prompt");
    refused(RowSpec { max_tokens: 1 << 16, ..good() }, "prompt");
    refused(RowSpec { stop_token_ids: tokens(&[12]), ..good() }, "stop_token_ids");
    let params = SamplingParams { top_p: 0.0, ..SamplingParams::default() };
    refused(RowSpec { params, ..good() }, "top_p");
    let wide = lockstep_engine::testkit::vocabulary(&["a"; 13], &[]);
    refused(RowSpec { vocab: wide, ..good() }, "vocab");
    let small = lockstep_engine::EngineConfig { kv_bytes: Some(10), ..config() };
    let error = Engine::start(model(), small).submit(vec![spec(1, 5, 6)]).unwrap_err().to_string();
    assert!(error.starts_with("rows[0].max_tokens: the row may take 11 bytes"), "{error}");
    // Nothing was fed.
    assert_eq!(engine.stats().forwards, 0);
}

#[test]
fn an_unknown_adapter_ends_its_row() {
    let adapted = RowSpec { adapter: Some("tuned".into()), ..spec(1, 2, 3) };
    let mut streams = start().submit(vec![adapted, spec(2, 2, 3)]).unwrap();
    assert_eq!(result(&streams.remove(1).wait()), alone(spec(2, 2, 3)));
    assert_eq!(error_text(&streams.remove(0).wait()), "model: no adapter `tuned`");
}

#[test]
fn logprobs_come_only_on_request() {
    let asked = LogprobRequest { mode: LogprobMode::Raw, top: 3 };
    let results = together(&start(), vec![spec(1, 2, 3), RowSpec { logprobs: Some(asked), ..spec(1, 2, 3) }]);
    assert_eq!(results[0].ids, results[1].ids);
    let generated =
        start().submit(vec![RowSpec { logprobs: Some(asked), ..spec(1, 2, 3) }]).unwrap().remove(0).wait();
    for token in &generated.tokens {
        let logprobs = token.logprobs.as_ref().unwrap();
        // At temperature 1 without filters the model's distribution is the one drawn from.
        assert!((logprobs.token - token.logp).abs() < 1e-6 && logprobs.top.len() == 3);
    }
}

#[test]
fn whoever_waits_with_a_row_sees_its_text_grow_and_may_end_it() {
    let engine = start();
    let submit = |spec| engine.submit(vec![spec]).unwrap().remove(0);
    let mut text = String::new();
    let shown = submit(spec(1, 4, 6)).wait_with(|event| {
        text.push_str(event.text());
        Ok::<(), ()>(())
    });
    let shown = shown.unwrap();
    assert_eq!((&shown.text, result(&shown)), (&text, alone(spec(1, 4, 6))));
    let ended = submit(spec(2, 4, 6)).wait_with(|_| Err("enough"));
    assert_eq!(ended.unwrap_err(), "enough");
}
