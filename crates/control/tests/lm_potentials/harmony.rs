//! A base potential inside the channels of a Harmony response.

use std::sync::Arc;

use lockstep_control::potential::{Claims, Harmony, Potential, Run};
use lockstep_control::testkit::{
    Tolerance, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse,
};
use lockstep_control::{BoolFsa, Coerced, ErrorKind};
use lockstep_engine::TokenId;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{EosSet, math};

use crate::support::{DEAD, and_strangers, assert_equal, function, ids, vocabulary};

const TEXTS: [&str; 15] = [
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|start|>",
    "<|return|>",
    "<|constrain|>",
    "a",
    "b",
    "ab",
    "analysis",
    "final",
    "comment",
    "ary",
    " to=x",
    "<|end|>",
];
const SPECIAL: [u32; 6] = [0, 1, 2, 3, 4, 5];
const STRINGS: [(&str, f64); 4] = [("ab", 2.0), ("aab", 1.0), ("b", 0.5), ("", 0.25)];

fn tokens() -> Arc<Vocabulary> {
    vocabulary(&TEXTS, &SPECIAL, &[4])
}

/// The ids of a response written out: the longest token first, special ones by their names.
fn response(text: &str) -> Vec<TokenId> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let fits = |id: &usize| rest.starts_with(TEXTS[*id]);
        let best = (0..14).filter(fits).max_by_key(|id| TEXTS[*id].len()).unwrap();
        tokens.push(TokenId(best as u32));
        rest = &rest[TEXTS[best].len()..];
    }
    tokens
}

/// A weighted language over the tokens' texts, of total weight `Σ w`; special tokens weigh nothing.
fn language(vocab: &Arc<Vocabulary>) -> Arc<dyn Potential> {
    let claims = Claims { monotone: true, ..Claims::default() };
    let tables = Arc::clone(vocab);
    function(vocab, claims, move |context, ended| {
        if context.iter().any(|token| tables.is_special(*token)) {
            return DEAD;
        }
        let text = context.iter().flat_map(|token| tables.bytes_of(*token)).copied().collect::<Vec<u8>>();
        let counts = |(string, _): &&(&str, f64)| {
            if ended { string.as_bytes() == text } else { string.as_bytes().starts_with(&text) }
        };
        math::ln(STRINGS.iter().filter(counts).map(|(_, weight)| weight).sum())
    })
}

/// The potential by definition: the response cut into messages, each weighed as a whole.
fn by_definition(base: &Arc<dyn Potential>, constrained: &'static [&'static str]) -> Arc<dyn Potential> {
    let (vocab, base) = (Arc::clone(base.vocab()), Arc::clone(base));
    let tables = Arc::clone(&vocab);
    function(&vocab, Claims::default(), move |context, ended| {
        let weigh = |content: &[TokenId], ended: bool| {
            let mut cursor = base.open(1, &Run::default()).unwrap();
            let _ = cursor.advance(&[0], &[content]);
            if ended {
                cursor.complete(&[0]).remove(0).unwrap()
            } else {
                cursor.score(&[0]).remove(0).unwrap()
            }
        };
        let (mut header, mut content): (Option<String>, Option<(bool, Vec<TokenId>)>) = (None, None);
        let mut sum = 0.0;
        for &token in context {
            match (token.0, &mut content, &mut header) {
                (2, Some((false, inside)), _) => {
                    sum += weigh(inside, true);
                    content = None;
                }
                (_, Some((_, inside)), _) => inside.push(token),
                (0, ..) => header = Some(String::new()),
                (1, None, Some(name)) => {
                    let name = name.split_whitespace().next().unwrap_or_default();
                    if constrained.contains(&name) {
                        content = Some((name == "final", Vec::new()));
                    }
                    header = None;
                }
                (1..=3, ..) => header = None,
                (_, None, Some(name)) => {
                    name.push_str(if tables.is_special(token) { " " } else { TEXTS[token.index()] });
                }
                _ => {}
            }
        }
        match content {
            Some((false, _)) if ended => DEAD,
            Some((_, inside)) => sum + weigh(&inside, ended),
            None => sum,
        }
    })
}

const RESPONSES: [&str; 14] = [
    "",
    "ab",
    "<|channel|>analysis",
    "<|channel|>analysis<|message|>",
    "<|channel|>analysis<|message|>aab",
    "<|channel|>analysis<|message|>ab<|end|>",
    "<|channel|>analysis<|message|>b<|end|><|start|>a<|channel|>final<|message|>aa",
    "<|channel|>analysis<|message|><|end|><|start|>a<|channel|>analysis<|message|>ab<|end|>",
    "<|channel|>commentary to=x<|constrain|>a<|message|>aab<|end|>b",
    "<|channel|>comment<|message|>bbb",
    "<|channel|>final<|message|>ab<|end|>",
    "<|channel|>final<|message|>ab<|channel|>",
    "<|message|>bb<|end|>",
    "<|channel|>analysis<|message|>bb",
];

#[test]
fn messages_are_weighed_as_cut_out_whole() {
    let vocab = tokens();
    let base = language(&vocab);
    let contexts: Vec<Vec<TokenId>> = RESPONSES.map(response).to_vec();
    for constrained in [&["analysis"][..], &["final"], &["analysis", "commentary", "final"]] {
        let harmony = Harmony::new(Arc::clone(&base), &vocab, constrained).unwrap();
        let reference = by_definition(&base, constrained);
        assert_equal(&harmony, &*reference, &contexts, Tolerance::WEIGHTED);
        assert_contract(&harmony, &contexts, Tolerance::WEIGHTED);
        assert_sparse(&harmony, &contexts);
        let symbols = and_strangers(&response("<|channel|>analysis<|message|>ab<|end|>final"), &vocab);
        for seed in 0..8 {
            assert_cursor(&harmony, &symbols, 60, seed, Tolerance::WEIGHTED);
        }
        assert_soundness(&harmony, &response("<|channel|>final<|message|>b"), 4);
        assert_eq!(harmony.claims(), Claims::default(), "the base begins above 1");
    }
}

#[test]
fn a_message_ends_where_the_base_does() {
    let vocab = tokens();
    let harmony = Harmony::new(language(&vocab), &vocab, &["analysis", "final"]).unwrap();
    let mut cursor = harmony.open(2, &Run::default()).unwrap();
    let (analysis, last) =
        (response("<|channel|>analysis<|message|>ab"), response("<|channel|>final<|message|>ab"));
    let _ = cursor.advance(&[0, 1], &[&analysis, &last]);
    let rows: Vec<_> = cursor.logw_next(&[0, 1]).into_iter().map(Result::unwrap).collect();
    let (end, eos) = (2, vocab.eos_position());
    assert_eq!([rows[0].at(end), rows[0].at(eos)], [0.0, DEAD]);
    assert_eq!([rows[1].at(end), rows[1].at(eos)], [DEAD, 0.0]);
    assert_eq!(cursor.complete(&[0]).remove(0).unwrap(), DEAD);
    // The text of the control token is content like any other.
    let spelled = [analysis.as_slice(), &ids(&[14])].concat();
    let mut cursor = harmony.open(1, &Run::default()).unwrap();
    let _ = cursor.advance(&[0], &[&spelled]);
    assert_eq!(cursor.score(&[0]).remove(0).unwrap(), DEAD);
}

#[test]
fn a_boolean_base_stays_boolean_and_masks() {
    let vocab = tokens();
    let fsa: Arc<dyn Potential> = Arc::new(BoolFsa::from_regex("(ab)*").unwrap());
    let base: Arc<dyn Potential> = Arc::new(Coerced::new(fsa, Arc::clone(&vocab)).unwrap());
    let harmony = Harmony::new(Arc::clone(&base), &vocab, &["analysis", "commentary"]).unwrap();
    assert_eq!(harmony.claims(), base.claims());
    let contexts: Vec<Vec<TokenId>> = RESPONSES.map(response).to_vec();
    assert_contract(&harmony, &contexts, Tolerance::EXACT);
    assert_equal(&harmony, &*by_definition(&base, &["analysis", "commentary"]), &contexts, Tolerance::EXACT);
    assert_claims(&harmony, &response("<|channel|>analysis<|message|>ab<|end|>b"), 4, 3, Tolerance::EXACT);
    let rows: Vec<usize> = (0..contexts.len()).collect();
    let spans: Vec<&[TokenId]> = contexts.iter().map(Vec::as_slice).collect();
    let mut cursor = harmony.open(contexts.len(), &Run::default()).unwrap();
    let _ = cursor.advance(&rows, &spans);
    let masks = cursor.masks(&rows).unwrap();
    for ((mask, row), context) in masks.iter().zip(cursor.logw_next(&rows)).zip(&contexts) {
        let row = row.unwrap();
        let live: Vec<usize> = (0..vocab.row_len()).filter(|at| row.at(*at) == 0.0).collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), live, "{context:?}");
    }
    assert!(
        Harmony::new(language(&vocab), &vocab, &["final"])
            .unwrap()
            .open(1, &Run::default())
            .unwrap()
            .masks(&[0])
            .is_none()
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let vocab = tokens();
    let base = language(&vocab);
    let refusal = |base: &Arc<dyn Potential>, tokens: &Vocabulary, channels: &[&str]| {
        let error = Harmony::new(Arc::clone(base), tokens, channels).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = refusal(&base, &vocab, &[]);
    assert_eq!(
        (kind, text.as_str()),
        (
            ErrorKind::Argument,
            "constrained_channels: is empty: name some of `analysis`, `commentary`, `final`"
        )
    );
    let (_, text) = refusal(&base, &vocab, &["final", "thoughts"]);
    assert!(text.starts_with("constrained_channels[1]: `thoughts` is no channel"), "{text}");
    let (kind, text) = refusal(&base, &vocabulary(&TEXTS[..14], &SPECIAL, &[4]), &["final"]);
    assert!(kind == ErrorKind::Vocabulary && text.starts_with("base: reads other tokens"), "{text}");
    let plain = vocabulary(&["a", "<|channel|>"], &[1], &[]);
    let (_, text) = refusal(&language_without_strings(&plain), &plain, &["final"]);
    assert!(text.contains("has no special token `<|message|>`"), "{text}");
    let ending = vocab.with_eos(EosSet::new([2, 4])).unwrap();
    let (_, text) = refusal(&language(&ending), &vocab, &["final"]);
    assert!(text.contains("`<|end|>` ends sequences"), "{text}");
}

fn language_without_strings(vocab: &Arc<Vocabulary>) -> Arc<dyn Potential> {
    function(vocab, Claims::default(), |_, _| 0.0)
}
