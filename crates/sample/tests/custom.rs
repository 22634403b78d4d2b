//! The acceptance cases of samplers and processors that are not ours, through the public interface.

use std::sync::{Arc, Mutex};

use lockstep_sample::{
    ChainRow, CustomPass, CustomRow, DrawKey, DrawMethod, History, Independence, LogitsProcessor,
    LogprobMode, LogprobRequest, LogprobRows, ProblemKey, RowError, RowNoise, RowSampler, SampleError,
    SamplingParams, SharedSampler, TokenId, make_sampler, sample_custom_rows, sample_row,
};

fn key(particle: u32, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(7, 0), particle, step, 0)
}

fn logits(seed: u32, len: u32) -> Vec<f32> {
    (0..len).map(|i| (2.0 * key(seed, 0).gumbel(i)) as f32).collect()
}

fn rows<'a>(
    logits: &'a [Vec<f32>],
    params: &'a SamplingParams,
    history: &'a History,
    step: u32,
) -> Vec<ChainRow<'a>> {
    logits
        .iter()
        .zip(0..)
        .map(|(logits, particle)| ChainRow {
            logits,
            vocab_size: logits.len(),
            params,
            history,
            special_ids: &[],
            mask: None,
            banned: &[],
            key: key(particle, step),
            logprobs: None,
        })
        .collect()
}

/// One pass in which row i has `samplers[i]`.
fn pass(rows: &[ChainRow<'_>], samplers: &[Option<SharedSampler>]) -> CustomPass {
    let mut rows: Vec<CustomRow<'_>> = rows
        .iter()
        .zip(samplers)
        .map(|(&row, sampler)| CustomRow { row, processors: &mut [], sampler: sampler.clone() })
        .collect();
    sample_custom_rows(&mut rows)
}

fn tokens(pass: &CustomPass) -> Vec<u32> {
    pass.rows.iter().map(|row| row.as_ref().expect("the row draws").token.0).collect()
}

/// Draws from each row by its own noise; writes the widths of its calls down, and the rows' tops.
struct Recording {
    independence: Independence,
    calls: Arc<Mutex<Vec<Vec<f64>>>>,
    /// Fails a call for more rows than this.
    limit: usize,
    /// Panics at a row whose id 0 has a log-probability above this.
    panics_above: f64,
}

impl Recording {
    fn new(independence: Independence) -> (Self, Arc<Mutex<Vec<Vec<f64>>>>) {
        let calls = Arc::default();
        (Self { independence, calls: Arc::clone(&calls), limit: usize::MAX, panics_above: 1.0 }, calls)
    }
}

impl RowSampler for Recording {
    fn independence(&self) -> Independence {
        self.independence
    }

    fn draw(
        &mut self,
        rows: LogprobRows<'_>,
        noise: &mut RowNoise<'_>,
        out: &mut [TokenId],
    ) -> Result<(), SampleError> {
        let firsts: Vec<f64> = (0..rows.len()).map(|row| rows.logp(row, TokenId(0))).collect();
        self.calls.lock().expect("no call panicked with it").push(firsts.clone());
        if rows.len() > self.limit {
            return Err(SampleError::new("too many rows at once"));
        }
        for (row, first) in firsts.into_iter().enumerate() {
            assert!(first <= self.panics_above, "this row is too likely");
            let mut logps = vec![0.0; rows.vocab_size()];
            rows.fill(row, &mut logps);
            assert_eq!(logps[0], first);
            let key = noise.next_key(row);
            assert_eq!(key.ordinal, 1 << 31);
            let score = |id: usize| logps[id] + key.gumbel(id as u32);
            let best = (0..logps.len()).max_by(|&a, &b| score(a).total_cmp(&score(b)));
            out[row] = TokenId(best.expect("a row has ids") as u32);
        }
        Ok(())
    }
}

/// A sampler that ignores everything.
struct Constant(u32);

impl RowSampler for Constant {
    fn draw(
        &mut self,
        rows: LogprobRows<'_>,
        _: &mut RowNoise<'_>,
        out: &mut [TokenId],
    ) -> Result<(), SampleError> {
        assert_eq!((rows.len(), out.len()), (1, 1), "cannot do more");
        out[0] = TokenId(self.0);
        Ok(())
    }
}

/// A sampler whose choice depends on how often it was called.
struct Counting(u32);

impl RowSampler for Counting {
    fn draw(
        &mut self,
        rows: LogprobRows<'_>,
        _: &mut RowNoise<'_>,
        out: &mut [TokenId],
    ) -> Result<(), SampleError> {
        assert_eq!(rows.len(), 1);
        out[0] = TokenId(self.0);
        self.0 += 1;
        Ok(())
    }
}

fn shared(sampler: impl RowSampler + 'static) -> SharedSampler {
    Arc::new(Mutex::new(sampler))
}

#[test]
fn b_04_shared_object_own_objects_and_scalar_calls_draw_the_same() {
    let logits: Vec<Vec<f32>> = (0..6).map(|i| logits(i, 900)).collect();
    let history = History::default();
    for method in [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial] {
        for (top_p, xtc_probability, temperature) in [(1.0, 0.0, 1.0), (0.9, 0.5, 0.8), (0.9, 1.0, 0.0)] {
            let params = SamplingParams {
                top_p,
                xtc_probability,
                xtc_threshold: 0.02,
                temperature,
                draw_method: method,
                ..SamplingParams::default()
            };
            for step in 1..30 {
                let rows = rows(&logits, &params, &history, step);
                let object = make_sampler(&params, &[]).unwrap();
                let together = pass(&rows, &vec![Some(object); 6]);
                assert_eq!(together.opaque_calls, 1);
                // As many objects as rows: equal settings share one, so another setting that is off
                // tells them apart.
                let own: Vec<_> = (0..6)
                    .map(|i| {
                        let params = SamplingParams { presence_context_size: 100 + i, ..params.clone() };
                        Some(make_sampler(&params, &[]).unwrap())
                    })
                    .collect();
                let apart = pass(&rows, &own);
                assert_eq!(apart.opaque_calls, 6);
                assert_eq!(tokens(&together), tokens(&apart));
                let scalar: Vec<u32> = rows.iter().map(|row| sample_row(row).unwrap().token.0).collect();
                assert_eq!(tokens(&together), scalar, "{method}");
                let mixed = pass(&rows, &[own[0].clone(), None, own[0].clone(), None, own[4].clone(), None]);
                assert_eq!(tokens(&mixed), scalar);
            }
        }
    }
}

#[test]
fn b_05_unmarked_samplers_get_one_call_a_row_in_row_order() {
    let logits: Vec<Vec<f32>> = (0..8).map(|i| logits(i, 40)).collect();
    let (params, history) = (SamplingParams::default(), History::default());
    let rows = rows(&logits, &params, &history, 1);
    let (counting, constant) = (shared(Counting(10)), shared(Constant(3)));
    let samplers: Vec<_> =
        (0..8).map(|i| Some(Arc::clone(if i % 2 == 0 { &counting } else { &constant }))).collect();
    let pass = pass(&rows, &samplers);
    assert_eq!(pass.opaque_calls, 8);
    assert_eq!(tokens(&pass), [10, 3, 11, 3, 12, 3, 13, 3]);

    let (recording, calls) = Recording::new(Independence::PerRow);
    let recording = shared(recording);
    let pass = self::pass(&rows[..4], &vec![Some(recording); 4]);
    assert_eq!(pass.opaque_calls, 4);
    let calls = calls.lock().unwrap();
    let p = |row: usize| {
        let z: f64 = logits[row].iter().map(|&l| f64::from(l).exp()).sum();
        f64::from(logits[row][0]) - z.ln()
    };
    assert_eq!(calls.len(), 4);
    for (row, call) in calls.iter().enumerate() {
        assert!(call.len() == 1 && (call[0] - p(row)).abs() < 1e-12);
    }
}

#[test]
fn b_06_a_stacked_sampler_gets_its_rows_in_one_call() {
    let logits: Vec<Vec<f32>> = (0..6).map(|i| logits(i, 500)).collect();
    let (params, history) = (SamplingParams::default(), History::default());
    for step in 1..20 {
        let rows = rows(&logits, &params, &history, step);
        let (stacked, calls) = Recording::new(Independence::Stacked);
        let stacked = shared(stacked);
        let samplers: Vec<_> = (0..6).map(|i| (i % 3 != 1).then(|| Arc::clone(&stacked))).collect();
        let together = pass(&rows, &samplers);
        assert_eq!(together.opaque_calls, 1);
        assert_eq!(calls.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [4]);

        let alone: Vec<_> =
            (0..6).map(|i| (i % 3 != 1).then(|| shared(Recording::new(Independence::PerRow).0))).collect();
        assert_eq!(together.rows, pass(&rows, &alone).rows);
    }
}

#[test]
fn b_06_rows_over_other_vocabularies_are_not_stacked() {
    let logits = [logits(0, 50), logits(1, 60), logits(2, 50)];
    let (params, history) = (SamplingParams::default(), History::default());
    let (stacked, calls) = Recording::new(Independence::Stacked);
    let stacked = shared(stacked);
    let pass = pass(&rows(&logits, &params, &history, 1), &vec![Some(stacked); 3]);
    assert!(pass.rows.iter().all(Result::is_ok));
    assert_eq!(calls.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn b_07_equal_settings_give_the_same_object() {
    let params = SamplingParams { top_p: 0.625, temperature: 0.75, ..SamplingParams::default() };
    let eos = [TokenId(5), TokenId(2)];
    let same = |a: &SharedSampler, b: &SharedSampler| Arc::ptr_eq(a, b);
    let object = make_sampler(&params, &eos).unwrap();
    assert!(same(&object, &make_sampler(&params.clone(), &eos).unwrap()));
    assert!(same(&object, &make_sampler(&params, &[TokenId(2), TokenId(5), TokenId(2)]).unwrap()));
    assert!(!same(&object, &make_sampler(&params, &[TokenId(2)]).unwrap()));
    let others = [
        SamplingParams { top_p: 0.6, ..params.clone() },
        SamplingParams { temperature: 0.7, ..params.clone() },
        SamplingParams { temperature_first: true, ..params.clone() },
        SamplingParams { draw_method: DrawMethod::Multinomial, ..params.clone() },
        SamplingParams { logit_bias: vec![(TokenId(5), 0.5)], ..params.clone() },
        SamplingParams { min_tokens_to_keep: 2, ..params.clone() },
    ];
    for (i, other) in others.iter().enumerate() {
        let other = make_sampler(other, &eos).unwrap();
        assert!(!same(&object, &other), "setting {i}");
    }
    let error = make_sampler(&SamplingParams { top_p: 0.0, ..params }, &eos).unwrap_err();
    assert_eq!(error.field(), "top_p");
}

#[test]
fn a_failing_grouped_call_is_made_row_by_row() {
    let logits: Vec<Vec<f32>> = (0..4).map(|i| logits(i, 200)).collect();
    let (params, history) = (SamplingParams::default(), History::default());
    let rows = rows(&logits, &params, &history, 3);
    let (mut limited, calls) = Recording::new(Independence::Stacked);
    limited.limit = 1;
    let limited = shared(limited);
    let retried = pass(&rows, &vec![Some(limited); 4]);
    assert_eq!(retried.opaque_calls, 5);
    assert_eq!(calls.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [4, 1, 1, 1, 1]);
    let stacked = shared(Recording::new(Independence::Stacked).0);
    assert_eq!(retried.rows, pass(&rows, &vec![Some(stacked); 4]).rows);
}

#[test]
fn a_panic_ends_only_its_row_and_the_object_goes_on() {
    let mut logits: Vec<Vec<f32>> = (0..4).map(|i| logits(i, 200)).collect();
    logits[2][0] = 30.0;
    let (params, history) = (SamplingParams::default(), History::default());
    let rows = rows(&logits, &params, &history, 3);
    for independence in [Independence::PerRow, Independence::Stacked] {
        let (mut picky, _) = Recording::new(independence);
        picky.panics_above = -1e-3;
        let picky = shared(picky);
        let hit = pass(&rows, &vec![Some(Arc::clone(&picky)); 4]);
        let healthy = pass(&rows, &vec![Some(shared(Recording::new(independence).0)); 4]);
        for row in [0, 1, 3] {
            assert_eq!(hit.rows[row], healthy.rows[row]);
        }
        assert!(matches!(&hit.rows[2], Err(SampleError::Panicked(text)) if text.contains("too likely")));
        assert!(pass(&rows[..1], &[Some(picky)]).rows[0].is_ok());
    }
}

#[test]
fn a_choice_that_is_no_token_or_impossible_is_an_error() {
    let mut logits = vec![logits(0, 20); 3];
    logits[1][4] = f32::NEG_INFINITY;
    let (params, history) = (SamplingParams::default(), History::default());
    let rows = rows(&logits, &params, &history, 1);
    let samplers = [Some(shared(Constant(20))), Some(shared(Constant(4))), Some(shared(Constant(4)))];
    let pass = pass(&rows, &samplers);
    assert_eq!(pass.rows[0], Err(SampleError::NoToken { id: TokenId(20), vocab_size: 20 }));
    assert_eq!(pass.rows[1], Err(SampleError::Impossible { id: TokenId(4) }));
    assert_eq!(pass.rows[2].as_ref().unwrap().token, TokenId(4));
}

#[test]
fn bad_rows_join_no_group() {
    let mut logits: Vec<Vec<f32>> = (0..4).map(|i| logits(i, 200)).collect();
    logits[0][7] = f32::NAN;
    logits[3] = vec![f32::NEG_INFINITY; 200];
    let (params, history) = (SamplingParams::default(), History::default());
    let (stacked, calls) = Recording::new(Independence::Stacked);
    let stacked = shared(stacked);
    let pass = pass(&rows(&logits, &params, &history, 1), &vec![Some(stacked); 4]);
    assert_eq!(pass.rows[0], Err(SampleError::Row(RowError::NonFinite { id: 7 })));
    assert_eq!(pass.rows[3], Err(SampleError::Row(RowError::EmptySupport)));
    assert!(pass.rows[1].is_ok() && pass.rows[2].is_ok());
    assert_eq!(calls.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [2]);
}

/// Adds to one logit, and checks the history that it sees.
struct Lift {
    id: usize,
    by: f32,
    history: Vec<TokenId>,
}

impl LogitsProcessor for Lift {
    fn process(&mut self, history: &[TokenId], logits: &mut [f32]) -> Result<(), SampleError> {
        assert_eq!(history, self.history);
        let logit = logits.get_mut(self.id).ok_or_else(|| SampleError::new("no such id"))?;
        *logit += self.by;
        Ok(())
    }
}

#[test]
fn processors_run_in_order_after_penalties_and_before_masks() {
    let logits = vec![vec![0.0_f32; 10]; 4];
    let params =
        SamplingParams { logit_bias: vec![(TokenId(1), 1.0)], temperature: 0.0, ..SamplingParams::default() };
    let prompt = [TokenId(4), TokenId(5)];
    let history = History::new(&params, &prompt);
    let lift = |id: usize, by: f32, history: &[TokenId]| -> Box<dyn LogitsProcessor> {
        Box::new(Lift { id, by, history: history.to_vec() })
    };
    let mut processors = [
        vec![lift(2, 3.0, &prompt), lift(1, 2.5, &prompt)],
        vec![lift(2, 3.0, &prompt), lift(10, 0.0, &prompt)],
        vec![lift(2, 3.0, &[])],
        vec![lift(2, f32::INFINITY, &prompt)],
    ];
    let banned = [TokenId(1)];
    let mut custom: Vec<CustomRow<'_>> = rows(&logits, &params, &history, 1)
        .into_iter()
        .zip(&mut processors)
        .map(|(row, processors)| CustomRow { row, processors, sampler: None })
        .collect();
    custom[0].row.logprobs = Some(LogprobRequest { mode: LogprobMode::Processed, top: 1 });
    let pass = sample_custom_rows(&mut custom);
    assert_eq!(pass.opaque_calls, 6);
    let first = pass.rows[0].as_ref().unwrap();
    assert_eq!(first.token, TokenId(1));
    let expected = 3.5 - (3.5_f64.exp() + 3.0_f64.exp() + 8.0).ln();
    assert!((first.logprobs.as_ref().unwrap().token - expected).abs() < 1e-6);
    assert_eq!(pass.rows[1], Err(SampleError::new("no such id")));
    assert!(matches!(pass.rows[2], Err(SampleError::Panicked(_))));
    assert_eq!(pass.rows[3], Err(SampleError::Row(RowError::NonFinite { id: 2 })));

    custom[0].row.banned = &banned;
    let pass = sample_custom_rows(&mut custom[..1]);
    assert_eq!(pass.rows[0].as_ref().unwrap().token, TokenId(2), "masks come last");
}
