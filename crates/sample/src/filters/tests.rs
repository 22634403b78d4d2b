//! The filters beside a twin that sorts the whole row and follows the rules to the letter.

use proptest::prelude::*;

use super::*;
use crate::math::exp;
use crate::rng::{DrawKey, ProblemKey};

/// What stays, ascending.
fn kept(logits: &[f32], filters: &Filters<'_>) -> Vec<u32> {
    let (mut scan, mut out, mut scratch) = (Scan::default(), Survivors::default(), Scratch::default());
    scan.read(logits).expect("a sound row");
    let outcome = filters.run(logits, &scan, &mut out, &mut scratch);
    if outcome == Outcome::AllBut {
        let live = |id: &u32| logits[*id as usize] > f32::NEG_INFINITY && !out.ids.contains(id);
        return (0..logits.len() as u32).filter(live).collect();
    }
    assert_eq!(out.logits, out.ids.iter().map(|&id| logits[id as usize]).collect::<Vec<_>>());
    out.ids
}

/// The twin.
fn sorted_and_kept(logits: &[f32], filters: &Filters<'_>) -> Vec<u32> {
    let Filters { params, gate_is_open, special_ids, inverse } = *filters;
    let z = |id: u32| f64::from(logits[id as usize]) * inverse;
    let mut ranked: Vec<u32> =
        (0..logits.len() as u32).filter(|&id| logits[id as usize] > f32::NEG_INFINITY).collect();
    ranked.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).unwrap().then(a.cmp(&b)));

    let top = z(ranked[0]);
    // Masses this small count as none, for draws too.
    let mass = |id: u32| if z(id) - top < -708.0 { 0.0 } else { exp(z(id) - top) };
    if params.top_p < 1.0 {
        let total: f64 = ranked.iter().map(|&id| mass(id)).sum();
        let mut before = 0.0;
        ranked.retain(|&id| {
            let stays = before < params.top_p * total;
            before += mass(id);
            stays
        });
    }
    if params.min_p > 0.0 {
        let floor = math::ln(params.min_p);
        let mut rank = 0;
        ranked.retain(|&id| {
            rank += 1;
            z(id) - top >= floor || rank <= params.min_tokens_to_keep
        });
    }
    if gate_is_open {
        let total: f64 = ranked.iter().map(|&id| mass(id)).sum();
        let candidates: Vec<u32> =
            ranked.iter().copied().filter(|&id| mass(id) / total > params.xtc_threshold).collect();
        if candidates.len() >= 2 {
            // By logit: at extreme temperatures `z` of different logits round to one number.
            let logit = |id: u32| logits[id as usize];
            let least = candidates.iter().map(|&id| logit(id)).fold(f32::INFINITY, f32::min);
            ranked.retain(|&id| {
                !candidates.contains(&id) || logit(id) <= least || special_ids.contains(&TokenId(id))
            });
        }
    }
    if params.top_k > 0 {
        ranked.truncate(count(params.top_k));
    }
    ranked.sort_unstable();
    ranked
}

/// Rows that are hard on thresholds.
fn row(shape: u32, len: u32, seed: u32) -> Vec<f32> {
    let noise = DrawKey::new(ProblemKey::new(77, u64::from(shape)), 0, seed, 0);
    let mut row: Vec<f32> = (0..len)
        .map(|i| {
            let g = noise.gumbel(i) as f32;
            let word = noise.block(1_000_000 + i)[0];
            match shape {
                // Generic rows, wide, narrow and nearly flat.
                0 => 3.0 * g,
                1 => 20.0 * g,
                2 => 1e-3 * g,
                // Ties: all equal, a few values, negative and positive zero.
                3 => 2.5,
                4 => (2.0 * g).round(),
                5 => [0.0, -0.0][(word % 2) as usize],
                // Mostly impossible.
                6 if !word.is_multiple_of(50) => f32::NEG_INFINITY,
                // Values far apart.
                7 => [1e38, -1e38, 1e-40, -1e-40, 0.0][(word % 5) as usize],
                8 => g.exp2().powi(9).min(1e30),
                _ => g,
            }
        })
        .collect();
    let spot = (noise.block(5)[0] % len) as usize;
    if shape == 9 {
        row[spot] = 60.0;
    }
    row[spot] = row[spot].max(-5.0);
    row
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn thresholds_and_selection_keep_what_a_full_sort_keeps(
        shape in 0u32..11,
        len in prop::sample::select(vec![1u32, 2, 7, 63, 64, 65, 300, 1024, 5000]),
        seed in 0u32..1_000_000,
        top_p in prop::sample::select(vec![1.0, 1.0, 1e-7, 1e-300, 0.1, 0.5, 0.9, 0.95, 0.999, 0.999_999]),
        min_p in prop::sample::select(vec![0.0, 0.0, 1e-300, 1e-9, 0.05, 0.5, 1.0]),
        min_tokens_to_keep in prop::sample::select(vec![1i64, 1, 2, 10, 400, i64::MAX]),
        top_k in prop::sample::select(vec![0i64, 0, 1, 2, 5, 50, 700, 5000, 5005, i64::MAX]),
        xtc_threshold in prop::sample::select(vec![0.0, 0.001, 0.1, 0.3, 0.5]),
        gate_is_open: bool,
        inverse in prop::sample::select(vec![1.0, 1.0, 0.5, 1.25, 1e-300, 1e30, 1e200]),
        special in 0u32..64,
    ) {
        let logits = row(shape, len, seed);
        let params =
            SamplingParams { top_p, min_p, min_tokens_to_keep, top_k, xtc_threshold, ..SamplingParams::default() };
        let special_ids = [TokenId(special)];
        let filters = Filters { params: &params, gate_is_open, special_ids: &special_ids, inverse };
        if !filters.are_neutral() {
            let kept = kept(&logits, &filters);
            prop_assert!(!kept.is_empty());
            prop_assert_eq!(kept, sorted_and_kept(&logits, &filters));
        }
    }
}

fn params(change: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
    let mut params = SamplingParams::default();
    change(&mut params);
    params
}

/// What stays of a row with these probabilities; the gate is open if XTC is on at all.
fn kept_of(p: &[f64], change: impl FnOnce(&mut SamplingParams)) -> Vec<u32> {
    let logits: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
    let params = params(change);
    let inverse = if params.temperature_first { 1.0 / params.temperature } else { 1.0 };
    let gate_is_open = params.xtc_probability == 1.0;
    kept(&logits, &Filters { params: &params, gate_is_open, special_ids: &[], inverse })
}

#[test]
fn b_10_top_p_keeps_the_head_of_the_ranked_order() {
    for (top_p, expected) in [(0.3, vec![0]), (0.95, vec![0, 3])] {
        assert_eq!(kept_of(&[0.9, 0.0, 0.0, 0.1], |p| p.top_p = top_p), expected);
    }
    for (top_p, expected) in [(0.4, vec![1]), (0.6, vec![1, 2]), (0.95, vec![1, 2, 3])] {
        assert_eq!(kept_of(&[0.0, 0.5, 0.4, 0.1], |p| p.top_p = top_p), expected);
    }
}

#[test]
fn b_11_no_filter_empties_a_row() {
    let p = [0.1, 0.4, 0.0, 0.3, 0.2];
    assert_eq!(kept_of(&p, |p| p.top_p = 1e-7), [1]);
    for k in [5, 10] {
        assert_eq!(kept_of(&p, |p| p.top_k = k), [0, 1, 3, 4], "all that is possible");
    }
    let all = |p: &mut SamplingParams| {
        (p.top_p, p.min_p, p.xtc_probability, p.xtc_threshold, p.top_k) = (1e-7, 1.0, 1.0, 0.0, 1);
    };
    assert_eq!(kept_of(&p, all), [1]);
    assert_eq!(kept_of(&[0.25; 4], all), [0]);
}

#[test]
fn b_12_xtc_keeps_the_least_likely_candidates() {
    for (threshold, expected) in [(0.1, vec![2, 3]), (0.2, vec![1, 2, 3])] {
        let kept = kept_of(&[0.4, 0.3, 0.15, 0.15], |p| {
            (p.xtc_probability, p.xtc_threshold) = (1.0, threshold);
        });
        assert_eq!(kept, expected, "equal candidates at the minimum all survive");
    }
}

#[test]
fn b_13_top_k_comes_after_xtc() {
    let kept = kept_of(&[0.4, 0.3, 0.2, 0.1], |p| {
        (p.xtc_probability, p.xtc_threshold, p.top_k) = (1.0, 0.15, 1);
    });
    assert_eq!(kept, [2]);
}

#[test]
fn b_14_xtc_spares_special_ids() {
    let logits = [0.4_f32, 0.3, 0.15, 0.15].map(f32::ln);
    let params = params(|p| p.xtc_probability = 1.0);
    let filters =
        Filters { params: &params, gate_is_open: true, special_ids: &[TokenId(0), TokenId(2)], inverse: 1.0 };
    assert_eq!(kept(&logits, &filters), [0, 2, 3]);
}

#[test]
fn b_15_top_p_before_and_after_temperature() {
    let warm = |first: bool| {
        kept_of(&[0.5, 0.3, 0.2], |p| {
            (p.temperature, p.top_p, p.temperature_first) = (2.0, 0.75, first);
        })
    };
    assert_eq!(warm(false), [0, 1]);
    assert_eq!(warm(true), [0, 1, 2]);
}

#[test]
fn min_p_leaves_as_many_as_asked_if_top_p_did() {
    let p = [0.5, 0.25, 0.15, 0.1];
    assert_eq!(kept_of(&p, |p| p.min_p = 0.4), [0, 1]);
    assert_eq!(kept_of(&p, |p| (p.min_p, p.min_tokens_to_keep) = (0.4, 3)), [0, 1, 2]);
    assert_eq!(kept_of(&p, |p| (p.min_p, p.min_tokens_to_keep, p.top_p) = (0.4, 3, 0.5)), [0]);
}

/// So near to 1 the cut is as exact as the rounding of sums.
#[test]
fn a_top_p_next_to_1_leaves_out_no_more_than_its_complement() {
    for seed in 0..20 {
        let logits = row(0, 5000, seed);
        let params = params(|p| p.top_p = 1.0 - 1e-12);
        let filters = Filters { params: &params, gate_is_open: false, special_ids: &[], inverse: 2.0 };
        let kept = kept(&logits, &filters);
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mass = |l: f32| exp(2.0 * f64::from(l - max));
        let total: f64 = logits.iter().map(|&l| mass(l)).sum();
        let lost: f64 = total - kept.iter().map(|&id| mass(logits[id as usize])).sum::<f64>();
        let least = kept.iter().map(|&id| mass(logits[id as usize])).fold(f64::INFINITY, f64::min);
        assert!(kept.len() < 5000 && lost <= 1.1e-12 * total && lost + least >= 0.9e-12 * total);
    }
}
