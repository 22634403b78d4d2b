//! Canonical tokenisation, against merging by brute force.

use std::collections::HashMap;
use std::sync::Arc;

use lockstep_control::potential::{CanonicalTokenization, Claims, Potential, Run};
use lockstep_control::testkit::{
    Tolerance, assert_claims, assert_contract, assert_cursor, assert_soundness, assert_sparse, words,
};
use lockstep_control::{ErrorKind, Product, PromptedLlm};
use lockstep_engine::TokenId;
use lockstep_engine::testkit::ScriptedModel;
use lockstep_engine::text::{Tokenizer, TokenizerSpec};
use lockstep_sample::{DrawKey, EosSet, ProblemKey};

use crate::real::TOKENIZER;
use crate::support::{and_strangers, assert_equal, function, ids, start};

/// Byte-level BPE without a pre-tokenizer: merge the lowest rank, the leftmost of equals, until
/// nothing merges.
struct Merging<'a> {
    tokenizer: &'a Tokenizer,
    ranks: HashMap<(TokenId, TokenId), (usize, TokenId)>,
}

impl<'a> Merging<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        let ranks = tokenizer.merges().iter().enumerate();
        let ranks = ranks.map(|(rank, merge)| ((merge.left, merge.right), (rank, merge.merged))).collect();
        Self { tokenizer, ranks }
    }

    fn encode(&self, bytes: &[u8]) -> Option<Vec<TokenId>> {
        let mut tokens: Vec<TokenId> =
            bytes.iter().map(|byte| self.tokenizer.byte(*byte)).collect::<Option<_>>()?;
        loop {
            let ranked = tokens.windows(2).enumerate();
            let ranked = ranked.filter_map(|(at, pair)| Some((self.ranks.get(&(pair[0], pair[1]))?, at)));
            let Some(((_, merged), at)) = ranked.min_by_key(|((rank, _), at)| (*rank, *at)) else {
                return Some(tokens);
            };
            tokens.splice(at..at + 2, [*merged]);
        }
    }

    fn reproduces(&self, u: TokenId, v: TokenId) -> bool {
        let bytes = [u, v].map(|token| self.tokenizer.vocabulary().bytes_of(token)).concat();
        self.encode(&bytes).is_some_and(|tokens| tokens == [u, v])
    }
}

/// All bytes as tokens of one byte, in byte order, then ordinary tokens and then `more` with types.
fn tokenizer(ordinary: &[&str], more: &[(&str, i32)], merges: &[&str]) -> Tokenizer {
    // The 188 printable bytes stand for themselves in the byte-level alphabet.
    let printable =
        (b'!'..=b'~').chain(0xa1..=0xac).chain(0xae..=0xff).map(|byte| (char::from(byte).to_string(), 1));
    let ordinary = ordinary.iter().map(|text| ((*text).to_owned(), 1));
    let more = more.iter().map(|(text, ty)| ((*text).to_owned(), *ty));
    let space = [("Ġ".to_owned(), 1)];
    let (tokens, token_types): (Vec<String>, Vec<i32>) =
        printable.chain(space).chain(ordinary).chain(more).unzip();
    let eos = token_types.iter().zip(0..).filter(|(ty, _)| **ty == 3).map(|(_, id)| id).take(1).collect();
    let merges = merges.iter().map(|merge| (*merge).to_owned()).collect();
    let (model, pre) = ("gpt2".into(), "gpt-2".into());
    Tokenizer::new(TokenizerSpec { model, pre, tokens, token_types, merges, eos, ..Default::default() })
        .unwrap()
}

/// Uniform choices.
struct Dice(DrawKey, u32);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(DrawKey::new(ProblemKey::new(seed, 0), 0, 0, 0), 0)
    }

    fn below(&mut self, n: usize) -> usize {
        self.1 += 1;
        (self.0.uniform(self.1) * n as f64) as usize
    }
}

#[test]
fn every_pair_of_small_tokenizers_is_as_merging_by_brute_force_says() {
    let mut usable = 0;
    for seed in 0..100 {
        // Random merges over the bytes a, b, c: each joins two tokens that there are already, now
        // and then into a token that another pair makes too.
        let mut dice = Dice::new(seed);
        let mut texts: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut merges: Vec<String> = Vec::new();
        for _ in 0..4 + dice.below(12) {
            let (a, b) = (texts[dice.below(texts.len())].clone(), texts[dice.below(texts.len())].clone());
            let (merged, merge) = ([a.as_str(), &b].concat(), [a.as_str(), " ", &b].concat());
            if merged.len() <= 8 && !merges.contains(&merge) {
                merges.push(merge);
                if !texts.contains(&merged) {
                    texts.push(merged);
                }
            }
        }
        let (texts, merges): (Vec<&str>, Vec<&str>) =
            (texts[3..].iter().map(String::as_str).collect(), merges.iter().map(String::as_str).collect());
        // The last ordinary token has no merge, the one before has the bytes of another.
        let ordinary = [texts.as_slice(), &[texts[0], "abcabcabc"]].concat();
        let tokenizer = tokenizer(&ordinary, &[("</s>", 3), ("<s>", 3)], &merges);
        let (merging, vocab) = (Merging::new(&tokenizer), tokenizer.vocabulary());
        // Refused where a token that two pairs make is used before the one that makes it is listed.
        let Ok(canonical) = CanonicalTokenization::from_tokenizer(&tokenizer) else { continue };
        usable += 1;
        let tokens: Vec<TokenId> =
            (0..vocab.len() as u32).map(TokenId).filter(|id| vocab.is_member(*id)).collect();
        let symbols: Vec<TokenId> = [b"a", b"b", b"c"].map(|byte| vocab.find(byte).unwrap()).to_vec();
        let tested = [&symbols[..], &tokens[189..]].concat();
        let cursor = canonical.open(1, &Run::default()).unwrap();
        for &u in &tested {
            let mut after = cursor.fork(&[0]);
            let _ = after.advance(&[0], &[&[u]]);
            let row = after.logw_next(&[0]).remove(0).unwrap();
            for &v in &tested {
                let expected = merging.reproduces(u, v);
                let shown = [u, v].map(|token| vocab.display(token).into_owned());
                assert_eq!(canonical.allows(u, v), expected, "{shown:?} {merges:?}");
                assert_eq!(row.at(v.index()) == 0.0, expected, "{shown:?} {merges:?}");
            }
            assert_eq!(row.at(vocab.eos_position()), 0.0);
        }
    }
    assert!(usable > 50, "{usable}");
}

#[test]
fn the_laws_hold_and_the_cache_changes_nothing() {
    let tokenizer = tokenizer(
        &["ab", "abc", "bc", "ab", "cc"],
        &[("</s>", 3), ("<s>", 3), ("<u>", 4)],
        &["a b", "b c", "ab c", "c c"],
    );
    let vocab = tokenizer.vocabulary();
    let canonical = CanonicalTokenization::from_tokenizer(&tokenizer).unwrap();
    let symbols: Vec<TokenId> =
        (0..vocab.len() as u32).map(TokenId).filter(|id| vocab.is_member(*id)).collect();
    let few = [&[b"a", b"b", b"c"].map(|byte| vocab.find(byte).unwrap())[..], &symbols[189..]].concat();
    assert_eq!(
        canonical.claims(),
        Claims { boolean: true, tight: true, monotone: true, ..Claims::default() }
    );
    assert_contract(&canonical, &words(&few, 2), Tolerance::EXACT);
    assert_sparse(&canonical, &words(&few, 2));
    assert_soundness(&canonical, &few, 2);
    assert_claims(&canonical, &few, 2, 1, Tolerance::EXACT);
    let whole = *tokenizer.whole().first().unwrap();
    let of =
        [canonical.clone(), canonical.clone().with_cache_bytes(0), canonical.clone().with_cache_bytes(300)];
    let merging = Merging::new(&tokenizer);
    let by_definition = {
        let made: Vec<bool> = (0..vocab.len() as u32)
            .map(|id| {
                merging.encode(vocab.bytes_of(TokenId(id))).is_some_and(|t| t == ids(&[id])) || id == whole.0
            })
            .collect();
        let pairs: Vec<Vec<bool>> = (0..vocab.len() as u32)
            .map(|u| {
                (0..vocab.len() as u32)
                    .map(|v| {
                        let beside = [u, v].contains(&whole.0) && made[u as usize] && made[v as usize];
                        beside || merging.reproduces(TokenId(u), TokenId(v))
                    })
                    .collect()
            })
            .collect();
        function(vocab, Claims::default(), move |context, _| {
            let live = context.windows(2).all(|pair| pairs[pair[0].index()][pair[1].index()]);
            if live { 0.0 } else { f64::NEG_INFINITY }
        })
    };
    for canonical in &of {
        for seed in 0..4 {
            assert_cursor(canonical, &and_strangers(&few, vocab), 60, seed, Tolerance::EXACT);
        }
        assert_equal(canonical, &*by_definition, &words(&few, 2), Tolerance::EXACT);
    }
}

#[test]
fn potentials_17_of_equal_spaces_the_encoders_is_canonical_and_all_else_builds() {
    let tokenizer = tokenizer(&["ab", "Ġ", "Ġa"], &[("</s>", 3)], &["a b", "Ġ a"]);
    let vocab = tokenizer.vocabulary();
    let spaces: Vec<TokenId> =
        (0..vocab.len() as u32).map(TokenId).filter(|id| vocab.bytes_of(*id) == b" ").collect();
    let canonical = CanonicalTokenization::from_tokenizer(&tokenizer).unwrap();
    let [first, second] = spaces[..] else { panic!("two tokens are spaces: {spaces:?}") };
    assert_eq!(tokenizer.encode(" ", false).unwrap(), [first]);
    let b = vocab.find(b"b").unwrap();
    assert!(canonical.allows(first, b) && canonical.allows(b, first));
    assert!(!canonical.allows(second, b) && !canonical.allows(b, second));
    let ends = canonical.open(1, &Run::default()).unwrap().logw_next(&[0]).remove(0).unwrap();
    assert_eq!((ends.at(first.index()), ends.at(second.index())), (0.0, 0.0), "anything may come first");
    assert!(canonical.allows(second, TokenId::EOS));
    // A model gives each its own weight, and a product of both keeps the encoder's.
    let n = vocab.len();
    let model = ScriptedModel::new(n, move |_| (0..n).map(|id| id as f32 / 100.0).collect());
    let llm = PromptedLlm::new(start(model), Arc::clone(vocab), &[b]).unwrap();
    let total = (0..n).map(|id| (f64::from(id as f32 / 100.0)).exp()).sum::<f64>().ln();
    let product = Product::new(Arc::new(llm.clone()), Arc::new(canonical)).unwrap();
    for potential in [&llm as &dyn Potential, &product] {
        let mut cursor = potential.open(1, &Run::default()).unwrap();
        let row = cursor.logw_next(&[0]).remove(0).unwrap();
        for space in [first, second] {
            let expected = f64::from(space.0 as f32 / 100.0) - total;
            assert!((row.at(space.index()) - expected).abs() < 1e-9, "{space}");
        }
        let _ = cursor.advance(&[0], &[&[b]]);
        let row = cursor.logw_next(&[0]).remove(0).unwrap();
        assert!(row.at(first.index()).is_finite());
        assert_eq!(row.at(second.index()).is_finite(), potential.claims().mass_exact, "{second}");
    }
}

#[test]
fn overrides_are_allowed_whatever_the_merges_say() {
    let tokenizer = tokenizer(&["ab", ".'", "'s", "Ċ", "ĊĊ"], &[("</s>", 3)], &["a b", "' s", ". '", "Ċ Ċ"]);
    let vocab = tokenizer.vocabulary();
    let id = |bytes: &[u8]| vocab.find(bytes).unwrap();
    let mut canonical = CanonicalTokenization::from_tokenizer(&tokenizer).unwrap();
    let [newline, quote, s] = [id(b"\n"), id(b".'"), id(b"s")];
    assert_eq!(canonical.overrides().collect::<Vec<_>>(), [(quote, s), (newline, newline)]);
    assert!(canonical.allows(newline, newline) && canonical.allows(quote, s));
    assert_eq!(tokenizer.encode(".'s", false).unwrap(), [quote, s], "the pattern cuts here");
    let (a, b) = (id(b"a"), id(b"b"));
    assert!(!canonical.allows(a, b));
    let mut before = canonical.open(1, &Run::default()).unwrap();
    canonical.set_overrides([(a, b)]).unwrap();
    assert!(canonical.allows(a, b) && !canonical.allows(newline, newline) && !canonical.allows(quote, s));
    let mut after = canonical.open(1, &Run::default()).unwrap();
    for (cursor, expected) in [(&mut before, f64::NEG_INFINITY), (&mut after, 0.0)] {
        let _ = cursor.advance(&[0], &[&[a]]);
        assert_eq!(cursor.logw_next(&[0]).remove(0).unwrap().at(b.index()), expected);
    }
    let refused = canonical.set_overrides([(a, TokenId(9999))]).unwrap_err();
    assert!(refused.to_string().starts_with("overrides: 9999 is no token"), "{refused}");
}

#[test]
fn what_has_no_usable_merges_is_refused() {
    let error = CanonicalTokenization::from_tokenizer(&tokenizer(&["ab"], &[], &[])).unwrap_err();
    assert_eq!(error.to_string(), "could not determine BPE merges: the tokenizer has none");
    assert_eq!(error.kind(), ErrorKind::Vocabulary);
    let early = tokenizer(&["ab", "abc"], &[], &["ab c", "a b"]);
    let error = CanonicalTokenization::from_tokenizer(&early).unwrap_err();
    let text = "could not determine BPE merges: merge 0 is listed before those of its parts";
    assert_eq!(error.to_string(), text);
    let other = tokenizer(&["ab", "abc"], &[], &["a b"]);
    let canonical = CanonicalTokenization::from_tokenizer(&tokenizer(&["ab"], &[], &["a b"])).unwrap();
    let error = canonical.clone().with_vocab(Arc::clone(other.vocabulary())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Vocabulary);
    let vocab = canonical.vocab().with_eos(EosSet::new([1, 2])).unwrap();
    let canonical = canonical.with_vocab(vocab).unwrap();
    let row = canonical.open(1, &Run::default()).unwrap().logw_next(&[0]).remove(0).unwrap();
    assert_eq!([row.at(0), row.at(1), row.at(2)], [0.0, 0.0, f64::NEG_INFINITY]);
}

#[test]
fn random_pairs_of_the_real_vocabulary_are_as_merging_by_brute_force_says() {
    let (merging, vocab) = (Merging::new(&TOKENIZER), TOKENIZER.vocabulary());
    let mut canonical = CanonicalTokenization::from_tokenizer(&TOKENIZER).unwrap();
    canonical.set_overrides([]).unwrap();
    let mut dice = Dice::new(7);
    let (mut allowed, mut refused) = (0, 0);
    for _ in 0..200 {
        let u = TokenId(dice.below(vocab.len()) as u32);
        let mut cursor = canonical.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[&[u]]);
        let row = cursor.logw_next(&[0]).remove(0).unwrap();
        for _ in 0..100 {
            // Half of them begin with a letter, where merges are likeliest to cross.
            let v =
                TokenId(if dice.below(2) == 0 { dice.below(vocab.len()) } else { dice.below(2000) } as u32);
            if vocab.is_member(u) && vocab.is_member(v) {
                let expected = merging.reproduces(u, v);
                let shown = [u, v].map(|token| vocab.display(token).into_owned());
                assert_eq!(canonical.allows(u, v), expected, "{shown:?}");
                assert_eq!(row.at(v.index()) == 0.0, expected, "{shown:?}");
                *(if expected { &mut allowed } else { &mut refused }) += 1;
            }
        }
    }
    assert!(allowed > 500 && refused > 500, "both occur: {allowed} {refused}");
}

#[test]
fn what_the_encoder_gives_is_allowed() {
    let canonical = CanonicalTokenization::from_tokenizer(&TOKENIZER).unwrap();
    let mut dice = Dice::new(11);
    let syllables = ["an", "ti", "dis", "est", "ab", "lish", "ment", "Qu", "zx", "the", "ing", "é", "語"];
    // Pairs that the pattern's own cuts leave adjacent would need overrides, so cuts are at spaces,
    // newlines, punctuation and contractions, where no merge crosses.
    for _ in 0..500 {
        let mut text = String::new();
        for _ in 0..1 + dice.below(12) {
            for _ in 0..1 + dice.below(4) {
                text.push_str(syllables[dice.below(syllables.len())]);
            }
            text.push_str([" ", ", ", ". ", "\n", " = ", " (1 + 23) ", "'s "][dice.below(7)]);
        }
        let tokens = TOKENIZER.encode(&text, false).unwrap();
        for pair in tokens.windows(2) {
            let shown = [pair[0], pair[1]].map(|token| TOKENIZER.vocabulary().display(token).into_owned());
            assert!(canonical.allows(pair[0], pair[1]), "{shown:?} in {text:?}");
        }
        let mut cursor = canonical.open(1, &Run::default()).unwrap();
        let _ = cursor.advance(&[0], &[&tokens]);
        assert_eq!(cursor.score(&[0]).remove(0).unwrap(), 0.0);
    }
}
