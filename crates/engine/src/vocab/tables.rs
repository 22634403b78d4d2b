//! The tables that vocabularies share: one buffer of bytes, no allocation a token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use lockstep_sample::{EosSet, TokenId};

use super::{TokenEntry, TrieCell, VocabError};

pub(super) struct Tables {
    /// All tokens' bytes, one after the other.
    text: Vec<u8>,
    /// Where each token's bytes end; they begin where those of the token before end.
    ends: Vec<u32>,
    special: Vec<bool>,
    /// The ids that are not special, by bytes, then by id.
    ordinary: OnceLock<Vec<TokenId>>,
    /// The tries in use, by the ordinary ids that the end-of-sequence set takes away. They are held
    /// weakly, so that sets which come and go leave nothing behind.
    pub(super) tries: Mutex<BTreeMap<Vec<u32>, Weak<TrieCell>>>,
}

impl Tables {
    pub(super) fn new(tokens: &[TokenEntry]) -> Result<Self, VocabError> {
        if tokens.is_empty() {
            return Err(VocabError::Empty);
        }
        let bytes = tokens.iter().map(|token| token.bytes.len()).sum();
        // One less than 2^32 - 1, which is the end symbol.
        if tokens.len() >= u32::MAX as usize || bytes >= u32::MAX as usize {
            return Err(VocabError::TooLarge { tokens: tokens.len(), bytes });
        }
        let (mut text, mut ends) = (Vec::with_capacity(bytes), Vec::with_capacity(tokens.len()));
        for token in tokens {
            text.extend_from_slice(&token.bytes);
            ends.push(u32::try_from(text.len()).expect("all bytes fit in 32 bits"));
        }
        let special = tokens.iter().map(|token| token.special).collect();
        Ok(Self { text, ends, special, ordinary: OnceLock::new(), tries: Mutex::default() })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes or the display text of `id`, if it is a token.
    pub(super) fn text(&self, id: TokenId) -> Option<&[u8]> {
        let end = *self.ends.get(id.index())? as usize;
        let begin = id.index().checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.text[begin..end])
    }

    fn bytes(&self, id: TokenId) -> &[u8] {
        self.text(id).expect("an id of these tables")
    }

    pub(super) fn is_special(&self, id: TokenId) -> bool {
        self.special.get(id.index()).is_some_and(|special| *special)
    }

    /// The ids that are not special, by bytes, then by id.
    pub(super) fn ordinary(&self) -> &[TokenId] {
        self.ordinary.get_or_init(|| {
            let ids = (0..self.len()).filter(|id| !self.special[*id]);
            let ids = ids.map(|id| TokenId(u32::try_from(id).expect("all ids fit in 32 bits")));
            // Most comparisons end within the first eight bytes, which an integer holds.
            let mut keyed: Vec<(u64, TokenId)> = ids.map(|id| (head(self.bytes(id)), id)).collect();
            keyed.sort_unstable_by(|&(head_a, a), &(head_b, b)| {
                head_a.cmp(&head_b).then_with(|| self.bytes(a).cmp(self.bytes(b))).then(a.cmp(&b))
            });
            keyed.into_iter().map(|(_, id)| id).collect()
        })
    }

    /// The ids that are not special and have exactly `bytes`, ascending.
    pub(super) fn with_bytes<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = TokenId> + 'a {
        let ordinary = self.ordinary();
        let begin = ordinary.partition_point(|id| self.bytes(*id) < bytes);
        ordinary[begin..].iter().copied().take_while(move |id| self.bytes(*id) == bytes)
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.ends == other.ends && self.special == other.special && self.text == other.text
    }

    /// The place of the trie without `eos`, shared with everyone who holds it now.
    pub(super) fn trie_cell(&self, eos: &EosSet) -> Arc<TrieCell> {
        let taken: Vec<u32> = eos.ids().iter().copied().filter(|id| !self.is_special(TokenId(*id))).collect();
        // The map holds only places, so it is sound whatever panicked while it was locked.
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = tries.get(&taken).and_then(Weak::upgrade) {
            return cell;
        }
        tries.retain(|_, cell| cell.strong_count() > 0);
        let cell = Arc::new(TrieCell::new());
        tries.insert(taken, Arc::downgrade(&cell));
        cell
    }
}

/// The first eight bytes, padded with zeros, such that order of heads never contradicts that of bytes.
fn head(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let n = bytes.len().min(8);
    first[..n].copy_from_slice(&bytes[..n]);
    u64::from_be_bytes(first)
}
