//! Logit bias and penalties: sparse changes to a row's logits.
//!
//! In this order, each rounded to f32: `l += b` for every biased id; `l < 0 ? l·p : l/p` for each
//! distinct id in the repetition window; `l −= a` for each distinct id in the presence window;
//! `l −= a · count` for each id in the frequency window.
//!
//! Invariant: only listed ids and ids in a window are touched; neutral settings touch nothing.

use crate::history::History;
use crate::params::{SamplingParams, count};

/// Whether [`apply`] changes no logit, whatever the history.
pub(crate) fn are_neutral(params: &SamplingParams) -> bool {
    params.logit_bias.is_empty()
        && !params.repeats_cost()
        && params.presence_penalty == 0.0
        && params.frequency_penalty == 0.0
}

/// Applies bias and penalties. Ids beyond the row, such as the end symbol, have no logit to change.
pub(crate) fn apply(params: &SamplingParams, history: &History, logits: &mut [f32]) {
    for (id, bias) in &params.logit_bias {
        change(logits, id.index(), |l| l + bias);
    }
    if params.repeats_cost() {
        let p = params.repetition_penalty;
        for (id, _) in history.counts(count(params.repetition_context_size)).entries() {
            change(logits, id.index(), |l| if l < 0.0 { l * p } else { l / p });
        }
    }
    if params.presence_penalty != 0.0 {
        for (id, _) in history.counts(count(params.presence_context_size)).entries() {
            change(logits, id.index(), |l| l - params.presence_penalty);
        }
    }
    if params.frequency_penalty != 0.0 {
        for (id, count) in history.counts(count(params.frequency_context_size)).entries() {
            change(logits, id.index(), |l| l - params.frequency_penalty * f64::from(*count));
        }
    }
}

fn change(logits: &mut [f32], id: usize, rule: impl FnOnce(f64) -> f64) {
    if let Some(l) = logits.get_mut(id) {
        *l = rule(f64::from(*l)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::token::TokenId;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn b_19_all_penalties_together() {
        let params = SamplingParams {
            repetition_penalty: 1.5,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            ..SamplingParams::default()
        };
        let mut logits = [1.0, -1.0, 0.5, 0.0];
        apply(&params, &History::new(&params, &tokens(&[0, 0, 1])), &mut logits);
        for (l, expected) in logits.into_iter().zip([-0.3333, -2.25, 0.5, 0.0]) {
            assert!((l - expected).abs() < 1e-4, "{logits:?}");
        }
        assert_eq!(logits[2..], [0.5, 0.0]);
    }

    #[test]
    fn impossible_ids_stay_impossible() {
        let params = SamplingParams {
            logit_bias: vec![(TokenId(0), 1e30)],
            repetition_penalty: 1e-30,
            presence_penalty: -2.0,
            frequency_penalty: -2.0,
            ..SamplingParams::default()
        };
        let mut logits = [f32::NEG_INFINITY; 2];
        apply(&params, &History::new(&params, &tokens(&[0, 1, 7])), &mut logits);
        assert_eq!(logits, [f32::NEG_INFINITY; 2]);
    }

    #[test]
    fn b_20_a_token_that_left_the_window_costs_nothing() {
        let params = SamplingParams { presence_penalty: 1.0, ..SamplingParams::default() };
        for (len, expected) in [(19, -1.0), (20, -1.0), (21, 0.0)] {
            let mut history = vec![1; len];
            history[0] = 0;
            let mut logits = [0.0, 0.0];
            apply(&params, &History::new(&params, &tokens(&history)), &mut logits);
            assert_eq!(logits, [expected, -1.0], "{len} tokens");
        }
    }

    #[test]
    fn neutral_settings_are_told() {
        assert!(are_neutral(&SamplingParams { repetition_penalty: 0.0, ..SamplingParams::default() }));
        assert!(are_neutral(&SamplingParams { repetition_penalty: 1.0, ..SamplingParams::default() }));
        for params in [
            SamplingParams { repetition_penalty: 1.1, ..SamplingParams::default() },
            SamplingParams { presence_penalty: -0.1, ..SamplingParams::default() },
            SamplingParams { frequency_penalty: 0.1, ..SamplingParams::default() },
            SamplingParams { logit_bias: vec![(TokenId(0), 1.0)], ..SamplingParams::default() },
        ] {
            assert!(!are_neutral(&params));
        }
    }

    /// The rules, token by token over the whole row.
    fn plain(params: &SamplingParams, history: &[u32], logits: &mut [f32]) {
        let window = |size: i64| {
            let size = if size == 0 { history.len() } else { (size as usize).min(history.len()) };
            &history[history.len() - size..]
        };
        for (id, l) in (0..).zip(logits) {
            let times = |size: i64| window(size).iter().filter(|&&token| token == id).count() as f64;
            for (biased, bias) in &params.logit_bias {
                if biased.0 == id {
                    *l = (f64::from(*l) + bias) as f32;
                }
            }
            if times(params.repetition_context_size) > 0.0 && params.repetition_penalty > 0.0 {
                let x = f64::from(*l);
                let p = params.repetition_penalty;
                *l = if x < 0.0 { x * p } else { x / p } as f32;
            }
            if times(params.presence_context_size) > 0.0 {
                *l = (f64::from(*l) - params.presence_penalty) as f32;
            }
            *l = (f64::from(*l) - params.frequency_penalty * times(params.frequency_context_size)) as f32;
        }
    }

    proptest! {
        #[test]
        fn b_23_sparse_penalties_equal_the_rules_over_the_whole_row(
            logits in prop::collection::vec(-9.0f32..9.0, 40),
            history in prop::collection::vec(0u32..40, 0..90),
            prompt in 0usize..90,
            penalties in prop::array::uniform3(prop::sample::select(vec![0.0, 0.3, 1.0, 1.7])),
            sizes in prop::array::uniform3(prop::sample::select(vec![0i64, 1, 5, 20, 1000])),
            bias in prop::collection::vec((0u32..40, -5.0f64..5.0), 0..5),
        ) {
            let params = SamplingParams {
                logit_bias: bias.into_iter().map(|(id, bias)| (TokenId(id), bias)).collect(),
                repetition_penalty: penalties[0],
                repetition_context_size: sizes[0],
                presence_penalty: penalties[1],
                presence_context_size: sizes[1],
                frequency_penalty: penalties[2],
                frequency_context_size: sizes[2],
                ..SamplingParams::default()
            };
            let (prompt, drawn) = history.split_at(prompt.min(history.len()));
            let mut row = History::new(&params, &tokens(prompt));
            for &token in drawn {
                row.push(TokenId(token));
            }
            let mut sparse = logits.clone();
            apply(&params, &row, &mut sparse);
            let mut whole = logits;
            plain(&params, &history, &mut whole);
            let bits = |row: &[f32]| row.iter().map(|l| l.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&sparse), bits(&whole));
        }
    }
}
