//! Potentials given as functions of whole sequences.

use lockstep_control::potential::{Claims, Run};
use lockstep_engine::vocab::{TokenEntry, Vocabulary};
use lockstep_sample::EosSet;
use tracing::Level;

use crate::listener::Listener;
use crate::support::{function, ids};

#[test]
fn the_first_whole_row_over_many_tokens_logs_advice() {
    for (n, expected) in [(1000, vec![]), (1001, vec![Level::WARN])] {
        let tokens = (0..n).map(|id: u32| TokenEntry { bytes: id.to_be_bytes().to_vec(), special: false });
        let vocab = Vocabulary::new(tokens.collect(), EosSet::new([])).unwrap();
        let potential = function(&vocab, Claims::default(), |context, _| -(context.len() as f64));
        let listener = Listener::default();
        tracing::subscriber::with_default(listener.clone(), || {
            let mut cursor = potential.open(2, &Run::default()).unwrap();
            let _ = cursor.probe(&[0], vec![ids(&[3, 4])]);
            assert!(listener.said().is_empty(), "few tokens are not dear");
            let _ = cursor.logw_next(&[0, 1]);
            let _ = potential.open(1, &Run::default()).unwrap().logw_next(&[0]);
        });
        assert_eq!(listener.said(), expected);
    }
}
