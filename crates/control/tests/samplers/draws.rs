//! Draws: by a function of the caller's, and of rows of several vocabularies in one tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_control::chooser::{RowToDraw, draw_rows};
use lockstep_control::potential::{Row, Run};
use lockstep_control::sampler::{TokenSampler, eager_token_sampler, topk_token_sampler};
use lockstep_control::{Awrs, AwrsOptions, BoolFsa, Direct, DrawFn, ErrorKind, Keyed, Smc, SmcOptions};
use lockstep_sample::{DrawMethod, TokenId};

use crate::support::{DEAD, Table, keys, numbered, sample};

/// The most likely position, the lowest of several.
fn greedy(logps: &[f64]) -> usize {
    (0..logps.len()).rev().max_by(|a, b| logps[*a].total_cmp(&logps[*b])).unwrap()
}

#[test]
fn samplers_13_awrs_refuses_a_draw_function() {
    let vocab = numbered(3);
    let log_weights = [0.4_f64, 0.3, 0.2, 0.1].map(f64::ln);
    let potential = Table::new(&vocab, &log_weights).potential();
    let condition = Table::accepting(&vocab, &[1]).potential();
    let sampler = Awrs::new(potential, condition, AwrsOptions::default()).unwrap();
    let mut cursor = sampler.open(1, &Run::default()).unwrap();
    let error = cursor.sample(&[0], &keys(1, 1), &mut || {}, &mut DrawFn::new(greedy)).remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let smc = Smc::new(Arc::new(sampler), None).unwrap();
    let mut run = smc.start_with(&SmcOptions::default(), Box::new(DrawFn::new(greedy))).unwrap();
    assert_eq!(run.next().unwrap().unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn a_draw_function_replaces_every_categorical_draw() {
    let log_weights = [0.2_f64, 0.45, 0.25, 0.1].map(f64::ln);
    let iter = Table::new(&numbered(3), &log_weights).potential();
    let item = || Arc::new(BoolFsa::from_regex("<[02]>").unwrap());
    let direct = sample(
        &mut *Direct::new(Arc::clone(&iter)).open(1, &Run::default()).unwrap(),
        &keys(1, 1),
        &mut DrawFn::new(greedy),
    )
    .remove(0);
    assert_eq!(direct.token, Some(TokenId(1)));
    assert!(direct.logw.abs() < 1e-12 && (direct.logp.unwrap() - log_weights[1]).abs() < 1e-12);

    // One symbol after the other, then a token of the set of one.
    let calls = AtomicUsize::new(0);
    let counted = |logps: &[f64]| {
        calls.fetch_add(1, Ordering::SeqCst);
        greedy(logps)
    };
    let eager = eager_token_sampler(Arc::clone(&iter), item()).unwrap();
    let drawn = sample(&mut *eager.open(1, &Run::default()).unwrap(), &keys(1, 1), &mut DrawFn::new(counted))
        .remove(0);
    assert_eq!((drawn.token, calls.load(Ordering::SeqCst)), (Some(TokenId(2)), 4));
    // The wildcard, then a token of the set.
    let topk = topk_token_sampler(iter, item(), Some(1)).unwrap();
    let drawn = sample(&mut *topk.open(1, &Run::default()).unwrap(), &keys(1, 1), &mut DrawFn::new(counted))
        .remove(0);
    assert_eq!((drawn.token, calls.load(Ordering::SeqCst)), (Some(TokenId(2)), 6));
}

#[test]
fn a_draw_function_that_fails_is_an_error() {
    let potential = Table::new(&numbered(3), &[-0.5, DEAD, -1.0, -1.5]).potential();
    let direct = Direct::new(potential);
    let error = |draw: fn(&[f64]) -> usize| {
        let mut cursor = direct.open(1, &Run::default()).unwrap();
        cursor.sample(&[0], &keys(1, 1), &mut || {}, &mut DrawFn::new(draw)).remove(0).unwrap_err()
    };
    for (draw, message) in [
        (
            (|_| 1) as fn(&[f64]) -> usize,
            "the draw function gave position 1, which has no mass: give a live one",
        ),
        (|_| 99, "the draw function gave position 99, which has no mass: give a live one"),
        (|_| panic!("no idea"), "the draw function panicked: no idea"),
    ] {
        assert_eq!((error(draw).kind(), error(draw).to_string().as_str()), (ErrorKind::Custom, message));
    }
}

fn dense(p: &[f64]) -> Row {
    Row::dense(p.iter().map(|p| p.ln()).collect::<Vec<f64>>())
}

#[test]
fn samplers_27_rows_of_several_vocabularies_are_drawn_in_one_tick() {
    let (three, four) = (dense(&[0.0, 1.0, 0.0]), dense(&[0.0, 0.0, 0.0, 1.0]));
    let malformed = dense(&[0.5, 0.5]);
    let keys = keys(27, 4);
    let to = |row, row_len, i: usize| RowToDraw { row, row_len, eos_position: row_len - 1, key: keys[i] };
    for method in [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial] {
        let mut keyed = Keyed { method };
        let drawn = draw_rows(&mut keyed, &[to(&three, 3, 0), to(&four, 4, 1), to(&three, 3, 2)]);
        let tokens: Vec<TokenId> = drawn.into_iter().map(|drawn| drawn.unwrap().unwrap().token).collect();
        assert_eq!(tokens, [TokenId(1), TokenId::EOS, TokenId(1)]);

        let rows = [to(&three, 3, 0), to(&four, 4, 1), to(&malformed, 3, 2), to(&four, 4, 3)];
        let drawn = draw_rows(&mut keyed, &rows);
        for i in [1, 3] {
            assert_eq!(drawn[i].as_ref().unwrap().unwrap().token, TokenId::EOS);
        }
        for i in [0, 2] {
            let error = drawn[i].as_ref().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Contract);
            assert_eq!(error.to_string(), "a row of next-token weights has 2 positions, its vocabulary 3");
        }
    }
}

#[test]
fn samplers_27_a_group_draws_as_its_rows_alone() {
    let rows: Vec<Row> = (2..40)
        .map(|n| dense(&(1..=3 + n % 2).map(|i| (i * n % 7 + 1) as f64).collect::<Vec<_>>()))
        .collect();
    let keys = keys(28, 38);
    let to_draw: Vec<RowToDraw<'_>> = rows
        .iter()
        .zip(&keys)
        .zip(2..)
        .map(|((row, key), n)| RowToDraw { row, row_len: 3 + n % 2, eos_position: 2, key: *key })
        .collect();
    let together = draw_rows(&mut Keyed::default(), &to_draw);
    for (drawn, to) in together.into_iter().zip(&to_draw) {
        assert_eq!(drawn.unwrap(), to.row.draw(2, None, DrawMethod::default(), &to.key));
    }
}

#[test]
fn samplers_29_a_draw_function_sees_a_large_row_in_its_own_order() {
    let n = 150_000;
    let log_weights: Vec<f64> = (0..n).map(|i| f64::from(i * 7919 % 1000) / -100.0).collect();
    let row = Row::dense(log_weights.clone());
    let mut calls = 0;
    let mut chooser = DrawFn::new(|logps: &[f64]| {
        calls += 1;
        // As it stands in the row: nothing was sorted for the call.
        assert_eq!(logps.len(), log_weights.len());
        let shift = logps[0] - log_weights[0];
        assert!(logps.iter().zip(&log_weights).all(|(logp, w)| (logp - w - shift).abs() < 1e-9));
        140_003
    });
    let to = RowToDraw { row: &row, row_len: 150_000, eos_position: 149_999, key: keys(29, 1)[0] };
    let drawn = draw_rows(&mut chooser, &[to]).remove(0).unwrap().unwrap();
    assert_eq!(drawn.token, TokenId(140_003));
    assert!((drawn.logp - (log_weights[140_003] - drawn.log_mass)).abs() < 1e-12);
    assert_eq!(calls, 1);
}
