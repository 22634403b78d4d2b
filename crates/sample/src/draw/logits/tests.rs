//! Rows drawn by their masses beside rows written out.

use proptest::prelude::*;

use super::passes::*;
use super::*;
use crate::eos::EosSet;
use crate::rng::ProblemKey;
use crate::simd::Kernel;

const METHODS: [DrawMethod; 3] = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];

fn logits(step: u32, len: u32, spread: f64) -> Vec<f32> {
    let noise = DrawKey::new(ProblemKey::new(98, 0), 0, step, 0);
    let mut logits: Vec<f32> = (0..len)
        .map(|i| match noise.block(1_000_000 + i)[0] % 8 {
            0 => f32::NEG_INFINITY,
            1 => spread as f32,
            _ => (spread * noise.gumbel(i)) as f32,
        })
        .collect();
    logits[(step % len) as usize] = 0.0;
    logits
}

/// No mask, or one of words that allow all, nothing, or one id in `of`.
fn mask(step: u32, len: usize, of: u32) -> Option<Bitset> {
    let noise = DrawKey::new(ProblemKey::new(97, 0), 0, step, 0);
    let allows = |id: &u32| match noise.block(id / 64)[0] % 4 {
        0 => true,
        1 => false,
        _ => noise.block(1_000_000 + id)[0].is_multiple_of(of),
    };
    (of > 0).then(|| Bitset::from_ids(len, (0..len as u32).filter(allows)))
}

/// The row's masses with its mask in the other form.
fn in_other_form<'a>(row: &'a RowDraw<'a>) -> Masses<'a> {
    let mut masses = Masses::of(row).unwrap();
    masses.live = match masses.live {
        Live::All => Live::All,
        Live::List(ids) => Live::Mask(Cow::Owned(Bitset::from_ids(row.logits.len(), ids))),
        Live::Mask(mask) => {
            let ids = mask.iter().take_while(|&id| id < row.logits.len());
            Live::List(ids.map(|id| id as u32).collect())
        }
    };
    masses
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn decided_rows_draw_as_written_out_and_every_form_of_a_mask_leaves_the_same(
        step in 0u32..1_000_000,
        len in prop::sample::select(vec![1u32, 2, 63, 255, 257, 1025, 3000]),
        spread in prop::sample::select(vec![0.0, 1e-3, 1.0, 6.0, 500.0, 1e30]),
        temperature in prop::sample::select(vec![1.0, 0.3, 40.0, 1e-3, 1e-30, f64::MIN_POSITIVE]),
        ends in prop::collection::vec(0u32..4000, 0..4),
        margin in prop::sample::select(vec![MARGIN, 1e-6, 1e-2]),
        allowed in prop::sample::select(vec![(0, 0), (2, 0), (2, 100), (40, 0), (40, 100)]),
    ) {
        let logits = logits(step, len, spread);
        let ends = EosSet::new(ends.into_iter().filter(|id| id % 7 == 0 || *id < len));
        let mask = mask(step, (len + allowed.1) as usize, allowed.0);
        for method in METHODS {
            let key = DrawKey::new(ProblemKey::new(12, 0), 0, step, 0);
            let mask = mask.as_ref();
            let row = RowDraw { logits: &logits, temperature, eos: &ends, mask, method, key };
            let masses = Masses::of(&row).unwrap();
            let found = masses.find(margin);
            let written = Written::of(&row, masses.normalizer(&found));
            let expected = draw_source(&written, method, &key).map(|pick| pick.index as u32);
            if let Some(position) = masses.decide(&found, &written) {
                prop_assert_eq!(Some(position), expected);
            }
            let log_mass = masses.log_mass(&found, &written);
            let total = blocks::log_total(&written);
            let off = (log_mass - total).abs();
            prop_assert!(log_mass == total || off < 1e-12 || off < 1e-14 * masses.scale.shift.abs());
            prop_assert_eq!(masses.log_mass(&masses.sums(), &written).to_bits(), log_mass.to_bits());
            let other = in_other_form(&row);
            let found = other.find(margin);
            prop_assert_eq!(other.log_mass(&found, &written).to_bits(), log_mass.to_bits());
            if let Some(position) = other.decide(&found, &written) {
                prop_assert_eq!(Some(position), expected);
            }
            prop_assert_eq!(masses.draw_written(&written), expected);
            prop_assert_eq!(other.draw_written(&written), expected);
        }
    }
}

#[test]
fn almost_every_ordinary_row_is_decided() {
    let ends = EosSet::new([3, 700]);
    for method in METHODS {
        for step in 0..500 {
            let logits = logits(step, 2000, 2.0);
            let mask = mask(step, 2000, [0, 2][step as usize % 2]);
            let mask = mask.as_ref();
            let key = DrawKey::new(ProblemKey::new(13, 0), 0, step, 0);
            let row = RowDraw { logits: &logits, temperature: 0.8, eos: &ends, mask, method, key };
            let masses = Masses::of(&row).unwrap();
            let found = masses.find(MARGIN);
            let written = Written::of(&row, masses.normalizer(&found));
            assert!(masses.decide(&found, &written).is_some());
        }
    }
}

#[test]
fn what_a_mask_leaves_far_below_the_rest_is_weighed_and_drawn() {
    let logits: Vec<f32> =
        (0..3000).map(|id| if id < 1500 { 0.0 } else { -2000.0 - (id % 7) as f32 }).collect();
    let mask = Bitset::from_ids(3000, 1500..3000);
    for method in METHODS {
        let key = DrawKey::new(ProblemKey::new(15, 0), 0, 1, 0);
        let (eos, mask) = (&EosSet::new([]), Some(&mask));
        let row = RowDraw { logits: &logits, temperature: 1.0, eos, mask, method, key };
        let drawn = draw(&row).unwrap();
        assert!(drawn.token.0 >= 1500);
        let left: f64 = (1500..3000).map(|id| (-f64::from(id % 7)).exp()).sum();
        let expected = -2000.0 + left.ln() - 1500_f64.ln();
        assert!((drawn.log_mass - expected).abs() < 1e-11, "{} {expected}", drawn.log_mass);
        assert_eq!(log_mass(&row), Ok(drawn.log_mass));
    }
}

#[test]
fn a_target_within_the_margin_leaves_the_row_undecided() {
    assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 0.3, 0.01), Some((1, 0.25)));
    assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 0.255, 0.01), None);
    assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 0.495, 0.01), None);
    assert_eq!(crossing([0.25, 0.5, 1.0].into_iter(), 1.0, 0.01), None);
    assert_eq!(crossing([0.25, 0.5].into_iter(), 0.3, f64::NAN), None);
}

#[test]
fn all_simd_levels_agree_bit_for_bit() {
    for step in 0..40 {
        let logits = &logits(step, [5, 256, 1100, 5000][step as usize % 4], 3.0)[..];
        let mask = mask(step, logits.len(), [0, 2, 30][step as usize % 3]);
        let words = mask.as_ref().map(Bitset::words);
        let key = &DrawKey::new(ProblemKey::new(14, 0), 0, step, 0);
        let scale = Scale { inverse: 0.9, shift: 40.0 };
        let bits = |sums: [f64; 2]| sums.map(f64::to_bits);
        let race = |wide: bool| {
            let bar = Bar::new(0.0, scale.shift);
            let mut field = Field { bar, best: f64::NEG_INFINITY, candidates: Vec::new() };
            let race = Race { logits, scale, words, key, ends: &[1], field: &mut field };
            let sums = if wide { simd::run(race) } else { race.run() };
            (bits(sums), field.best.to_bits(), field.candidates)
        };
        assert_eq!(race(true), race(false));
        let parts = |wide: bool| {
            let mut sums = Vec::new();
            let parts = PartSums { logits, scale, words, sums: &mut sums };
            let totals = if wide { simd::run(parts) } else { parts.run() };
            (bits(totals), sums.into_iter().map(f64::to_bits).collect::<Vec<_>>())
        };
        assert_eq!(parts(true), parts(false));
    }
}
