//! The default model against logits that an independent implementation computed in f32 on the
//! dequantised weights.
#![allow(clippy::unwrap_used)] // helpers of tests, where a panic is the report

mod support;

use std::collections::BTreeMap;

use lockstep_engine::TokenId;
use lockstep_engine::model::{BatchItem, Model, SeqId, Wanted};
use lockstep_native::NativeModel;
use serde::Deserialize;

use support::{Rows, default_model, feed};

/// The most that a logit or a log-sum-exp may differ. The values are given to 5 or 4 decimals.
const TOLERANCE: f64 = 1e-3;

#[derive(Deserialize)]
struct Prompt {
    ids: Vec<u32>,
    last: Last,
    #[serde(default)]
    positions: Vec<(u32, f64, f64)>,
    log_prob_of_text: Option<f64>,
    greedy: Option<Greedy>,
}

#[derive(Deserialize)]
struct Last {
    logsumexp: f64,
    top: Vec<(u32, f64)>,
    probe: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Greedy {
    ids: Vec<u32>,
    margin_to_second: Vec<f64>,
}

fn prompts() -> BTreeMap<String, Prompt> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/smollm2-logits.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn logsumexp(row: &[f32]) -> f64 {
    let greatest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    greatest + row.iter().map(|&x| (f64::from(x) - greatest).exp()).sum::<f64>().ln()
}

fn argmax(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

/// The greatest difference seen, and where.
struct Worst(f64, String);

impl Worst {
    fn see(&mut self, ours: f64, theirs: f64, place: impl FnOnce() -> String) {
        let difference = (ours - theirs).abs();
        // A NaN stays, and fails the comparison at the end.
        if difference > self.0 || difference.is_nan() {
            *self = Self(difference, place());
        }
    }
}

#[test]
fn native_golden_logits_agree_at_every_given_place() {
    let mut model = default_model(2);
    let mut worst = Worst(0.0, String::new());
    for (index, (name, prompt)) in prompts().into_iter().enumerate() {
        let seq = SeqId(index as u64);
        model.open(seq, None).unwrap();
        let rows = feed(&mut model, seq, &prompt.ids, 512);
        assert_eq!(rows.len(), prompt.ids.len());
        let last = rows.row(rows.len() - 1);
        worst.see(logsumexp(last), prompt.last.logsumexp, || format!("{name} logsumexp"));
        for (id, logit) in prompt.last.top.iter().chain(&prompt.last.probe) {
            worst.see(f64::from(last[*id as usize]), *logit, || format!("{name} last, token {id}"));
        }
        for (at, (id, logit, lse)) in prompt.positions.iter().enumerate() {
            let row = rows.row(at);
            worst.see(f64::from(row[*id as usize]), *logit, || format!("{name} position {at}, token {id}"));
            worst.see(logsumexp(row), *lse, || format!("{name} position {at} logsumexp"));
            let top = argmax(row);
            let margin = f64::from(row[top] - row[*id as usize]);
            assert!(margin <= 2.0 * TOLERANCE, "{name} position {at}: {top} beats {id} by {margin}");
        }
        if let Some(theirs) = prompt.log_prob_of_text {
            let log_prob = |at: usize| {
                f64::from(rows.row(at - 1)[prompt.ids[at] as usize]) - logsumexp(rows.row(at - 1))
            };
            let ours: f64 = (1..prompt.ids.len()).map(log_prob).sum();
            let difference = (ours - theirs).abs() / prompt.ids.len() as f64;
            worst.see(difference, 0.0, || format!("{name} log_prob_of_text, a token"));
        }
    }
    println!("greatest difference {:e}: {}", worst.0, worst.1);
    assert!(worst.0 <= TOLERANCE, "{} differs by {}", worst.1, worst.0);
}

/// One greedy step from a sequence's pending token.
fn greedy(model: &mut NativeModel, seq: SeqId, token: u32) -> u32 {
    let mut rows = Rows::new(model);
    let item = BatchItem { seq, tokens: &[TokenId(token)], wanted: Wanted::Last };
    model.forward(&[item], &mut rows).unwrap();
    argmax(rows.row(0)) as u32
}

#[test]
fn native_golden_greedy_continuations_agree_where_the_margin_allows() {
    let mut model = default_model(2);
    let mut steps = 0;
    for (index, (name, prompt)) in prompts().into_iter().enumerate() {
        let Some(theirs) = prompt.greedy else { continue };
        let seq = SeqId(index as u64);
        model.open(seq, None).unwrap();
        let (last, before) = prompt.ids.split_last().unwrap();
        feed(&mut model, seq, before, 512);
        let mut token = *last;
        for (at, (id, margin)) in theirs.ids.iter().zip(&theirs.margin_to_second).enumerate() {
            let ours = greedy(&mut model, seq, token);
            assert!(ours == *id || *margin <= 2.0 * TOLERANCE, "{name} step {at}: {ours}, not {id}");
            // Their path, so that one narrow step does not end the comparison.
            token = *id;
            steps += 1;
        }
    }
    assert_eq!(steps, 3 * 24, "three prompts have continuations");
}
