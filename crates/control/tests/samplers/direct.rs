//! Direct sampling, and what holds of every sampler.

use std::num::NonZero;
use std::sync::Arc;

use lockstep_control::potential::{Potential, Run};
use lockstep_control::sampler::{
    Awrs, AwrsOptions, Direct, Estimator, Sampled, TokenSampler, eager_token_sampler, topk_token_sampler,
};
use lockstep_control::testkit::{Tolerance, WeightedSet, assert_properly_weighted};
use lockstep_control::{BoolFsa, Keyed, Product};
use lockstep_sample::{DrawKey, DrawMethod, TokenId, math};

use crate::support::{DEAD, Table, constrained, key, keys, model, numbered, sample, sample_start};

fn contexts(ids: &[&[u32]]) -> Vec<Vec<TokenId>> {
    ids.iter().map(|context| context.iter().map(|id| TokenId(*id)).collect()).collect()
}

#[test]
fn samplers_01_direct_gives_every_sequence_the_same_total_weight() {
    let set = WeightedSet::new("01", &[("0", 3.0), ("00", 2.0), ("1", 1.0)]).potential();
    let sampler = Direct::new(set);
    let mut seen = Vec::new();
    for seed in 0..50 {
        let mut cursor = sampler.open(4, &Run::default()).unwrap();
        let mut totals = vec![cursor.start_weight().unwrap(); 4];
        let mut texts = vec![Vec::new(); 4];
        let mut rows: Vec<usize> = (0..4).collect();
        for step in 1.. {
            let keys: Vec<DrawKey> = rows.iter().map(|row| key(seed, *row as u32, step)).collect();
            let drawn = cursor.sample(&rows, &keys, &mut || {}, &mut Keyed::default());
            let drawn: Vec<Sampled> = drawn.into_iter().map(Result::unwrap).collect();
            let tokens: Vec<TokenId> = drawn.iter().map(|drawn| drawn.token.unwrap()).collect();
            let _ = cursor.advance(&rows, &tokens);
            for (row, drawn) in rows.iter().zip(&drawn) {
                totals[*row] += drawn.logw;
                texts[*row].push(drawn.token.unwrap());
            }
            rows.retain(|row| !texts[*row].last().unwrap().is_eos());
            if rows.is_empty() {
                break;
            }
        }
        assert!(totals.iter().all(|total| (total - 6_f64.ln()).abs() < 1e-12), "{seed}: {totals:?}");
        seen.extend(texts);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "every string is drawn sooner or later");
}

#[test]
fn samplers_01_direct_is_exact_by_enumeration() {
    let set = WeightedSet::new("01", &[("", 0.5), ("0", 3.0), ("00", 2.0), ("1", 1.0)]).potential();
    let sampler = Direct::new(Arc::clone(&set) as Arc<dyn Potential>);
    let contexts_of_set = contexts(&[&[], &[0], &[0, 0], &[1]]);
    assert_properly_weighted(&sampler, &*set, &contexts_of_set, Tolerance::WEIGHTED);
    for temperature in [1.0, 0.7] {
        let (llm, _, product) = constrained("(ab)*|b+a?", temperature, None);
        let proposed = Direct::with_proposal(Arc::clone(&product), Arc::clone(&llm)).unwrap();
        let here = contexts(&[&[], &[0], &[2], &[8, 4], &[0, 0]]);
        assert_properly_weighted(&proposed, &*product, &here, Tolerance::WEIGHTED);
        let twice: Arc<dyn Potential> = Arc::new(Product::new(Arc::clone(&product), llm).unwrap());
        for target in [product, twice] {
            let sampler = Direct::new(Arc::clone(&target));
            let contexts = contexts(&[&[], &[0], &[2], &[8, 4], &[0, 0]]);
            assert_properly_weighted(&sampler, &*target, &contexts, Tolerance::WEIGHTED);
        }
    }
}

#[test]
fn samplers_09_a_dead_row_dies_alone() {
    let log_weights = [0.5_f64, 0.3, 0.1, 0.1].map(f64::ln);
    let vocab = numbered(3);
    let potential = Table::new(&vocab, &log_weights).potential();
    let condition = Table::accepting(&vocab, &[1, 3]).potential();
    let anything: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex(".*").unwrap());
    let (first, second) = (Arc::clone(&potential), Arc::clone(&potential));
    let samplers: [Box<dyn TokenSampler>; 4] = [
        Box::new(Direct::new(Arc::clone(&potential))),
        Box::new(Awrs::new(potential, condition, AwrsOptions::default()).unwrap()),
        Box::new(eager_token_sampler(first, Arc::clone(&anything)).unwrap()),
        Box::new(topk_token_sampler(second, anything, Some(2)).unwrap()),
    ];
    for sampler in samplers {
        let run = Run::default();
        let mut cursor = sampler.open(16, &run).unwrap();
        let keys = keys(9, 16);
        // Nothing follows a token: row 5 is live, and all its weights are -inf.
        let _ = cursor.advance(&[5], &[TokenId(1)]);
        let together = sample(&mut *cursor, &keys, &mut Keyed::default());
        for (i, drawn) in together.iter().enumerate() {
            let alone = sample_start(&*sampler, &keys[i..=i]).remove(0);
            if i == 5 {
                assert_eq!((drawn.token, drawn.logw), (None, DEAD));
            } else {
                assert_eq!(*drawn, alone, "{i}");
            }
        }
    }
}

#[test]
fn samplers_28_rows_draw_alike_together_alone_and_on_any_threads() {
    let keys = keys(28, 16);
    let mut before: Option<Vec<Vec<Sampled>>> = None;
    for threads in [1, 8] {
        let (llm, constraint, product) = constrained("(ab)*|b+a?", 0.7, NonZero::new(threads));
        let bytes: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex("(ab)*|b+a?").unwrap());
        let geometric = AwrsOptions { estimator: Estimator::Geometric, ..AwrsOptions::default() };
        let (first, second) = (Arc::clone(&llm), Arc::clone(&llm));
        let samplers: [Box<dyn TokenSampler>; 5] = [
            Box::new(Direct::new(product)),
            Box::new(Awrs::new(Arc::clone(&llm), Arc::clone(&constraint), AwrsOptions::default()).unwrap()),
            Box::new(Awrs::new(llm, constraint, geometric).unwrap()),
            Box::new(eager_token_sampler(first, Arc::clone(&bytes)).unwrap()),
            Box::new(topk_token_sampler(second, bytes, Some(2)).unwrap()),
        ];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let together: Vec<Vec<Sampled>> =
            samplers.iter().map(|sampler| pool.install(|| sample_start(&**sampler, &keys))).collect();
        for (sampler, together) in samplers.iter().zip(&together) {
            for (drawn, key) in together.iter().zip(&keys) {
                assert_eq!(sample_start(&**sampler, std::slice::from_ref(key)), [*drawn]);
            }
            assert!(together.iter().any(|drawn| drawn.token != together[0].token));
        }
        if let Some(before) = before.replace(together.clone()) {
            assert_eq!(before, together);
        }
    }
}

#[test]
fn samplers_30_engine_draw_row_draw_and_reference_agree() {
    const T: f64 = 0.7;
    let (_, constraint, product) = constrained("(ab)*|b+a?", T, None);
    let (script, vocab) = model();
    let sampler = Direct::new(Arc::clone(&product));
    for context in [&[][..], &[0], &[2], &[8, 4], &[2, 0]] {
        let context: Vec<TokenId> = context.iter().map(|id| TokenId(*id)).collect();
        let run = Run::default();
        let mut oracle = product.open(1, &run).unwrap();
        let mut mask = constraint.open(1, &run).unwrap();
        assert!(oracle.draws(), "the engine draws");
        for token in &context {
            let _ = oracle.advance(&[0], &[&[*token]]);
            let _ = mask.advance(&[0], &[&[*token]]);
        }
        let row = oracle.logw_next(&[0]).remove(0).unwrap();
        let mask = mask.logw_next(&[0]).remove(0).unwrap();

        // The reference: softmax at T over the real ids, the ends folded, then the mask.
        let mut history = vec![TokenId(6)];
        history.extend(&context);
        let logits: Vec<f64> = script(&history).into_iter().map(|logit| f64::from(logit) / T).collect();
        let log_z = math::log_sum_exp(&logits);
        let weight = |position: usize| {
            let own =
                if position == 3 { math::log_sum_exp(&[logits[3], logits[7]]) } else { logits[position] };
            if position == 7 || mask.at(position) == DEAD { DEAD } else { own - log_z }
        };
        let reference: Vec<f64> = (0..vocab.row_len()).map(weight).collect();
        let log_mass = math::log_sum_exp(&reference);
        assert!(log_mass > DEAD);

        for method in [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial] {
            let keys = keys(30, 64);
            let mut cursor = sampler.open(64, &run).unwrap();
            for token in &context {
                let _ = cursor.advance(&(0..64).collect::<Vec<_>>(), &[*token; 64]);
            }
            let drawn = sample(&mut *cursor, &keys, &mut Keyed { method });
            for (drawn, key) in drawn.into_iter().zip(&keys) {
                let same = row.draw(vocab.eos_position(), None, method, key).unwrap();
                assert_eq!(drawn.token, Some(same.token));
                let logp = drawn.logp.unwrap();
                assert_eq!(drawn.logw.to_bits(), same.log_mass.to_bits());
                assert_eq!(logp.to_bits(), same.logp.to_bits());
                let expected = reference[vocab.position_of(same.token)] - log_mass;
                assert!((drawn.logw - log_mass).abs() < 1e-12, "{drawn:?} {log_mass}");
                assert!((logp - expected).abs() < 1e-12, "{drawn:?} {expected}");
            }
        }
    }
}

#[test]
fn samplers_30_under_several_masks_the_product_row_draws_as_the_engine_does() {
    let (_, _, product) = constrained("(ab)*|b+a?", 0.7, None);
    let (_, also, _) = constrained("a.*|b?", 0.7, None);
    let product: Arc<dyn Potential> = Arc::new(Product::new(product, also).unwrap());
    let eos = product.vocab().eos_position();
    let run = Run::default();
    let row = product.open(1, &run).unwrap().logw_next(&[0]).remove(0).unwrap();
    for method in [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial] {
        let keys = keys(31, 64);
        let mut cursor = Direct::new(Arc::clone(&product)).open(64, &run).unwrap();
        for (drawn, key) in sample(&mut *cursor, &keys, &mut Keyed { method }).into_iter().zip(&keys) {
            let same = row.draw(eos, None, method, key).unwrap();
            assert_eq!(drawn.token, Some(same.token));
            assert_eq!(drawn.logw.to_bits(), same.log_mass.to_bits());
            assert_eq!(drawn.logp.unwrap().to_bits(), same.logp.to_bits());
            assert_eq!(row.log_total().to_bits(), same.log_mass.to_bits());
        }
    }
}
