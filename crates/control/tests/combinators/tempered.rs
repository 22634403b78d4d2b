//! Powers of potentials.

use std::sync::Arc;

use lockstep_control::potential::{Claims, Potential, Run};
use lockstep_control::testkit::WeightedSet;
use lockstep_control::{BoolFsa, Coerced, PotentialExt, Product};

use super::{check, check_against, fsa, llm, tokens, weight};
use crate::support::{DEAD, function};

#[test]
fn potentials_25_powers_keep_the_dead_dead_and_batches_agree() {
    let set = WeightedSet::new("ab", &[("", 0.5), ("ab", 3.0), ("ba", 1.0), ("b", 2.0)]).potential();
    let vocab = tokens();
    let model = llm(&vocab).product(fsa("(ab)*a?", &vocab)).unwrap().shared();
    for beta in [0.5, 0.0, -1.0, 2.0] {
        for inner in [set.clone() as Arc<dyn Potential>, Arc::clone(&model)] {
            let tempered = inner.clone().tempered(beta).unwrap();
            check(&tempered, 2);
            check_against(&tempered, move |context, ended| match weight(&*inner, context, ended) {
                DEAD => DEAD,
                weight => beta * weight,
            });
        }
    }
}

#[test]
fn claims_hold_for_the_power_that_it_is() {
    let claims = |inner: Arc<dyn Potential>, beta| inner.tempered(beta).unwrap().claims();
    let set: Arc<dyn Potential> = WeightedSet::new("ab", &[("", 0.5), ("ab", 3.0)]).potential();
    let tight = Claims { tight: true, ..Claims::default() };
    assert_eq!(claims(set.clone(), 0.5), Claims { monotone: true, ..tight });
    assert_eq!(claims(set.clone(), -1.0), tight);
    assert_eq!(claims(set.clone(), 0.0), Claims { monotone: true, boolean: true, ..tight });
    assert_eq!(claims(set.clone(), 1.0), set.claims());
    let fsa: Arc<dyn Potential> = BoolFsa::from_regex("a|b").unwrap().shared();
    assert_eq!(claims(fsa.clone(), -3.0), fsa.claims());
    for beta in [f64::NAN, f64::INFINITY] {
        let refused = set.clone().tempered(beta).unwrap_err();
        assert!(refused.to_string().starts_with("beta: "), "{refused}");
    }
}

#[test]
fn potentials_24_terminal_only_stays_so_under_every_combinator() {
    let vocab = tokens();
    let claims = Claims { terminal_only: true, ..Claims::default() };
    let critic = || function(&vocab, claims, |context, ended| if ended { context.len() as f64 } else { 0.0 });
    let tempered = critic().tempered(-0.5).unwrap();
    let twice = tempered.clone().product(critic()).unwrap();
    let mean = lockstep_control::Ensemble::new(
        tempered.clone().shared(),
        critic(),
        lockstep_control::EnsembleOp::HARMONIC,
        0.25,
    )
    .unwrap();
    for potential in [&tempered as &dyn Potential, &twice, &mean] {
        assert!(potential.claims().terminal_only);
        check(potential, 0);
    }
    assert!(!critic().normalize().claims().terminal_only);
}

#[test]
fn a_boolean_potential_keeps_masks_and_automaton_under_any_power() {
    let vocab = tokens();
    let tempered = BoolFsa::from_regex("(ab)*").unwrap().tempered(-2.0).unwrap();
    assert!(tempered.automaton().is_some());
    let coerced = Coerced::new(tempered.shared(), Arc::clone(&vocab)).unwrap();
    let run = Run::default();
    assert!(coerced.claims().tight && coerced.open(1, &run).unwrap().masks(&[0]).is_some());
    // The model draws under the mask; a power of the model itself is another law.
    let product = Product::new(llm(&vocab).shared(), coerced.tempered(7.0).unwrap().shared()).unwrap();
    let mut cursor = product.open(1, &run).unwrap();
    assert!(cursor.draws() && cursor.masks(&[0]).is_none());
    assert!(!product.tempered(0.5).unwrap().open(1, &run).unwrap().draws());
    assert!(llm(&vocab).tempered(1.0).unwrap().open(1, &run).unwrap().draws());
}
