//! The acceptance cases of draws and of the draw pass, through the public interface.

use lockstep_sample::{
    Bitset, DrawKey, DrawMethod, Drawn, EosSet, Normalizer, Pick, ProblemKey, RowDraw, RowError, TokenId,
    Weights, draw, draw_row, draw_rows, log_mass,
};

const METHODS: [DrawMethod; 3] = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];

fn key(seed: u64, particle: u32, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(seed, 0), particle, step, 0)
}

/// Logits like a language model's: a spread, a few heavy ids, some impossible ones.
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

/// The row written out: all weights, the end at its lowest id, what is forbidden at `-inf`.
fn written_out(row: &RowDraw<'_>) -> Result<Vec<f64>, RowError> {
    let normalizer = Normalizer::of(row.logits, row.temperature)?;
    let mut weights = vec![0.0; row.logits.len()];
    normalizer.fill(row.logits, &mut weights);
    for &id in row.eos.ids() {
        weights[id as usize] = f64::NEG_INFINITY;
    }
    if let Some(lowest) = row.eos.lowest() {
        weights[lowest as usize] = normalizer.eos(row.logits, row.eos);
    }
    if let Some(mask) = row.mask {
        for (i, w) in weights.iter_mut().enumerate() {
            if !mask.contains(i) {
                *w = f64::NEG_INFINITY;
            }
        }
    }
    Ok(weights)
}

/// [`draw_row`] by way of the written-out row.
fn draw_written_out(row: &RowDraw<'_>) -> Result<Drawn, RowError> {
    let weights = written_out(row)?;
    let Pick { index, log_total, logp } =
        draw(Weights::dense(&weights), row.method, &row.key).ok_or(RowError::EmptySupport)?;
    let id = index as u32;
    let token = if row.eos.lowest() == Some(id) { TokenId::EOS } else { TokenId(id) };
    if row.mask.is_none() {
        // The total is known to be that of a normalised row.
        assert!(log_total.abs() < 1e-12, "{log_total}");
        return Ok(Drawn { token, log_mass: 0.0, logp: weights[index] });
    }
    Ok(Drawn { token, log_mass: log_total, logp })
}

/// The tokens are equal, and the numbers too, but for the rounding of the written-out weights of a masked
/// row.
fn assert_agree(drawn: &Drawn, written: &Drawn, what: &str) {
    assert_eq!(drawn.token, written.token, "{what}");
    for (a, b) in [(drawn.log_mass, written.log_mass), (drawn.logp, written.logp)] {
        assert!((a - b).abs() < 1e-13 * (1.0 + b.abs()), "{what}: {a} {b}");
    }
}

fn bits(drawn: Result<Drawn, RowError>) -> Result<(TokenId, u64, u64), RowError> {
    drawn.map(|drawn| (drawn.token, drawn.log_mass.to_bits(), drawn.logp.to_bits()))
}

#[test]
fn b_25_the_first_three_draws_of_seed_0() {
    let logits = [0.25_f32; 4];
    let eos = EosSet::new([]);
    let expected = [
        (DrawMethod::GumbelMax, [1, 1, 3]),
        (DrawMethod::Multinomial, [2, 2, 2]),
        (DrawMethod::InverseCdf, [1, 0, 0]),
    ];
    for (method, expected) in expected {
        let drawn = [0, 1, 2].map(|n| {
            let row = RowDraw {
                logits: &logits,
                temperature: 1.0,
                eos: &eos,
                mask: None,
                method,
                key: key(0, 0, 1 + n),
            };
            draw_row(&row).unwrap().token.0
        });
        assert_eq!(drawn, expected, "{method}");
    }
}

/// False-alarm rate 10⁻⁴ a method (χ², 2 degrees of freedom), for the law of many rows in one pass.
#[test]
fn samplers_26_each_draw_method_follows_its_law() {
    let p: [f64; 3] = [0.2, 0.3, 0.5];
    let logits = p.map(|p| p.ln() as f32);
    let eos = EosSet::new([]);
    let n: u32 = 60_000;
    for method in METHODS {
        let rows: Vec<RowDraw<'_>> = (0..n)
            .map(|i| RowDraw {
                logits: &logits,
                temperature: 1.0,
                eos: &eos,
                mask: None,
                method,
                key: key(1, i, 1),
            })
            .collect();
        let drawn = draw_rows(&rows);
        assert_eq!(drawn.len(), rows.len());
        let mut counts = [0_u32; 3];
        for drawn in drawn {
            counts[drawn.unwrap().token.index()] += 1;
        }
        let chi2: f64 = (0..3)
            .map(|i| {
                let expected = f64::from(n) * p[i];
                (f64::from(counts[i]) - expected).powi(2) / expected
            })
            .sum();
        assert!(chi2 < 18.42, "{method}: χ² = {chi2}");
    }
}

/// A row over several blocks: the same law. False-alarm rate 10⁻⁴ a method (χ², 9 degrees of
/// freedom), with the ids in ten classes.
#[test]
fn samplers_26_each_draw_method_follows_its_law_over_many_blocks() {
    let logits = logits(8, 3000);
    let eos = EosSet::new([7, 1500]);
    let n: u32 = 20_000;
    let row = |method, i| RowDraw {
        logits: &logits,
        temperature: 1.3,
        eos: &eos,
        mask: None,
        method,
        key: key(2, i, 1),
    };
    let mut p = [0.0; 10];
    for (i, w) in written_out(&row(DrawMethod::GumbelMax, 0)).unwrap().into_iter().enumerate() {
        p[i % 10] += w.exp();
    }
    for method in METHODS {
        let mut counts = [0_u32; 10];
        for i in 0..n {
            let token = draw_row(&row(method, i)).unwrap().token;
            counts[if token.is_eos() { 7 } else { token.index() % 10 }] += 1;
        }
        let chi2: f64 = (0..10)
            .map(|i| {
                let expected = f64::from(n) * p[i];
                (f64::from(counts[i]) - expected).powi(2) / expected
            })
            .sum();
        assert!(chi2 < 33.72, "{method}: χ² = {chi2}");
    }
}

#[test]
fn samplers_28_rows_draw_the_same_together_alone_and_on_any_threads() {
    let eos = EosSet::new([2, 900]);
    let logits: Vec<Vec<f32>> = (0..16).map(|i| logits(100 + i, 2048 + 777 * (i as u32 % 3))).collect();
    let masks: Vec<Bitset> = logits
        .iter()
        .zip(2..)
        .map(|(l, thin)| Bitset::from_ids(l.len(), (0..l.len() as u32).step_by(thin)))
        .collect();
    let rows: Vec<RowDraw<'_>> = (0..16)
        .map(|i| RowDraw {
            logits: &logits[i],
            temperature: 0.5 + i as f64 / 8.0,
            eos: &eos,
            mask: (i % 4 != 0).then_some(&masks[i]),
            method: METHODS[i % 3],
            key: key(3, i as u32, 9),
        })
        .collect();
    let alone: Vec<_> = rows.iter().map(|row| bits(draw_row(row))).collect();
    assert!(alone.iter().all(Result::is_ok));
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let together: Vec<_> = pool.install(|| draw_rows(&rows)).into_iter().map(bits).collect();
        assert_eq!(together, alone, "{threads} threads");
        let one_by_one: Vec<_> =
            rows.iter().flat_map(|row| pool.install(|| draw_rows(&[*row]))).map(bits).collect();
        assert_eq!(one_by_one, alone, "{threads} threads, one by one");
    }
}

/// By definition, with the standard library's functions: token, log-mass and logp.
fn reference(row: &RowDraw<'_>) -> (TokenId, f64, f64) {
    let mass: Vec<f64> = row.logits.iter().map(|&l| (f64::from(l) / row.temperature).exp()).collect();
    let z: f64 = mass.iter().sum();
    let lowest = row.eos.lowest().expect("the case has an end");
    let mut p: Vec<f64> = mass.iter().map(|m| m / z).collect();
    let end: f64 = row.eos.ids().iter().map(|&id| p[id as usize]).sum();
    for &id in row.eos.ids() {
        p[id as usize] = 0.0;
    }
    p[lowest as usize] = end;
    let mask = row.mask.expect("the case has a mask");
    for (i, p) in p.iter_mut().enumerate() {
        if !mask.contains(i) {
            *p = 0.0;
        }
    }
    let live: f64 = p.iter().sum();
    let first_above = |p: &[f64], target: f64| {
        let mut sum = 0.0;
        p.iter()
            .position(|p| {
                sum += p;
                sum > target
            })
            .expect("the uniforms of this test are not at the edge")
    };
    let index = match row.method {
        DrawMethod::GumbelMax => {
            let score = |i: usize| p[i].ln() - (-row.key.uniform(i as u32).ln()).ln();
            (0..p.len()).max_by(|&a, &b| score(a).total_cmp(&score(b))).expect("a row has ids")
        }
        DrawMethod::InverseCdf => first_above(&p, row.key.uniform(0) * live),
        DrawMethod::Multinomial => {
            let blocks: Vec<f64> = p.chunks(256).map(|block| block.iter().sum()).collect();
            let block = first_above(&blocks, row.key.uniform(0) * live);
            let p = &p[256 * block..(256 * block + 256).min(p.len())];
            256 * block + first_above(p, row.key.uniform(1) * blocks[block])
        }
    };
    let token = if index as u32 == lowest { TokenId::EOS } else { TokenId(index as u32) };
    (token, live.ln(), (p[index] / live).ln())
}

#[test]
fn samplers_30_masked_draws_agree_with_the_written_out_row_and_the_enumeration() {
    let mut ends = 0;
    // Masks that keep half the ids, and so few that the live ids are drawn from as a list.
    for (len, keep) in [(12, 2), (12, 5), (3000, 2), (3000, 40)] {
        let eos = EosSet::new([len / 3, 3]);
        let logits: Vec<f32> =
            logits(30, len).into_iter().map(|l| if l == f32::NEG_INFINITY { -20.0 } else { l }).collect();
        let mask = Bitset::from_ids(len as usize, (0..len).filter(|id| id % keep == 3 % keep));
        for method in METHODS {
            for step in 1..=200 {
                let row = RowDraw {
                    logits: &logits,
                    temperature: 0.7,
                    eos: &eos,
                    mask: Some(&mask),
                    method,
                    key: key(31, 4, step),
                };
                let drawn = draw_row(&row).unwrap();
                assert_agree(&drawn, &draw_written_out(&row).unwrap(), &format!("{method}, {len} ids"));
                assert_eq!(log_mass(&logits, 0.7, &eos, &mask), Ok(drawn.log_mass));
                let (token, log_mass, logp) = reference(&row);
                assert_eq!(drawn.token, token, "{method}, {len} ids, step {step}");
                assert!((drawn.log_mass - log_mass).abs() < 1e-12, "{} {log_mass}", drawn.log_mass);
                assert!((drawn.logp - logp).abs() < 1e-12, "{} {logp}", drawn.logp);
                ends += u32::from(token.is_eos());
            }
        }
    }
    assert!(ends > 0, "the end was never drawn");
}

#[test]
fn rows_agree_with_their_written_out_form_with_any_mask_and_end_set() {
    let logits = logits(40, 4100);
    let ends = [EosSet::new([]), EosSet::new([0]), EosSet::new([1030, 5, 4099])];
    let full = Bitset::full(4100);
    let few = Bitset::from_ids(4100, [5, 1030, 1031, 4099]);
    let most = Bitset::from_ids(4100, (0..4100).filter(|i| i % 3 != 2));
    let one = Bitset::from_ids(4100, [4099]);
    // Words and blocks that allow nothing, or an end alone, beside others that allow much.
    let late = Bitset::from_ids(4100, (2048..4100).chain([0, 5]));
    let runs = Bitset::from_ids(5000, (0..5000).filter(|i| i / 100 % 3 != 1));
    let short = Bitset::from_ids(2000, (0..2000).filter(|i| i / 64 % 2 == 0 || i % 5 == 0));
    let masks = [&full, &few, &most, &one, &late, &runs, &short];
    for (i, eos) in ends.iter().enumerate() {
        for mask in [None].into_iter().chain(masks.map(Some)) {
            for method in METHODS {
                for (step, temperature) in [(1, 0.1), (2, 0.7), (3, 1.0), (4, 25.0)] {
                    let row = RowDraw {
                        logits: &logits,
                        temperature,
                        eos,
                        mask,
                        method,
                        key: key(41, i as u32, step),
                    };
                    let (drawn, written) = (draw_row(&row), draw_written_out(&row));
                    match (&drawn, &written) {
                        (Ok(drawn), Ok(written)) if mask.is_some() => assert_agree(drawn, written, "masked"),
                        _ => assert_eq!(bits(drawn.clone()), bits(written)),
                    }
                    if mask.is_none_or(|mask| mask == &full) {
                        assert!(drawn.unwrap().log_mass.abs() < 1e-12, "everything is allowed");
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_row_errs_and_its_neighbours_draw_as_if_alone() {
    let good = logits(50, 600);
    let eos = EosSet::new([1]);
    let mut nan = good.clone();
    nan[599] = f32::NAN;
    nan[70] = f32::INFINITY;
    let dead = vec![f32::NEG_INFINITY; 600];
    let empty = Bitset::new(600);
    let other_end = Bitset::from_ids(600, [599]);
    let ends = EosSet::new([1, 599]);
    let row = |logits, eos, mask, particle| RowDraw {
        logits,
        temperature: 1.0,
        eos,
        mask,
        method: DrawMethod::GumbelMax,
        key: key(51, particle, 1),
    };
    let rows = [
        row(&good[..], &eos, None, 0),
        row(&nan, &eos, None, 1),
        row(&dead, &eos, None, 2),
        row(&good, &eos, Some(&empty), 3),
        row(&good, &ends, Some(&other_end), 4),
        row(&good, &eos, None, 5),
    ];
    let drawn = draw_rows(&rows);
    assert_eq!(drawn[0], draw_row(&rows[0]));
    assert!(drawn[0].is_ok());
    assert_eq!(drawn[1], Err(RowError::NonFinite { id: 70 }));
    assert_eq!(drawn[2], Err(RowError::EmptySupport));
    assert_eq!(drawn[3], Err(RowError::EmptySupport));
    assert_eq!(drawn[4], Err(RowError::EmptySupport), "only the lowest id stands for the end");
    assert_eq!(drawn[5], draw_row(&rows[5]));
    assert!(drawn[5].is_ok());
}

#[test]
fn a_tiny_temperature_is_the_argmax() {
    let logits = [1.0_f32, 3.0, f32::NEG_INFINITY, 2.999_999_8];
    let eos = EosSet::new([]);
    for temperature in [1e-30, f64::MIN_POSITIVE, 5e-324] {
        for method in METHODS {
            for step in 1..50 {
                let row = RowDraw {
                    logits: &logits,
                    temperature,
                    eos: &eos,
                    mask: None,
                    method,
                    key: key(60, 0, step),
                };
                let drawn = draw_row(&row).unwrap();
                assert_eq!((drawn.token, drawn.log_mass, drawn.logp), (TokenId(1), 0.0, 0.0));
            }
        }
    }
}
