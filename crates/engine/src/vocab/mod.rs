//! Vocabularies: what each token id means as bytes.
//!
//! ```
//! use lockstep_engine::vocab::{TokenEntry, Vocabulary};
//! use lockstep_sample::EosSet;
//!
//! let token = |bytes: &[u8], special| TokenEntry { bytes: bytes.to_vec(), special };
//! let tokens = vec![token(b"a", false), token(b"ab", false), token(b"</s>", true)];
//! let vocabulary = Vocabulary::new(tokens, EosSet::new([2]))?;
//! let last = vocabulary.find(b"ab").expect("a token");
//! assert_eq!(vocabulary.bytes_of(last), b"ab");
//! assert!(!vocabulary.is_member(2.into()));
//! # Ok::<(), lockstep_engine::vocab::VocabError>(())
//! ```
//!
//! Invariants: a token is its id, so two ids with equal bytes are two tokens everywhere. A special
//! token has a display text and no bytes, so that no constraint over bytes ever matches it. The
//! ids of the end-of-sequence set are folded into the one end symbol and are no members of the
//! vocabulary that control sees; they keep their bytes, because prompts may hold them.
//!
//! The tables are built once; every [`Vocabulary`] over them, whatever its end-of-sequence set,
//! shares them, and the tries too.

mod positions;
mod siblings;
mod tables;
mod trie;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use lockstep_sample::{EosSet, TokenId};

pub use siblings::{SiblingNode, SiblingTrie, Text};
pub use trie::{TokenTrie, TrieNode};

use tables::Tables;

/// A token as its tokenizer gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenEntry {
    /// The bytes it stands for; of a special token, its display text.
    pub bytes: Vec<u8>,
    /// Whether it is a control token: it has a display text, and no bytes for constraints.
    pub special: bool,
}

/// Why a list of tokens is no vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VocabError {
    /// There are no tokens.
    #[error("tokens is empty: a vocabulary has at least one token")]
    Empty,
    /// There are more tokens, or more bytes in them, than 32-bit indices reach.
    #[error("tokens is too large: {tokens} tokens of {bytes} bytes in all, the limit is 2^32 - 2 of each")]
    TooLarge {
        /// How many tokens were given.
        tokens: usize,
        /// How many bytes they have together.
        bytes: usize,
    },
    /// An id of the end-of-sequence set is no token.
    #[error("eos has the id {id}, but the vocabulary has only the ids 0 to {last}")]
    Eos {
        /// The id.
        id: u32,
        /// The last id that there is.
        last: usize,
    },
}

/// An immutable vocabulary: token `id` is entry `id`. Padding of a model's rows is not part of it.
pub struct Vocabulary {
    tables: Arc<Tables>,
    eos: EosSet,
    trie: Arc<TrieCell>,
}

/// Holds the trie of one set of members, from when it is first asked for.
type TrieCell = OnceLock<Arc<TokenTrie>>;

impl Vocabulary {
    /// A vocabulary of `tokens`, whose end-of-sequence ids are `eos` (none at all is legal).
    ///
    /// # Errors
    /// If there are no tokens or too many, or `eos` has an id that is no token.
    pub fn new(tokens: Vec<TokenEntry>, eos: EosSet) -> Result<Arc<Self>, VocabError> {
        Self::over(Arc::new(Tables::new(&tokens)?), eos)
    }

    /// The bytes 0 to 255 as tokens of one byte each, id = byte, with no end-of-sequence id. There
    /// is one such vocabulary a process.
    #[must_use]
    pub fn bytes() -> Arc<Self> {
        static BYTES: OnceLock<Arc<Vocabulary>> = OnceLock::new();
        let build = || {
            let tokens = (0..=u8::MAX).map(|byte| TokenEntry { bytes: vec![byte], special: false }).collect();
            Self::new(tokens, EosSet::new([])).expect("256 tokens are a vocabulary")
        };
        Arc::clone(BYTES.get_or_init(build))
    }

    /// The same tokens with another end-of-sequence set. Constant time: tables and tries are shared.
    ///
    /// # Errors
    /// If `eos` has an id that is no token.
    pub fn with_eos(&self, eos: EosSet) -> Result<Arc<Self>, VocabError> {
        Self::over(Arc::clone(&self.tables), eos)
    }

    fn over(tables: Arc<Tables>, eos: EosSet) -> Result<Arc<Self>, VocabError> {
        if let Some(&id) = eos.ids().iter().find(|id| **id as usize >= tables.len()) {
            return Err(VocabError::Eos { id, last: tables.len() - 1 });
        }
        let trie = tables.trie_cell(&eos);
        Ok(Arc::new(Self { tables, eos, trie }))
    }

    /// How many ids the tokenizer has, special ones included, a model's padding not.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// The end-of-sequence set.
    #[must_use]
    pub fn eos(&self) -> &EosSet {
        &self.eos
    }

    /// The bytes of `id` that constraints see. None for a special token and for an id outside the
    /// vocabulary.
    #[must_use]
    pub fn bytes_of(&self, id: TokenId) -> &[u8] {
        if self.is_special(id) { &[] } else { self.text_of(id) }
    }

    /// The bytes of an ordinary token, or the display text of a special one. None for an id outside
    /// the vocabulary.
    #[must_use]
    pub fn text_of(&self, id: TokenId) -> &[u8] {
        self.tables.text(id).unwrap_or(&[])
    }

    /// The token for people: its text, with bytes that are no UTF-8 as `\xNN`; `[id]` for an id
    /// outside the vocabulary.
    #[must_use]
    pub fn display(&self, id: TokenId) -> Cow<'_, str> {
        let Some(text) = self.tables.text(id) else { return format!("[{id}]").into() };
        if let Ok(text) = std::str::from_utf8(text) {
            return text.into();
        }
        let mut shown = String::with_capacity(4 * text.len());
        for chunk in text.utf8_chunks() {
            shown.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
        }
        shown.into()
    }

    /// Whether `id` is a special token.
    #[must_use]
    pub fn is_special(&self, id: TokenId) -> bool {
        self.tables.is_special(id)
    }

    /// Whether `id` belongs to the vocabulary that control sees: a token, special or not, that is no
    /// end-of-sequence id.
    #[must_use]
    pub fn is_member(&self, id: TokenId) -> bool {
        id.index() < self.len() && !self.eos.contains(id.0)
    }

    /// The lowest member that is not special and has exactly these bytes.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Option<TokenId> {
        self.tables.with_bytes(bytes).find(|id| self.is_member(*id))
    }

    /// The trie of all members that are not special. Built when first asked for, and once for all
    /// vocabularies over the same tables with the same members.
    #[must_use]
    pub fn trie(&self) -> &Arc<TokenTrie> {
        self.trie.get_or_init(|| {
            let members = self.tables.ordinary().iter().filter(|id| self.is_member(**id));
            Arc::new(TokenTrie::new(members.map(|id| (self.text_of(*id), *id))))
        })
    }

    /// Whether both have the same tokens under the same ids, whatever their end-of-sequence sets.
    /// Constant time if they share their tables.
    #[must_use]
    pub fn same_tokens(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tables, &other.tables) || self.tables.same(&other.tables)
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary").field("len", &self.len()).field("eos", &self.eos).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
