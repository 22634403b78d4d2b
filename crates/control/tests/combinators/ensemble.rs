//! Means and extremes of two potentials.

use std::sync::Arc;

use lockstep_control::potential::{Claims, Potential, Run};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{Ensemble, EnsembleOp, ErrorKind, PotentialExt};
use lockstep_sample::TokenId;

use super::{check, check_against, fsa, llm, tokens, weight};
use crate::support::{DEAD, function, ids};

const OPS: [&str; 7] = ["sum", "prod", "harmonic", "min", "max", "2.5", "-0.3"];

fn ensemble(first: &Arc<dyn Potential>, second: &Arc<dyn Potential>, op: &str, a: f64) -> Ensemble {
    Ensemble::new(Arc::clone(first), Arc::clone(second), op.parse().unwrap(), a).unwrap()
}

/// The operations of the specification, on weights.
fn by_definition(op: &str, x: f64, y: f64, a: f64) -> f64 {
    let power = |p: f64| match x == DEAD || y == DEAD {
        true if p < 0.0 => DEAD,
        _ => (a * (p * x).exp() + (1.0 - a) * (p * y).exp()).ln() / p,
    };
    let times = |c: f64, w: f64| if c == 0.0 { 0.0 } else { c * w };
    let towards = |extreme: f64| match a <= 0.5 {
        true => times(1.0 - 2.0 * a, x) + times(2.0 * a, extreme),
        false => times(2.0 * a - 1.0, y) + times(2.0 * (1.0 - a), extreme),
    };
    match op {
        "sum" => power(1.0),
        "prod" => a * x + (1.0 - a) * y,
        "harmonic" => power(-1.0),
        "min" => towards(x.min(y)),
        "max" => towards(x.max(y)),
        p => power(p.parse().unwrap()),
    }
}

#[test]
fn potentials_26_the_mass_of_the_ensembles_of_two_languages() {
    const P: [(&str, f64); 7] =
        [("abc", 0.2), ("aba", 0.2), ("bbc", 0.2), ("bac", 0.1), ("ccb", 0.1), ("aca", 0.1), ("cba", 0.1)];
    let q = P.map(|(text, p)| match text {
        "bbc" => (text, 0.25),
        "cba" => (text, 0.05),
        _ => (text, p),
    });
    let first: Arc<dyn Potential> = WeightedSet::new("abc", &P).potential();
    let second: Arc<dyn Potential> = WeightedSet::new("abc", &q).potential();
    let spell = |text: &str| -> Vec<TokenId> {
        text.bytes().map(|byte| first.vocab().find(&[byte]).unwrap()).collect()
    };
    for (op, mass) in [
        ("sum", 1.0),
        ("prod", 0.995_369_332_6),
        ("harmonic", 0.991_381_668_9),
        ("min", 0.965_975_395_5),
        ("max", 1.028_652_526_0),
        ("2.5", 1.007_574_386_9),
    ] {
        let joint = ensemble(&first, &second, op, 0.3);
        let total: f64 = P.iter().map(|(text, _)| weight(&joint, &spell(text), true).exp()).sum();
        assert!((total - mass).abs() < 1e-10, "{op}: {total}");
        check(&joint, 3);
    }
    // The maximum at a = ½ of (-inf, -1).
    let vocab = first.vocab();
    let dead = function(vocab, Claims::default(), |context, _| if context.is_empty() { 0.0 } else { DEAD });
    let live = function(vocab, Claims::default(), |_, _| -1.0);
    assert_eq!(weight(&ensemble(&dead, &live, "max", 0.5), &spell("a"), false), -1.0);
}

#[test]
fn every_operation_keeps_the_contract_and_is_as_defined() {
    // Each has strings that the other lacks, so that components die alone.
    let set = |strings: &[(&str, f64)]| -> Arc<dyn Potential> { WeightedSet::new("ab", strings).potential() };
    let first = set(&[("", 0.3), ("a", 2.0), ("ab", 1.0), ("bb", 0.1)]);
    let second = set(&[("", 0.1), ("aa", 1.0), ("ab", 5.0), ("b", 1e-3)]);
    for op in OPS {
        for a in [0.25, 0.5, 0.8] {
            let joint = ensemble(&first, &second, op, a);
            check(&joint, 2);
            let (first, second) = (Arc::clone(&first), Arc::clone(&second));
            check_against(&joint, move |context, ended| {
                by_definition(op, weight(&*first, context, ended), weight(&*second, context, ended), a)
            });
        }
    }
}

#[test]
fn models_and_constraints_join() {
    let vocab = tokens();
    let (model, other): (Arc<dyn Potential>, Arc<dyn Potential>) =
        (llm(&vocab).shared(), llm(&vocab).shared());
    let constraint = fsa("(ab)*a?", &vocab);
    for (op, second) in [("sum", &constraint), ("prod", &constraint), ("sum", &other), ("-1", &other)] {
        let joint = ensemble(&model, second, op, 0.4);
        check(&joint, 1);
        let (first, second) = (Arc::clone(&model), Arc::clone(second));
        check_against(&joint, move |context, ended| {
            by_definition(op, weight(&*first, context, ended), weight(&*second, context, ended), 0.4)
        });
    }
}

#[test]
fn boolean_ensembles_keep_masks() {
    let vocab = tokens();
    let (first, second) = (fsa("(ab)*a?", &vocab), fsa("a(b|ba)*", &vocab));
    let run = Run::default();
    for (op, a, tight) in [
        ("min", 0.5, false),
        ("prod", 0.3, false),
        ("-2", 0.3, false),
        ("max", 0.5, true),
        ("max", 0.2, true),
        ("max", 0.7, true),
    ] {
        let joint = ensemble(&first, &second, op, a);
        assert_eq!(
            joint.claims(),
            Claims { boolean: true, tight, monotone: true, ..Claims::default() },
            "{op} {a}"
        );
        check(&joint, 2);
        let mut cursor = joint.open(3, &run).unwrap();
        let _ = cursor.advance(&[0, 1, 2], &[&[], &ids(&[0]), &ids(&[2, 3])]);
        let masks = cursor.masks(&[0, 1, 2]).unwrap();
        for (row, mask) in cursor.logw_next(&[0, 1, 2]).into_iter().zip(masks) {
            let row = row.unwrap();
            assert!((0..vocab.row_len()).all(|at| mask.contains(at) == (row.at(at) == 0.0)), "{op} {a}");
        }
    }
    let mean = ensemble(&first, &second, "sum", 0.5);
    assert!(!mean.claims().boolean && mean.open(1, &run).unwrap().masks(&[0]).is_none());
}

#[test]
fn components_are_told_apart_and_errors_name_the_field() {
    let vocab = tokens();
    let (model, constraint) = (llm(&vocab).shared(), fsa("(ab)*", &vocab));
    let joint = ensemble(&model, &constraint, "sum", 0.5);
    let run = Run::default();
    for context in [ids(&[0]), ids(&[1]), vec![TokenId(2), TokenId::EOS]] {
        let (x, y) = joint.component_logws(&context, &run).unwrap();
        assert_eq!((x, y), (weight(&*model, &context, false), weight(&*constraint, &context, false)));
    }
    for a in [0.0, 1.0, -1.0, f64::NAN] {
        let refused = Ensemble::new(model.clone(), constraint.clone(), EnsembleOp::SUM, a).unwrap_err();
        assert!(refused.to_string().starts_with("a: "), "{refused}");
    }
    let refused = Ensemble::new(model.clone(), constraint, EnsembleOp::Power(f64::NAN), 0.5).unwrap_err();
    assert!(refused.to_string().starts_with("op: "), "{refused}");
    let other = WeightedSet::new("ab", &[("a", 1.0)]).potential();
    let refused = Ensemble::new(model, other, EnsembleOp::Min, 0.5).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Vocabulary);
}
