//! Canonical tokenisation: only the tokens that encoding would give.
//!
//! A sequence weighs 1 iff each adjacent pair (u, v) is what the merges make of the bytes of u and
//! v, or is listed as an override; else 0. The end of sequence may always follow. The state is the
//! last token; how pairs are decided is in `canonical/spines.rs`.

mod spines;

use std::collections::BTreeSet;
use std::sync::Arc;

use lockstep_engine::text::Tokenizer;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use super::states::{Machine, MaskOf, States};
use super::{Claims, Cursor, Potential, Row, Run};
use crate::cache::Cache;
use crate::error::{ControlError, ErrorKind};
use spines::Spines;

/// Pairs that the pattern which cuts text leaves adjacent though a merge would join them, by their
/// bytes: newlines before a word, and a quotation's end before an s.
const DEFAULT_OVERRIDES: [(&[u8], &[u8]); 2] = [(b"\n", b"\n"), (b".'", b"s")];

/// Bytes of masks that are kept unless asked otherwise.
const DEFAULT_CACHE_BYTES: usize = 16 << 20;

/// Weight 1 for sequences in which every adjacent pair of tokens is canonical, 0 for all others.
///
/// A pair (u, v) is canonical if byte-level BPE makes (u, v) of the bytes of u and v. Of tokens with
/// equal bytes the one that encoding yields is canonical. A user-defined token is cut out of text
/// before it is merged, so it may stand next to every token that encodes to itself. A special
/// token has no bytes, so nothing but the end may stand next to it. Any token may come first.
#[derive(Clone, Debug)]
pub struct CanonicalTokenization(Arc<Pairs>);

/// What decides pairs. Shared by all cursors.
#[derive(Debug)]
struct Pairs {
    vocab: Arc<Vocabulary>,
    spines: Arc<Spines>,
    /// User-defined tokens, ascending.
    whole: Arc<[TokenId]>,
    overrides: BTreeSet<(TokenId, TokenId)>,
    /// Every member, and the end.
    first: Arc<Bitset>,
    /// Masks by last token, and the bytes that they may take.
    cache: Cache<TokenId, Bitset>,
    cache_bytes: usize,
}

impl CanonicalTokenization {
    /// The canonical sequences of `tokenizer`, over its vocabulary. The overrides are (newline,
    /// newline) and (`.'`, `s`), where it has these tokens.
    ///
    /// # Errors
    /// If it has no merges, or lists one before those that make its parts.
    pub fn from_tokenizer(tokenizer: &Tokenizer) -> Result<Self, ControlError> {
        let spines = Arc::new(Spines::new(tokenizer)?);
        let vocab = Arc::clone(tokenizer.vocabulary());
        let id = |bytes: &[u8]| {
            (0..)
                .map(TokenId)
                .take(vocab.len())
                .find(|id| spines.is_made(*id) && vocab.bytes_of(*id) == bytes)
        };
        let overrides = DEFAULT_OVERRIDES.into_iter().filter_map(|(u, v)| Some((id(u)?, id(v)?))).collect();
        let pairs = Pairs {
            first: first(&vocab),
            spines,
            whole: tokenizer.whole().into(),
            overrides,
            cache: Cache::new(DEFAULT_CACHE_BYTES),
            cache_bytes: DEFAULT_CACHE_BYTES,
            vocab,
        };
        Ok(Self(Arc::new(pairs)))
    }

    /// The same over `vocab`, which has the same tokens and maybe another end-of-sequence set.
    ///
    /// # Errors
    /// If its tokens are others.
    pub fn with_vocab(self, vocab: Arc<Vocabulary>) -> Result<Self, ControlError> {
        if !vocab.same_tokens(&self.0.vocab) {
            return Err(ControlError::new(
                ErrorKind::Vocabulary,
                "vocab: has other tokens than the tokenizer: use the vocabulary of its model",
            ));
        }
        let cache_bytes = self.0.cache_bytes;
        Ok(self.0.changed(|pairs| Pairs { first: first(&vocab), vocab, ..pairs }, cache_bytes))
    }

    /// The same with at most `bytes` bytes of masks kept, 16 MiB by default. 0 keeps none. No result
    /// depends on it.
    #[must_use]
    pub fn with_cache_bytes(self, bytes: usize) -> Self {
        self.0.changed(|pairs| pairs, bytes)
    }

    /// Replaces the pairs that are allowed whatever the merges say. Cursors opened before keep
    /// theirs.
    ///
    /// # Errors
    /// If an id is no token of the vocabulary.
    pub fn set_overrides(
        &mut self,
        pairs: impl IntoIterator<Item = (TokenId, TokenId)>,
    ) -> Result<(), ControlError> {
        let overrides: BTreeSet<(TokenId, TokenId)> = pairs.into_iter().collect();
        let mut ids = overrides.iter().flat_map(|(u, v)| [*u, *v]);
        if let Some(bad) = ids.find(|id| id.index() >= self.0.vocab.len()) {
            let last = self.0.vocab.len() - 1;
            return Err(ControlError::argument(format!(
                "overrides: {bad} is no token: the vocabulary has the ids 0 to {last}"
            )));
        }
        let cache_bytes = self.0.cache_bytes;
        *self = self.0.changed(|pairs| Pairs { overrides, ..pairs }, cache_bytes);
        Ok(())
    }

    /// The pairs that are allowed whatever the merges say, ascending.
    pub fn overrides(&self) -> impl Iterator<Item = (TokenId, TokenId)> + '_ {
        self.0.overrides.iter().copied()
    }

    /// Whether `v` may follow `u`: both tokens of the vocabulary, or `v` the end.
    #[must_use]
    pub fn allows(&self, u: TokenId, v: TokenId) -> bool {
        self.0.allows(Some(u), v)
    }
}

impl Pairs {
    /// A changed copy, whose cache is empty.
    fn changed(&self, change: impl FnOnce(Self) -> Self, cache_bytes: usize) -> CanonicalTokenization {
        CanonicalTokenization(Arc::new(change(Self {
            vocab: Arc::clone(&self.vocab),
            spines: Arc::clone(&self.spines),
            whole: Arc::clone(&self.whole),
            overrides: self.overrides.clone(),
            first: Arc::clone(&self.first),
            cache: Cache::new(cache_bytes),
            cache_bytes,
        })))
    }

    fn is_whole(&self, token: TokenId) -> bool {
        self.whole.binary_search(&token).is_ok()
    }

    /// Whether `token` may follow `last`, or come first.
    fn allows(&self, last: Option<TokenId>, token: TokenId) -> bool {
        if token.is_eos() {
            return true;
        }
        if !self.vocab.is_member(token) {
            return false;
        }
        let Some(last) = last else { return true };
        let beside = |token| self.is_whole(token) || self.spines.is_made(token);
        self.overrides.contains(&(last, token))
            || self.spines.adjoin(last, token)
            || (self.is_whole(last) && beside(token))
            || (self.is_whole(token) && beside(last))
    }

    /// The positions that may follow `last`, or come first.
    fn mask(&self, last: Option<TokenId>) -> Arc<Bitset> {
        let Some(last) = last else { return Arc::clone(&self.first) };
        if let Some(mask) = self.cache.find(&last) {
            return mask;
        }
        let mut mask = Bitset::new(self.vocab.row_len());
        let mut allow = |token: TokenId| {
            if self.vocab.is_member(token) {
                mask.insert(token.index());
            }
        };
        self.spines.followers(last, &mut allow);
        if self.is_whole(last) {
            let made = (0..).map(TokenId).take(self.vocab.len()).filter(|id| self.spines.is_made(*id));
            made.for_each(&mut allow);
        }
        if self.is_whole(last) || self.spines.is_made(last) {
            self.whole.iter().copied().for_each(&mut allow);
        }
        let listed = self.overrides.range((last, TokenId(0))..=(last, TokenId(u32::MAX)));
        listed.for_each(|(_, token)| allow(*token));
        mask.insert(self.vocab.eos_position());
        let bytes = mask.byte_len();
        self.cache.insert(last, Arc::new(mask), bytes)
    }
}

/// Every member of a vocabulary, and the end.
fn first(vocab: &Vocabulary) -> Arc<Bitset> {
    let mut all = Bitset::full(vocab.row_len());
    for id in vocab.eos().ids() {
        all.remove(*id as usize);
    }
    all.insert(vocab.eos_position());
    Arc::new(all)
}

impl Potential for CanonicalTokenization {
    fn vocab(&self) -> &Arc<Vocabulary> {
        &self.0.vocab
    }

    fn claims(&self) -> Claims {
        Claims { boolean: true, tight: true, monotone: true, ..Claims::default() }
    }

    fn open(&self, n: usize, _run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(States::open(Arc::clone(&self.0), None, n))
    }
}

/// The state is the last token.
impl Machine for Arc<Pairs> {
    type State = Option<TokenId>;

    const MASK: Option<MaskOf<Self>> = Some(|this, last| this.mask(*last));

    fn vocab(&self) -> &Vocabulary {
        &self.vocab
    }

    fn prefix(&self, _: &Self::State) -> f64 {
        0.0
    }

    fn complete(&self, _: &Self::State) -> f64 {
        0.0
    }

    fn step(&self, last: &Self::State, token: TokenId) -> Option<Self::State> {
        self.allows(*last, token).then_some(Some(token))
    }

    fn row(&self, last: &Self::State) -> Row {
        Row::bits(self.mask(*last))
    }

    fn tokens(&self, last: &Self::State, tokens: &[TokenId]) -> Vec<f64> {
        let weight = |token: &TokenId| if self.allows(*last, *token) { 0.0 } else { f64::NEG_INFINITY };
        tokens.iter().map(weight).collect()
    }
}
