//! The acceptance cases of the sampler chain, through the public interface.

use lockstep_sample::{
    Bitset, ChainRow, DrawKey, DrawMethod, History, LogprobMode, LogprobRequest, ProblemKey, RowError,
    Sampled, SamplingParams, TokenId, sample_row, sample_rows,
};

const METHODS: [DrawMethod; 3] = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];

fn key(seed: u64, particle: u32, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(seed, 0), particle, step, 0)
}

fn params(change: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
    let mut params = SamplingParams::default();
    change(&mut params);
    params.validate(1 << 20).expect("settings of a case are valid");
    params
}

fn logits(seed: u64, len: u32) -> Vec<f32> {
    let noise = key(seed, 0, 0);
    (0..len)
        .map(|i| match noise.block(1_000_000 + i)[0] % 50 {
            0 => f32::NEG_INFINITY,
            1 => 9.0,
            _ => (2.0 * noise.gumbel(i)) as f32,
        })
        .collect()
}

fn ln(p: &[f64]) -> Vec<f32> {
    p.iter().map(|p| p.ln() as f32).collect()
}

/// A plain row; tests change what they are about.
fn chain<'a>(
    logits: &'a [f32],
    params: &'a SamplingParams,
    history: &'a History,
    key: DrawKey,
) -> ChainRow<'a> {
    ChainRow {
        logits,
        vocab_size: logits.len(),
        params,
        history,
        special_ids: &[],
        mask: None,
        banned: &[],
        key,
        logprobs: None,
    }
}

/// A result with every number as its bits.
fn bits(result: &Result<Sampled, RowError>) -> Result<(TokenId, Vec<u64>), RowError> {
    let sampled = result.clone()?;
    let mut numbers = vec![sampled.logp.to_bits(), sampled.log_mass.to_bits()];
    if let Some(logprobs) = sampled.logprobs {
        numbers.push(logprobs.token.to_bits());
        numbers.extend(logprobs.top.iter().flat_map(|(id, logp)| [u64::from(id.0), logp.to_bits()]));
    }
    Ok((sampled.token, numbers))
}

/// What 32 rows of 32 settings are made of.
struct Mixed {
    logits: Vec<Vec<f32>>,
    params: Vec<SamplingParams>,
    histories: Vec<History>,
    masks: Vec<Bitset>,
}

const SPECIAL: [TokenId; 2] = [TokenId(3), TokenId(77)];
const BANNED: [TokenId; 2] = [TokenId(9), TokenId(500)];

impl Mixed {
    fn new() -> Self {
        let logits: Vec<Vec<f32>> = (0..32).map(|i| logits(100 + i, 1500 + 700 * (i as u32 % 3))).collect();
        let params: Vec<SamplingParams> = (0..32)
            .map(|i| {
                params(|p| {
                    p.temperature = [0.0, 0.7, 1.0, 1.5, 2.0][i % 5] + i as f64 / 1000.0 * ((i % 5) as f64);
                    p.top_p = [1.0, 0.95, 0.5][i % 3];
                    p.min_p = [0.0, 0.0, 0.02, 0.3][i % 4];
                    p.min_tokens_to_keep = 1 + (i % 7) as i64;
                    p.xtc_probability = [0.0, 0.5, 1.0][i / 3 % 3];
                    p.xtc_threshold = [0.1, 0.02][i % 2];
                    p.top_k = [0, 40, 2, 1000][i / 2 % 4];
                    p.temperature_first = i % 6 == 1;
                    p.draw_method = METHODS[i % 3];
                    if i % 4 == 3 {
                        p.logit_bias = vec![(TokenId(i as u32), 3.0), (TokenId(5), -100.0)];
                        p.repetition_penalty = 1.3;
                        p.presence_penalty = 0.5;
                        p.frequency_penalty = 0.2;
                        p.frequency_context_size = 0;
                    }
                })
            })
            .collect();
        let histories = params
            .iter()
            .zip(0..)
            .map(|(params, i)| {
                let tokens: Vec<TokenId> = (0..50 + i).map(|t| TokenId(t * (i + 3) % 1500)).collect();
                History::new(params, &tokens)
            })
            .collect();
        let masks = logits
            .iter()
            .zip(2..)
            .map(|(logits, thin)| {
                Bitset::from_ids(logits.len(), (0..logits.len() as u32).filter(|id| id % thin < 2))
            })
            .collect();
        Self { logits, params, histories, masks }
    }

    fn rows(&self) -> Vec<ChainRow<'_>> {
        let modes = [LogprobMode::Raw, LogprobMode::Processed, LogprobMode::Final];
        (0..32)
            .map(|i| ChainRow {
                special_ids: &SPECIAL,
                mask: (i % 8 >= 6).then_some(&self.masks[i]),
                banned: if i % 5 == 2 { &BANNED } else { &[] },
                logprobs: (i % 2 == 0).then_some(LogprobRequest { mode: modes[i / 2 % 3], top: i % 6 }),
                ..chain(&self.logits[i], &self.params[i], &self.histories[i], key(3, i as u32, 9))
            })
            .collect()
    }
}

#[test]
fn b_08_32_rows_of_32_settings_equal_32_scalar_runs() {
    let mixed = Mixed::new();
    let rows = mixed.rows();
    for (i, a) in mixed.params.iter().enumerate() {
        assert!(mixed.params[..i].iter().all(|b| a != b), "setting {i} is met before");
    }
    let alone: Vec<_> = rows.iter().map(|row| bits(&sample_row(row))).collect();
    assert!(alone.iter().all(Result::is_ok));
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let together: Vec<_> = pool.install(|| sample_rows(&rows)).iter().map(bits).collect();
        assert_eq!(together, alone, "{threads} threads");
    }
}

#[test]
fn b_09_permuted_added_and_dropped_rows_leave_the_others_unchanged() {
    let mixed = Mixed::new();
    let rows = mixed.rows();
    let all: Vec<_> = sample_rows(&rows).iter().map(bits).collect();
    let orders: [Vec<usize>; 4] = [
        (0..32).rev().collect(),
        (0..32).map(|i| i * 13 % 32).collect(),
        (0..32).step_by(3).collect(),
        vec![31, 0, 31, 7],
    ];
    for order in orders {
        let some: Vec<_> = order.iter().map(|&i| rows[i]).collect();
        let drawn: Vec<_> = sample_rows(&some).iter().map(bits).collect();
        let expected: Vec<_> = order.iter().map(|&i| all[i].clone()).collect();
        assert_eq!(drawn, expected);
    }
}

/// The ids that 400 steps draw.
fn support(p: &[f64], change: impl FnOnce(&mut SamplingParams)) -> Vec<u32> {
    let (logits, params, history) = (ln(p), params(change), History::default());
    let mut drawn: Vec<u32> = (1..=400)
        .map(|step| {
            sample_row(&chain(&logits, &params, &history, key(10, 0, step))).expect("a sound row").token.0
        })
        .collect();
    drawn.sort_unstable();
    drawn.dedup();
    drawn
}

#[test]
fn b_10_only_the_nucleus_is_drawn() {
    for method in METHODS {
        for (top_p, expected) in [(0.3, vec![0]), (0.95, vec![0, 3])] {
            let drawn = support(&[0.9, 0.0, 0.0, 0.1], |p| (p.top_p, p.draw_method) = (top_p, method));
            assert_eq!(drawn, expected, "{method}");
        }
        for (top_p, expected) in [(0.4, vec![1]), (0.6, vec![1, 2]), (0.95, vec![1, 2, 3])] {
            let drawn = support(&[0.0, 0.5, 0.4, 0.1], |p| (p.top_p, p.draw_method) = (top_p, method));
            assert_eq!(drawn, expected, "{method}");
        }
    }
}

#[test]
fn b_11_the_extremes_draw_the_top_or_everything() {
    let p = [0.1, 0.4, 0.3, 0.2];
    assert_eq!(support(&p, |p| p.top_p = 1e-7), [1]);
    assert_eq!(support(&p, |p| p.top_k = 4), [0, 1, 2, 3]);
    assert_eq!(support(&p, |p| p.top_k = 9), [0, 1, 2, 3]);
    let all = |p: &mut SamplingParams| {
        (p.top_p, p.min_p, p.xtc_probability, p.xtc_threshold, p.top_k) = (1e-7, 1.0, 1.0, 0.0, 1);
    };
    assert_eq!(support(&p, all), [1]);
}

#[test]
fn b_12_xtc_draws_the_least_likely_candidates_and_what_is_below() {
    let p = [0.4, 0.3, 0.15, 0.15];
    assert_eq!(support(&p, |p| p.xtc_probability = 1.0), [2, 3]);
    assert_eq!(support(&p, |p| (p.xtc_probability, p.xtc_threshold) = (1.0, 0.2)), [1, 2, 3]);
}

#[test]
fn b_13_top_k_counts_what_xtc_leaves() {
    let drawn = support(&[0.4, 0.3, 0.2, 0.1], |p| {
        (p.xtc_probability, p.xtc_threshold, p.top_k) = (1.0, 0.15, 1);
    });
    assert_eq!(drawn, [2]);
}

#[test]
fn b_14_xtc_beside_flatter_rows_is_as_alone_and_gates_by_its_key() {
    let steep = ln(&[0.6, 0.3, 0.05, 0.05]);
    let flat = [0.0_f32; 4];
    let (on, off) = (params(|p| p.xtc_probability = 0.5), SamplingParams::default());
    let history = History::default();
    let mut opened = 0;
    for step in 1..=2000 {
        let rows = [
            chain(&steep, &on, &history, key(14, 0, step)),
            chain(&flat, &on, &history, key(14, 1, step)),
            chain(&flat, &off, &history, key(14, 2, step)),
        ];
        let together = sample_rows(&rows);
        for (together, row) in together.iter().zip(&rows) {
            assert_eq!(bits(together), bits(&sample_row(row)));
        }
        // The gate is the row's own: ordinal 1, position 0.
        let open = DrawKey { ordinal: 1, ..key(14, 0, step) }.uniform(0) < 0.5;
        opened += u32::from(open);
        let sampled = together[0].as_ref().unwrap();
        let mass = if open { 0.4_f64 } else { 1.0 };
        let p = [0.6, 0.3, 0.05, 0.05][sampled.token.index()];
        assert!(!(open && sampled.token.0 == 0));
        assert!((sampled.logp - (p / mass).ln()).abs() < 1e-6);
    }
    // False-alarm rate 10⁻⁴: 3.9 standard deviations.
    assert!((f64::from(opened) - 1000.0).abs() < 3.9 * 500.0_f64.sqrt(), "{opened}");
}

#[test]
fn b_14_xtc_spares_the_special_ids() {
    let logits = ln(&[0.4, 0.3, 0.3]);
    let (params, history) =
        (params(|p| (p.xtc_probability, p.xtc_threshold) = (1.0, 0.2)), History::default());
    let special = [TokenId(0)];
    let drawn_special = (1..=100).any(|step| {
        let row = ChainRow { special_ids: &special, ..chain(&logits, &params, &history, key(15, 0, step)) };
        sample_row(&row).unwrap().token == TokenId(0)
    });
    assert!(drawn_special);
    assert!((1..=100).all(|step| {
        sample_row(&chain(&logits, &params, &history, key(15, 0, step))).unwrap().token != TokenId(0)
    }));
}

#[test]
fn b_15_temperature_comes_last_or_first() {
    let p = [0.5, 0.3, 0.2];
    assert_eq!(support(&p, |p| (p.temperature, p.top_p) = (2.0, 0.75)), [0, 1]);
    assert_eq!(support(&p, |p| (p.temperature, p.top_p, p.temperature_first) = (2.0, 0.75, true)), [0, 1, 2]);
}

#[test]
fn b_16_temperatures_at_and_near_0_take_the_argmax() {
    let history = History::default();
    let tie = [1.0_f32, 3.0, 2.0, 3.0, f32::NEG_INFINITY];
    let greedy = params(|p| p.temperature = 0.0);
    let sampled = sample_row(&chain(&tie, &greedy, &history, key(16, 0, 1))).unwrap();
    assert_eq!((sampled.token, sampled.logp), (TokenId(1), 0.0), "the lower id");

    let distinct = [1.0_f32, 2.999_999_8, 3.0, f32::NEG_INFINITY];
    for top_p in [1.0, 0.99] {
        for first in [false, true] {
            for method in METHODS {
                let cold = params(|p| {
                    (p.temperature, p.top_p, p.temperature_first) = (1e-30, top_p, first);
                    p.draw_method = method;
                });
                for step in 1..50 {
                    let sampled = sample_row(&chain(&distinct, &cold, &history, key(16, 0, step))).unwrap();
                    assert_eq!((sampled.token, sampled.logp), (TokenId(2), 0.0));
                }
            }
        }
    }
}

#[test]
fn b_16_a_greedy_row_uses_no_noise_and_ignores_filters() {
    let (logits, history) = (logits(16, 300), History::default());
    let plain = params(|p| p.temperature = 0.0);
    let filtered = params(|p| (p.temperature, p.xtc_probability, p.top_p) = (0.0, 1.0, 0.1));
    let expected = sample_row(&chain(&logits, &plain, &history, key(1, 0, 1))).unwrap();
    for step in 1..20 {
        let drawn = sample_row(&chain(&logits, &filtered, &history, key(2, 0, step))).unwrap();
        assert_eq!(drawn, expected);
    }
}

#[test]
fn b_17_padding_is_neither_read_nor_drawn() {
    let history = History::default();
    let real = logits(17, 8);
    let settings = [
        params(|p| p.temperature = 0.0),
        params(|_| ()),
        params(|p| p.top_p = 0.9),
        params(|p| p.logit_bias = vec![(TokenId(2), 1.0)]),
    ];
    for padding in [1e9, f32::NAN, f32::INFINITY] {
        let padded = [&real[..], &[padding; 2]].concat();
        for params in &settings {
            for mode in [LogprobMode::Raw, LogprobMode::Processed, LogprobMode::Final] {
                let wanted = Some(LogprobRequest { mode, top: 10 });
                let alone = ChainRow { logprobs: wanted, ..chain(&real, params, &history, key(17, 0, 1)) };
                let row = ChainRow { logits: &padded, ..alone };
                let sampled = sample_row(&row);
                assert_eq!(bits(&sampled), bits(&sample_row(&alone)));
                assert_eq!(sampled.unwrap().logprobs.unwrap().top.len(), 8);
            }
        }
    }
}

#[test]
fn b_18_bad_rows_err_and_healthy_ones_do_not_change() {
    let history = History::default();
    let good = logits(18, 600);
    let mut nan = good.clone();
    nan[599] = f32::NAN;
    let mut infinite = good.clone();
    infinite[70] = f32::INFINITY;
    let dead = vec![f32::NEG_INFINITY; 600];
    let empty = Bitset::new(600);
    for params in [
        params(|_| ()),
        params(|p| p.temperature = 0.0),
        params(|p| p.top_k = 5),
        params(|p| p.logit_bias = vec![(TokenId(599), -1.0), (TokenId(70), -1.0)]),
    ] {
        let rows = [&good, &nan, &infinite, &dead, &good, &good]
            .map(|logits| chain(logits, &params, &history, key(18, 0, 1)));
        let rows: Vec<ChainRow<'_>> = rows
            .into_iter()
            .enumerate()
            .map(|(i, row)| ChainRow { mask: (i == 4).then_some(&empty), ..row })
            .collect();
        let drawn = sample_rows(&rows);
        assert!(drawn[0].is_ok());
        assert_eq!(drawn[1], Err(RowError::NonFinite { id: 599 }));
        assert_eq!(drawn[2], Err(RowError::NonFinite { id: 70 }));
        assert_eq!(drawn[3], Err(RowError::EmptySupport));
        assert_eq!(drawn[4], Err(RowError::EmptySupport));
        assert_eq!(drawn[5], drawn[0]);
        assert_eq!(drawn[0], sample_row(&rows[0]));
    }
}

#[test]
fn b_18_a_bad_logit_behind_a_mask_is_still_an_error() {
    let (params, history) = (SamplingParams::default(), History::default());
    let mask = Bitset::from_ids(3, [0]);
    let row =
        ChainRow { mask: Some(&mask), ..chain(&[0.0, f32::NAN, 0.0], &params, &history, key(18, 0, 1)) };
    assert_eq!(sample_row(&row), Err(RowError::NonFinite { id: 1 }));
}

#[test]
fn b_21_a_large_bias_decides_each_row_for_itself() {
    let (logits, history) = (logits(21, 50), History::default());
    let biased = |id: u32| params(|p| p.logit_bias = vec![(TokenId(id), 2000.0)]);
    let settings = [biased(1), biased(1), biased(33), biased(7)];
    assert!([1, 33, 7].iter().all(|&id: &usize| logits[id] > f32::NEG_INFINITY));
    for step in 1..=5 {
        let rows: Vec<ChainRow<'_>> = settings
            .iter()
            .zip(0..)
            .map(|(params, i)| ChainRow {
                logprobs: Some(LogprobRequest { mode: LogprobMode::Processed, top: 0 }),
                ..chain(&logits, params, &history, key(21, i, step))
            })
            .collect();
        for (sampled, id) in sample_rows(&rows).into_iter().zip([1, 1, 33, 7]) {
            let sampled = sampled.unwrap();
            assert_eq!(sampled.token, TokenId(id));
            assert_eq!(sampled.logprobs.unwrap().token, 0.0);
        }
    }
}

#[test]
fn b_21_no_bias_lifts_what_is_masked_or_banned() {
    let (logits, history) = ([0.0_f32; 6], History::default());
    let params = params(|p| p.logit_bias = vec![(TokenId(0), 2000.0), (TokenId(1), 2000.0)]);
    let mask = Bitset::from_ids(6, [1, 2, 3]);
    let banned = [TokenId(1)];
    for step in 1..50 {
        let row = ChainRow {
            mask: Some(&mask),
            banned: &banned,
            ..chain(&logits, &params, &history, key(22, 0, step))
        };
        let sampled = sample_row(&row).unwrap();
        assert!([2, 3].contains(&sampled.token.0));
        // e⁰ + e⁰ of 2 e²⁰⁰⁰ and four e⁰.
        assert!((sampled.log_mass + 2000.0).abs() < 1e-9, "{}", sampled.log_mass);
        assert!((sampled.logp - 0.5_f64.ln()).abs() < 1e-12);
    }
}

#[test]
fn b_25_the_first_three_draws_of_seed_0() {
    let (logits, history) = ([0.25_f32; 4], History::default());
    for (method, expected) in [
        (DrawMethod::GumbelMax, [1, 1, 3]),
        (DrawMethod::Multinomial, [2, 2, 2]),
        (DrawMethod::InverseCdf, [1, 0, 0]),
    ] {
        // With filters at their widest, so that the listed draw is taken too.
        for min_p in [0.0, 1.0] {
            let params = params(|p| (p.draw_method, p.min_p) = (method, min_p));
            let drawn = [1, 2, 3]
                .map(|step| sample_row(&chain(&logits, &params, &history, key(0, 0, step))).unwrap().token.0);
            assert_eq!(drawn, expected, "{method}");
        }
    }
}

/// False-alarm rate 10⁻⁴ a method, row and test (χ²): each row follows its own filtered law, and the
/// tokens of two rows are independent.
#[test]
fn b_28_every_row_follows_its_law_and_rows_do_not_correlate() {
    let history = History::default();
    let (a, b) = (ln(&[0.4, 0.3, 0.2, 0.1]), ln(&[0.1, 0.2, 0.3, 0.4]));
    let n = 30_000;
    for method in METHODS {
        // Row a: top-k 3. Row b: squared by the temperature, then all but the last by min-p.
        let top_k = params(|p| (p.top_k, p.draw_method) = (3, method));
        let min_p = params(|p| (p.min_p, p.temperature, p.draw_method) = (0.3, 0.5, method));
        let mut joint = [[0_u32; 4]; 4];
        for step in 1..=n {
            let rows = [
                chain(&a, &top_k, &history, key(28, 0, step)),
                chain(&b, &min_p, &history, key(28, 1, step)),
            ];
            let drawn = sample_rows(&rows);
            let token = |row: usize| drawn[row].as_ref().unwrap().token.index();
            joint[token(0)][token(1)] += 1;
        }
        let law_a = [4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0];
        let law_b = [0.0, 4.0 / 29.0, 9.0 / 29.0, 16.0 / 29.0];
        let chi2 = |observed: &[u32], law: &[f64]| -> f64 {
            observed
                .iter()
                .zip(law)
                .map(|(&count, p)| {
                    if *p == 0.0 {
                        assert_eq!(count, 0, "{method}: an id of probability 0");
                        return 0.0;
                    }
                    let expected = f64::from(n) * p;
                    (f64::from(count) - expected).powi(2) / expected
                })
                .sum()
        };
        let of_a: Vec<u32> = joint.iter().map(|row| row.iter().sum()).collect();
        let of_b: Vec<u32> = (0..4).map(|j| joint.iter().map(|row| row[j]).sum()).collect();
        // 2 degrees of freedom, and 8 for the nine cells together.
        assert!(chi2(&of_a, &law_a) < 18.42, "{method}: {of_a:?}");
        assert!(chi2(&of_b, &law_b) < 18.42, "{method}: {of_b:?}");
        let cells: Vec<u32> = joint.iter().flatten().copied().collect();
        let product: Vec<f64> = law_a.iter().flat_map(|a| law_b.map(|b| a * b)).collect();
        assert!(chi2(&cells, &product) < 31.83, "{method}: {joint:?}");
    }
}

#[test]
fn b_44_logprobs_are_raw_processed_or_final() {
    let p = [0.4, 0.3, 0.2, 0.1];
    let (logits, history) = (ln(&p), History::default());
    // Bias doubles the odds of id 3; top-k 2 of [.4, .3, .2, .2] at temperature 0.5.
    let params = params(|p| {
        p.logit_bias = vec![(TokenId(3), 2.0_f64.ln())];
        (p.top_k, p.temperature) = (2, 0.5);
    });
    let processed = [0.4 / 1.1, 0.3 / 1.1, 0.2 / 1.1, 0.2 / 1.1];
    let of = [
        (LogprobMode::Raw, p),
        (LogprobMode::Processed, processed),
        (LogprobMode::Final, [16.0 / 25.0, 9.0 / 25.0, 0.0, 0.0]),
    ];
    for step in 1..20 {
        for (mode, law) in of {
            for top in [0, 2, 3, 9] {
                let row = ChainRow {
                    logprobs: Some(LogprobRequest { mode, top }),
                    ..chain(&logits, &params, &history, key(44, 0, step))
                };
                let sampled = sample_row(&row).unwrap();
                let logprobs = sampled.logprobs.unwrap();
                let near = |logp: f64, p: f64| {
                    (p == 0.0 && logp == f64::NEG_INFINITY) || (logp - p.ln()).abs() < 1e-6
                };
                assert!(near(logprobs.token, law[sampled.token.index()]));
                assert!(near(sampled.logp, of[2].1[sampled.token.index()]));
                assert_eq!(logprobs.top.len(), top.min(4));
                for (rank, &(id, logp)) in logprobs.top.iter().enumerate() {
                    // Here ids are in ranked order, unless the bias put 3 a rounding before 2.
                    let expected = law[id.index()];
                    assert!(near(logp, expected) && near(logp, law[rank]), "{mode:?}: {:?}", logprobs.top);
                }
            }
        }
    }
}

#[test]
fn b_44_ties_rank_by_id_and_a_greedy_final_is_all_on_its_token() {
    let (logits, history) = ([1.0_f32, 2.0, 2.0, f32::NEG_INFINITY], History::default());
    let greedy = params(|p| p.temperature = 0.0);
    let sample = |mode| {
        let row = ChainRow {
            logprobs: Some(LogprobRequest { mode, top: 4 }),
            ..chain(&logits, &greedy, &history, key(45, 0, 1))
        };
        sample_row(&row).unwrap().logprobs.unwrap()
    };
    let ids = |mode| sample(mode).top.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
    assert_eq!(ids(LogprobMode::Raw), [1, 2, 0, 3]);
    assert_eq!(sample(LogprobMode::Raw).top[3].1, f64::NEG_INFINITY);
    assert_eq!(ids(LogprobMode::Final), [1, 0, 2, 3]);
    let last = sample(LogprobMode::Final);
    assert_eq!((last.token, last.top[0].1, last.top[1].1), (0.0, 0.0, f64::NEG_INFINITY));
}

#[test]
fn neutral_settings_draw_what_the_plain_draw_pass_draws() {
    use lockstep_sample::{EosSet, RowDraw, draw_row};
    let (params, history, eos) = (SamplingParams::default(), History::default(), EosSet::new([]));
    for step in 1..20 {
        let logits = logits(u64::from(step), 2000);
        let chained = sample_row(&chain(&logits, &params, &history, key(50, 0, step))).unwrap();
        let plain = draw_row(&RowDraw {
            logits: &logits,
            temperature: 1.0,
            eos: &eos,
            mask: None,
            method: DrawMethod::GumbelMax,
            key: key(50, 0, step),
        })
        .unwrap();
        assert_eq!(
            (chained.token, chained.logp, chained.log_mass),
            (plain.token, plain.logp, plain.log_mass)
        );
    }
}
