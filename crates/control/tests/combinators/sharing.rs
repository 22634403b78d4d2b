//! What wrappers share.

use std::sync::Arc;

use lockstep_control::potential::{Potential, Run};
use lockstep_control::{BoolFsa, Coerced, Ensemble, EnsembleOp, PotentialExt};
use lockstep_sample::{Bitset, EosSet, TokenId};

use super::{fsa, llm, tokens};
use crate::support::byte_set;

#[test]
fn potentials_31_a_hundred_wrappers_over_one_vocabulary_share_its_tables() {
    let vocab = tokens();
    let trie = Arc::clone(vocab.trie());
    let model = llm(&vocab);
    let wrappers: Vec<Arc<dyn Potential>> = (0..100)
        .map(|i| match i % 6 {
            0 => fsa("(ab)*", &vocab),
            1 => byte_set(&[("ab", 1.0)]).coerce(Arc::clone(&vocab)).unwrap().shared(),
            2 => model.spawn(&[TokenId(i % 4)]).unwrap().shared(),
            3 => model.clone().product(fsa("a*", &vocab)).unwrap().tempered(0.5).unwrap().shared(),
            4 => model.clone().tempered(0.5).unwrap().normalize().shared(),
            _ => Ensemble::new(model.clone().shared(), fsa("b*", &vocab), EnsembleOp::SUM, 0.5)
                .unwrap()
                .shared(),
        })
        .collect();
    for wrapper in &wrappers {
        assert!(Arc::ptr_eq(wrapper.vocab(), &vocab));
        assert!(Arc::ptr_eq(wrapper.vocab().trie(), &trie));
    }
    // Another end-of-sequence set takes no special token out of the trie, and no copy of the tables.
    let other = vocab.with_eos(EosSet::new([7])).unwrap();
    let wrapper = fsa("(ab)*", &other);
    assert!(wrapper.vocab().same_tokens(&vocab) && Arc::ptr_eq(wrapper.vocab().trie(), &trie));
    // Nobody keeps the tables behind the wrappers' backs.
    let held = Arc::strong_count(&vocab);
    drop((wrappers, wrapper));
    assert!(
        Arc::strong_count(&vocab) < held && Arc::strong_count(&vocab) <= 3,
        "{}",
        Arc::strong_count(&vocab)
    );
}

#[test]
fn separately_built_constraints_share_automata_and_masks() {
    let vocab = tokens();
    let build = |vocab: &Arc<_>| {
        let fsa = BoolFsa::from_regex("(ab?){1,7}").unwrap();
        let dfa = Arc::clone(fsa.automaton().unwrap());
        (dfa, fsa.coerce(Arc::clone(vocab)).unwrap())
    };
    let mask = |coerced: &Coerced| -> Arc<Bitset> {
        let mut cursor = coerced.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[&[TokenId(0)]]);
        cursor.masks(&[0]).unwrap().remove(0)
    };
    let ((first_dfa, first), (dfa, second)) = (build(&vocab), build(&vocab));
    assert!(Arc::ptr_eq(&first_dfa, &dfa));
    assert!(Arc::ptr_eq(&mask(&first), &mask(&second)));
    // A vocabulary with the same tokens and the end elsewhere has masks of its own.
    let other = vocab.with_eos(EosSet::new([7])).unwrap();
    assert!(Arc::ptr_eq(other.trie(), vocab.trie()) && other.eos_position() != vocab.eos_position());
    let (_, elsewhere) = build(&other);
    assert_ne!(mask(&elsewhere), mask(&first));
    // As has who wants a cache to itself. None at all gives the same mask every time.
    for bytes in [0, 1 << 20] {
        let alone = first.clone().with_mask_bytes(bytes);
        assert!(!Arc::ptr_eq(&mask(&alone), &mask(&first)));
        assert_eq!(mask(&alone), mask(&first));
        assert_eq!(Arc::ptr_eq(&mask(&alone), &mask(&alone)), bytes > 0);
    }
}
