//! Byte-level BPE from a model file's own tables.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use lockstep_sample::{EosSet, TokenId};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, AddedVocabulary, Model as _, NormalizerWrapper, OffsetReferential, OffsetType};

use super::byte_level;
use super::error::{Problem, TextError, one_line};
use super::merges::{Merge, bpe};
use super::pre::PreTokenizer;
use crate::vocab::{TokenEntry, Vocabulary};

/// What a model file says of its tokenizer, as GGUF names it.
#[derive(Clone, Debug, Default)]
pub struct TokenizerSpec {
    /// The kind: `gpt2` for byte-level BPE, the one supported.
    pub model: String,
    /// How text is cut before merging: `smollm` (every digit alone, then as `gpt-2`) or `gpt-2`.
    pub pre: String,
    /// Each token's text. Ordinary ones are in the byte-level alphabet, the others plain.
    pub tokens: Vec<String>,
    /// What each token is: 1 ordinary, 2 unknown, 3 control, 4 user-defined, 5 unused. 2, 3 and 5
    /// are special: they have a display text and no bytes. 4 is plain text that is never cut.
    pub token_types: Vec<i32>,
    /// Pairs of tokens with a space between, the one to merge first first.
    pub merges: Vec<String>,
    /// The ids that end a sequence for control.
    pub eos: Vec<u32>,
    /// The id that begins a sequence, if the model has one.
    pub bos: Option<u32>,
    /// Whether the model wants `bos` before every prompt.
    pub add_bos: bool,
}

pub(super) const ORDINARY: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Turns text into tokens and tokens into bytes. Shared by reference between threads.
pub struct Tokenizer {
    bpe: BPE,
    merges: Vec<Merge>,
    /// The user-defined tokens, ascending; of equal texts the lowest id.
    whole: Vec<TokenId>,
    pre: PreTokenizer,
    /// Tokens found in text before it is cut: user-defined ones, and with the special ones.
    plain: AddedVocabulary,
    with_special: AddedVocabulary,
    /// The token of each byte, from which merging starts, if the byte can be spelled at all.
    bytes: [Option<TokenId>; 256],
    vocabulary: Arc<Vocabulary>,
    bos: Option<TokenId>,
    add_bos: bool,
}

impl Tokenizer {
    /// A tokenizer as `spec` says.
    ///
    /// # Errors
    /// If the kind or the pre-tokenizer is not supported, or the tables contradict each other.
    pub fn new(spec: TokenizerSpec) -> Result<Self, TextError> {
        if spec.model != "gpt2" {
            return Err(Problem::Model(spec.model).into());
        }
        let pre = PreTokenizer::named(&spec.pre)?;
        let entries = entries(&spec.tokens, &spec.token_types)?;
        let vocabulary = Vocabulary::new(entries, EosSet::new(spec.eos)).map_err(Problem::from)?;
        if let Some(id) = spec.bos.filter(|id| *id as usize >= vocabulary.len()) {
            return Err(Problem::Bos { id, tokens: vocabulary.len() }.into());
        }
        let (bpe, merges) = bpe(&spec.tokens, &spec.token_types, &spec.merges)?;
        let mut bytes = [None; 256];
        for (byte, token) in (0..=u8::MAX).zip(&mut bytes) {
            *token = bpe.token_to_id(byte_level::char(byte).encode_utf8(&mut [0; 4])).map(TokenId);
        }
        let added = |types: &[i32]| added(&spec.tokens, &spec.token_types, types);
        let mut seen = HashSet::new();
        let whole = (0..).zip(spec.tokens.iter().zip(&spec.token_types));
        let whole = whole.filter(|(_, (text, ty))| **ty == USER_DEFINED && seen.insert(*text));
        Ok(Self {
            bpe,
            merges,
            whole: whole.map(|(id, _)| TokenId(id)).collect(),
            pre,
            plain: added(&[USER_DEFINED])?,
            with_special: added(&[USER_DEFINED, CONTROL, UNKNOWN])?,
            bytes,
            vocabulary,
            bos: spec.bos.map(TokenId),
            add_bos: spec.add_bos,
        })
    }

    /// The tokens of `text`. With `special`, the texts of special tokens become those tokens;
    /// without, they are text like any other. No beginning-of-sequence token is added.
    ///
    /// # Errors
    /// If the text has a byte for which the vocabulary has no token; some have none for a few
    /// control characters.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<TokenId>, TextError> {
        // The merging below would drop such a byte without a word.
        if let Some(at) = text.bytes().position(|byte| self.bytes[usize::from(byte)].is_none()) {
            return Err(Problem::Unspeakable { byte: text.as_bytes()[at], at }.into());
        }
        let added = if special { &self.with_special } else { &self.plain };
        let mut pieces = added.extract_and_normalize::<NormalizerWrapper>(None, text);
        let done =
            self.pre.cut(&mut pieces).and_then(|()| pieces.tokenize(|piece| self.bpe.tokenize(piece.get())));
        done.map_err(|error| Problem::Bpe(one_line(&error.to_string())))?;
        let pieces = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        Ok(pieces
            .iter()
            .filter_map(|(_, _, ids)| ids.as_ref())
            .flatten()
            .map(|token| token.id.into())
            .collect())
    }

    /// The bytes that `ids` stand for; special tokens stand for none.
    #[must_use]
    pub fn decode(&self, ids: &[TokenId]) -> Vec<u8> {
        ids.iter().flat_map(|id| self.vocabulary.bytes_of(*id)).copied().collect()
    }

    /// Like [`decode`](Self::decode), with the display texts of special tokens.
    #[must_use]
    pub fn decode_with_special(&self, ids: &[TokenId]) -> Vec<u8> {
        ids.iter().flat_map(|id| self.vocabulary.text_of(*id)).copied().collect()
    }

    /// The tokens, with the end-of-sequence set of the model file.
    #[must_use]
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// The merges over the tokens that text may become, the one to apply first first. Each pair
    /// occurs once; of tokens with equal texts only the lowest id does.
    #[must_use]
    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }

    /// The token of one byte, from which merging starts; none if the byte cannot be spelled.
    #[must_use]
    pub fn byte(&self, byte: u8) -> Option<TokenId> {
        self.bytes[usize::from(byte)]
    }

    /// The user-defined tokens, ascending: found in text before it is merged, and never cut. Of
    /// equal texts only the lowest id is.
    #[must_use]
    pub fn whole(&self) -> &[TokenId] {
        &self.whole
    }

    /// The token that begins a sequence, if the model has one.
    #[must_use]
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Whether the model wants [`bos`](Self::bos) before every prompt.
    #[must_use]
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

fn entries(tokens: &[String], types: &[i32]) -> Result<Vec<TokenEntry>, Problem> {
    if tokens.len() != types.len() {
        return Err(Problem::TypeCount { types: types.len(), tokens: tokens.len() });
    }
    let entry = |(id, (text, ty)): (usize, (&String, &i32))| match *ty {
        ORDINARY => match byte_level::decode(text) {
            Ok(bytes) => Ok(TokenEntry { bytes, special: false }),
            Err(char) => Err(Problem::NotByteLevel { id, text: text.clone(), char }),
        },
        UNKNOWN | CONTROL | UNUSED => Ok(TokenEntry { bytes: text.as_bytes().to_vec(), special: true }),
        USER_DEFINED => Ok(TokenEntry { bytes: text.as_bytes().to_vec(), special: false }),
        ty => Err(Problem::Type { id, ty }),
    };
    tokens.iter().zip(types).enumerate().map(entry).collect()
}

/// A matcher for the tokens of these types; of equal texts the lowest id.
fn added(tokens: &[String], types: &[i32], wanted: &[i32]) -> Result<AddedVocabulary, Problem> {
    let mut ids = Vocab::default();
    let mut texts = Vec::new();
    for (id, (text, ty)) in (0..).zip(tokens.iter().zip(types)) {
        if wanted.contains(ty) && !text.is_empty() && !ids.contains_key(text) {
            ids.insert(text.clone(), id);
            texts.push(AddedToken::from(text.clone(), true));
        }
    }
    let fail = |error: tokenizers::Error| Problem::Bpe(one_line(&error.to_string()));
    // The matcher takes its ids from a model; this one has just these tokens.
    let names = BPE::builder().vocab_and_merges(ids, Vec::new()).build().map_err(fail)?;
    let mut added = AddedVocabulary::new();
    added.add_tokens::<NormalizerWrapper>(texts, &names, None).map_err(fail)?;
    Ok(added)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All bytes but 0x04 as tokens of one byte, in byte order, then `more` with their types.
    fn spec(more: &[(&str, i32)], merges: &[&str]) -> TokenizerSpec {
        let bytes =
            (0..=255).filter(|byte| *byte != 4).map(|byte| (byte_level::char(byte).to_string(), ORDINARY));
        let more = more.iter().map(|(text, ty)| ((*text).to_owned(), *ty));
        let (tokens, token_types) = bytes.chain(more).unzip();
        let merges = merges.iter().map(|merge| (*merge).to_owned()).collect();
        let (model, pre) = ("gpt2".into(), "smollm".into());
        TokenizerSpec { model, pre, tokens, token_types, merges, ..Default::default() }
    }

    fn tokenizer(more: &[(&str, i32)], merges: &[&str]) -> Tokenizer {
        Tokenizer::new(spec(more, merges)).unwrap()
    }

    fn texts(tokenizer: &Tokenizer, text: &str, special: bool) -> Vec<String> {
        let ids = tokenizer.encode(text, special).unwrap();
        ids.iter().map(|id| tokenizer.vocabulary().display(*id).into_owned()).collect()
    }

    fn refusal(spec: TokenizerSpec) -> String {
        Tokenizer::new(spec).unwrap_err().to_string()
    }

    #[test]
    fn merges_apply_in_order_inside_words() {
        let t = tokenizer(&[("ab", 1), ("bc", 1), ("Ġa", 1), ("Ġab", 1)], &["a b", "b c", "Ġ ab"]);
        assert_eq!(texts(&t, "abc", false), ["ab", "c"]);
        assert_eq!(texts(&t, "bc abc", false), ["bc", " ab", "c"]);
        assert!(t.encode("", false).unwrap().is_empty());
    }

    #[test]
    fn digits_stand_alone_in_smollm_and_together_in_gpt_2() {
        let mut spec = spec(
            &[("12", 1), ("123", 1), ("Ġ1", 1), ("Â²", 1), ("Ã©", 1)],
            &["1 2", "12 3", "Ġ 1", "Â ²", "Ã ©"],
        );
        let t = Tokenizer::new(spec.clone()).unwrap();
        assert_eq!(texts(&t, "a 123é²²", false), ["a", " ", "1", "2", "3", "é", "²", "²"]);
        spec.pre = "gpt-2".into();
        let t = Tokenizer::new(spec).unwrap();
        assert_eq!(texts(&t, "a 123 12", false), ["a", " ", "123", " ", "12"]);
        // Contractions, a word with its space, and white space whose last space goes to the word.
        assert_eq!(t.decode(&t.encode("it's  a\n\n b", false).unwrap()), b"it's  a\n\n b");
    }

    #[test]
    fn special_text_is_text_unless_asked_for() {
        let t = tokenizer(
            &[
                ("<s>", CONTROL),
                ("<tool>", USER_DEFINED),
                ("<s><s>", CONTROL),
                ("<u>", UNKNOWN),
                ("<pad>", UNUSED),
            ],
            &[],
        );
        let first = 255;
        let ids = |special| -> Vec<u32> {
            t.encode("a<s><tool>b", special).unwrap().iter().map(|id| id.0).collect()
        };
        assert_eq!(ids(true), [u32::from(b'a') - 1, first, first + 1, u32::from(b'b') - 1]);
        assert_eq!(texts(&t, "a<s><tool>b", false), ["a", "<", "s", ">", "<tool>", "b"]);
        assert_eq!(texts(&t, "<s><s><s>", true), ["<s><s>", "<s>"]);
        assert_eq!(texts(&t, "<u><pad>", true), ["<u>", "<", "p", "a", "d", ">"]);
        let ids = t.encode("a<s><tool>b", true).unwrap();
        assert_eq!(t.decode(&ids), b"a<tool>b");
        assert_eq!(t.decode_with_special(&ids), b"a<s><tool>b");
        assert_eq!(t.decode_with_special(&[TokenId::EOS, TokenId(9999)]), b"");
        let special: Vec<bool> =
            (first..first + 5).map(|id| t.vocabulary().is_special(TokenId(id))).collect();
        assert_eq!(special, [true, false, true, true, true]);
    }

    #[test]
    fn no_merge_makes_a_special_token() {
        let t = tokenizer(&[("ab", 1), ("abc", CONTROL)], &["a b", "ab c"]);
        assert_eq!(texts(&t, "abc", false), ["ab", "c"]);
        assert_eq!(texts(&t, "abc", true), ["abc"]);
    }

    #[test]
    fn of_equal_tokens_text_becomes_the_lowest() {
        let t = tokenizer(&[("ab", 1), ("ab", 1), ("<s>", CONTROL), ("<s>", CONTROL)], &["a b"]);
        assert_eq!(t.encode("ab<s>", true).unwrap(), [TokenId(255), TokenId(257)]);
        assert_eq!(t.decode(&[TokenId(256)]), b"ab");
    }

    #[test]
    fn a_byte_without_a_token_is_an_error() {
        let error = tokenizer(&[], &[]).encode("ab\u{4}", false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the text has the byte 0x04 at 2, which this model has no token for: leave it out"
        );
    }

    #[test]
    fn what_is_not_supported_or_contradicts_itself_is_named() {
        let good = || spec(&[("ab", 1), ("<s>", 3)], &["a b"]);
        assert!(Tokenizer::new(good()).is_ok());
        let model = TokenizerSpec { model: "llama".into(), ..good() };
        assert!(refusal(model).starts_with("the tokenizer model \"llama\" is not supported"));
        let pre = TokenizerSpec { pre: "default".into(), ..good() };
        assert!(refusal(pre).starts_with("the pre-tokenizer \"default\" is not supported"));
        let types = TokenizerSpec { token_types: vec![1], ..good() };
        assert_eq!(refusal(types), "token_types has 1 entries for 257 tokens: give one each");
        assert_eq!(
            refusal(spec(&[("a", 6)], &[])),
            "token_types[255] is 6, which a byte-level tokenizer does not have"
        );
        assert_eq!(refusal(spec(&[("a b", 1)], &[])), "tokens[255] is \"a b\", and ' ' stands for no byte");
        for merge in ["ab", " ab", "ab ", "a b c", ""] {
            let want = format!("merges[0] is {merge:?}, not two tokens with a space between them");
            assert_eq!(refusal(spec(&[("ab", 1)], &[merge])), want);
        }
        assert_eq!(
            refusal(spec(&[("ab", 1)], &["a b", "a c"])),
            "merges[1] needs the token \"ac\", which tokens lacks"
        );
        let bos = TokenizerSpec { bos: Some(257), ..good() };
        assert_eq!(refusal(bos), "bos is the id 257, but there are only 257 tokens");
        let eos = TokenizerSpec { eos: vec![257], ..good() };
        assert!(refusal(eos).starts_with("eos has the id 257"));
        assert_eq!(
            refusal(TokenizerSpec { model: "gpt2".into(), pre: "smollm".into(), ..Default::default() }),
            "tokens is empty: a vocabulary has at least one token"
        );
    }

    #[test]
    fn what_the_file_says_of_both_ends_is_kept() {
        let t = Tokenizer::new(TokenizerSpec {
            bos: Some(1),
            add_bos: true,
            eos: vec![255],
            ..spec(&[("<s>", 3)], &[])
        });
        let t = t.unwrap();
        assert_eq!((t.bos(), t.add_bos(), t.vocabulary().eos().ids()), (Some(TokenId(1)), true, &[255][..]));
    }

    proptest! {
        #[test]
        fn decoding_gives_back_the_text(text in "[a-c0-2 \\n<s>é²\\PC]{0,40}", special: bool) {
            let t = tokenizer(
                &[("ab", 1), ("Ġa", 1), ("Ã©", 1), ("ĠĠ", 1), ("<s>", 3), ("<b", 4)],
                &["a b", "Ġ a", "Ã ©", "Ġ Ġ"],
            );
            let ids = t.encode(&text, special).unwrap();
            prop_assert_eq!(t.decode_with_special(&ids), text.as_bytes());
            prop_assert!(special || ids.iter().all(|id| !t.vocabulary().is_special(*id)));
        }
    }
}
