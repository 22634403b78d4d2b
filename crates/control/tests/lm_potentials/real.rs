//! The default model's tokenizer.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use lockstep_control::potential::{Potential, Run};
use lockstep_control::{BoolFsa, Coerced};
use lockstep_engine::TokenId;
use lockstep_engine::text::Tokenizer;
use lockstep_native::gguf::{Gguf, tokenizer_spec};

pub(crate) static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = var("LOCKSTEP_MODEL").unwrap_or_else(|| {
        let cache = var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
        cache.expect("HOME is set").join("lockstep/models/smollm2-135m.gguf")
    });
    assert!(path.is_file(), "{} is missing: run `make model`", path.display());
    Tokenizer::new(tokenizer_spec(&Gguf::open(&path).unwrap()).unwrap()).unwrap()
});

#[test]
fn potentials_18_a_special_token_matches_nothing_but_its_spelled_out_pieces_do() {
    let vocab = TOKENIZER.vocabulary();
    let special = (0..).map(TokenId).take(vocab.len());
    let special = special.filter(|id| vocab.text_of(*id) == b"<|im_start|>").collect::<Vec<_>>();
    let [special] = special[..] else { panic!("one token has this text: {special:?}") };
    assert!(vocab.is_special(special));
    let any: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex(".*").unwrap());
    let any = Coerced::new(any, Arc::clone(vocab)).unwrap();
    let pieces = TOKENIZER.encode("<|im_start|>", false).unwrap();
    assert!(pieces.len() > 1 && !pieces.contains(&special));
    let mut cursor = any.open(2, &Run::default()).unwrap();
    for piece in &pieces {
        let row = cursor.logw_next(&[0]).remove(0).unwrap();
        assert_eq!((row.at(special.index()), row.at(piece.index())), (f64::NEG_INFINITY, 0.0));
        let _ = cursor.advance(&[0], &[&[*piece]]);
    }
    let _ = cursor.advance(&[1], &[&[special]]);
    let scores: Vec<f64> = cursor.score(&[0, 1]).into_iter().map(Result::unwrap).collect();
    assert_eq!(scores, [0.0, f64::NEG_INFINITY]);
}
