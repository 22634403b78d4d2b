//! Prompts (with what was drawn after them) whose state the model still holds.
//!
//! Entries are keyed by (adapter, tokens) and ordered, so the one that shares the longest prefix
//! with a prompt is a neighbour of it. The least recently used entry goes first. An entry that a
//! live row was forked from is pinned: it shares its pages with the row, and stays.
//!
//! Invariant: the bytes of the entries never exceed the limit, and each is counted as stored in the
//! KV budget.

use std::collections::BTreeMap;

use lockstep_sample::TokenId;

use crate::model::SeqId;

/// Orders entries.
type Key = (Option<String>, Vec<TokenId>);

/// An entry, named for as long as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId(u64);

/// Stored prompts.
#[derive(Debug)]
pub(crate) struct PromptCache {
    limit: usize,
    /// Whether the model can cut a sequence.
    truncates: bool,
    bytes: usize,
    clock: u64,
    entries: BTreeMap<Key, Entry>,
    keys: BTreeMap<EntryId, Key>,
}

#[derive(Debug)]
struct Entry {
    id: EntryId,
    seq: SeqId,
    bytes: usize,
    used: u64,
    pins: usize,
}

/// A stored prefix of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) entry: EntryId,
    /// The sequence to fork.
    pub(crate) seq: SeqId,
    /// Tokens that its first ones share with the prompt, fewer than the prompt has: the last token
    /// must be fed for its logits.
    pub(crate) len: usize,
}

/// A sequence that is no longer stored, for the caller to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) seq: SeqId,
    pub(crate) bytes: usize,
}

impl PromptCache {
    pub(crate) fn new(limit: usize, truncates: bool) -> Self {
        Self { limit, truncates, bytes: 0, clock: 0, entries: BTreeMap::new(), keys: BTreeMap::new() }
    }

    /// Whether anything can be stored.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// The entry that saves the most of `prompt`; it counts as used.
    pub(crate) fn find(&mut self, adapter: Option<&str>, prompt: &[TokenId]) -> Option<Hit> {
        let usable = prompt.split_last()?.1;
        let key =
            if self.truncates { self.neighbour(adapter, usable) } else { self.prefix(adapter, usable) }?;
        let len = common_prefix(&key.1, usable);
        self.clock += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.used = self.clock;
        Some(Hit { entry: entry.id, seq: entry.seq, len })
    }

    /// The key with the longest prefix in common, if there is one.
    fn neighbour(&self, adapter: Option<&str>, tokens: &[TokenId]) -> Option<Key> {
        let target = (adapter.map(str::to_owned), tokens.to_vec());
        let before = self.entries.range(..&target).next_back();
        let after = self.entries.range(&target..).next();
        let shared = |key: &Key| if key.0 == target.0 { common_prefix(&key.1, tokens) } else { 0 };
        let best = before.into_iter().chain(after).map(|(key, _)| key).max_by_key(|key| shared(key))?;
        (shared(best) > 0).then(|| best.clone())
    }

    /// The longest key that is a prefix as a whole.
    fn prefix(&self, adapter: Option<&str>, tokens: &[TokenId]) -> Option<Key> {
        let mut target = (adapter.map(str::to_owned), tokens.to_vec());
        loop {
            let (key, _) = self.entries.range(..=&target).next_back()?;
            if key.0 != target.0 {
                return None;
            }
            let shared = common_prefix(&key.1, &target.1);
            if shared == key.1.len() {
                return Some(key.clone());
            }
            // Whatever is a prefix of the target and lies before this key is a prefix of what they share.
            target.1.truncate(shared);
        }
    }

    /// Keeps an entry from going until it is unpinned as often.
    pub(crate) fn pin(&mut self, id: EntryId) {
        self.change_pins(id, |pins| pins + 1);
    }

    pub(crate) fn unpin(&mut self, id: EntryId) {
        self.change_pins(id, |pins| pins.saturating_sub(1));
    }

    fn change_pins(&mut self, id: EntryId, change: impl FnOnce(usize) -> usize) {
        let key = self.keys.get(&id).expect("a pinned entry stays");
        let entry = self.entries.get_mut(key).expect("keys name entries");
        entry.pins = change(entry.pins);
    }

    /// Whether a new entry of these tokens would be of use.
    pub(crate) fn wants(&self, adapter: Option<&str>, tokens: &[TokenId], bytes: usize) -> bool {
        let key = (adapter.map(str::to_owned), tokens.to_vec());
        !tokens.is_empty() && bytes <= self.limit && !self.entries.contains_key(&key)
    }

    /// What must go, so that `bytes` more do not exceed the limit; `None` if too much of it is pinned.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Option<Vec<Gone>> {
        let over = (self.bytes + bytes).saturating_sub(self.limit);
        let loose: usize =
            self.entries.values().filter(|entry| entry.pins == 0).map(|entry| entry.bytes).sum();
        if loose < over {
            return None;
        }
        let mut gone = Vec::new();
        while self.bytes + bytes > self.limit {
            gone.push(self.evict()?);
        }
        Some(gone)
    }

    /// The least recently used entry that is not pinned goes.
    pub(crate) fn evict(&mut self) -> Option<Gone> {
        let loose = self.entries.iter().filter(|(_, entry)| entry.pins == 0);
        let key = loose.min_by_key(|(_, entry)| entry.used)?.0.clone();
        self.remove(&key)
    }

    /// Stores a sequence that holds exactly `tokens`, for which there is room. Entries that it makes
    /// superfluous go.
    pub(crate) fn insert(
        &mut self,
        adapter: Option<&str>,
        tokens: Vec<TokenId>,
        seq: SeqId,
        bytes: usize,
    ) -> (EntryId, Vec<Gone>) {
        let mut gone = Vec::new();
        if self.truncates {
            // What is a prefix of these tokens can be cut from them.
            let mut shorter = tokens.clone();
            while let Some(key) = self.prefix(adapter, &shorter) {
                shorter.truncate(key.1.len().saturating_sub(1));
                if self.entries.get(&key).is_some_and(|entry| entry.pins == 0) {
                    gone.extend(self.remove(&key));
                }
            }
        }
        self.clock += 1;
        let id = EntryId(self.clock);
        let key = (adapter.map(str::to_owned), tokens);
        self.keys.insert(id, key.clone());
        self.entries.insert(key, Entry { id, seq, bytes, used: self.clock, pins: 0 });
        self.bytes += bytes;
        (id, gone)
    }

    fn remove(&mut self, key: &Key) -> Option<Gone> {
        let entry = self.entries.remove(key)?;
        self.keys.remove(&entry.id);
        self.bytes -= entry.bytes;
        Some(Gone { seq: entry.seq, bytes: entry.bytes })
    }
}

fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn stored(cache: &mut PromptCache, ids: &[u32], seq: u64) -> Vec<SeqId> {
        let bytes = ids.len();
        assert!(cache.wants(None, &tokens(ids), bytes));
        let mut gone = cache.make_room(bytes).unwrap();
        gone.extend(cache.insert(None, tokens(ids), SeqId(seq), bytes).1);
        gone.into_iter().map(|gone| gone.seq).collect()
    }

    fn found(cache: &mut PromptCache, ids: &[u32]) -> Option<(u64, usize)> {
        cache.find(None, &tokens(ids)).map(|hit| (hit.seq.0, hit.len))
    }

    #[test]
    fn b_37_a_prefix_of_one_token_is_found_and_the_oldest_entry_goes_first() {
        let mut cache = PromptCache::new(6, true);
        stored(&mut cache, &[7], 1);
        assert_eq!(found(&mut cache, &[7, 8]), Some((1, 1)));
        stored(&mut cache, &[5, 6], 2);
        stored(&mut cache, &[1, 2, 3], 3);
        // Fetched, so it is the youngest, and the other goes first.
        assert_eq!(found(&mut cache, &[7, 8]), Some((1, 1)));
        assert_eq!(stored(&mut cache, &[9, 9], 4), [SeqId(2)]);
        assert_eq!(found(&mut cache, &[5, 6, 7]), None);
        assert!(!cache.wants(None, &tokens(&[1; 7]), 7));
        assert_eq!(found(&mut cache, &[7]), None);
    }

    #[test]
    fn b_37_a_pinned_entry_stays_and_eviction_ends() {
        let mut cache = PromptCache::new(4, true);
        stored(&mut cache, &[1, 2], 1);
        let hit = cache.find(None, &tokens(&[1, 2, 3])).unwrap();
        cache.pin(hit.entry);
        stored(&mut cache, &[5, 6], 2);
        assert_eq!(cache.make_room(3), None);
        assert_eq!(cache.evict().map(|gone| gone.seq), Some(SeqId(2)));
        assert_eq!(cache.evict(), None);
        cache.unpin(hit.entry);
        // The longer entry makes the shorter one superfluous.
        assert_eq!(stored(&mut cache, &[1, 2, 3], 3), [SeqId(1)]);
        assert_eq!((cache.bytes, cache.entries.len(), cache.keys.len()), (3, 1, 1));
    }

    #[test]
    fn b_36_an_exact_hit_replays_the_last_token_or_falls_back() {
        let mut cache = PromptCache::new(100, true);
        stored(&mut cache, &[1, 2, 3], 1);
        assert_eq!(found(&mut cache, &[1, 2, 3]), Some((1, 2)));
        assert_eq!(found(&mut cache, &[1, 2, 3, 4]), Some((1, 3)));
        assert_eq!(found(&mut cache, &[1, 9, 9]), Some((1, 1)));
        let mut whole = PromptCache::new(100, false);
        stored(&mut whole, &[1, 2], 1);
        stored(&mut whole, &[1, 2, 3], 2);
        assert_eq!(found(&mut whole, &[1, 2, 3]), Some((1, 2)));
        assert_eq!(found(&mut whole, &[1, 2, 3, 4]), Some((2, 3)));
        assert_eq!(found(&mut whole, &[1, 2]), None);
    }

    #[test]
    fn adapters_do_not_share() {
        let mut cache = PromptCache::new(100, true);
        cache.insert(Some("a"), tokens(&[1, 2]), SeqId(1), 2);
        assert_eq!(cache.find(None, &tokens(&[1, 2, 3])), None);
        assert_eq!(cache.find(Some("b"), &tokens(&[1, 2, 3])), None);
        assert!(cache.find(Some("a"), &tokens(&[1, 2, 3])).is_some());
    }

    proptest! {
        #[test]
        fn b_37_the_best_prefix_is_found_and_the_limit_holds(
            texts in prop::collection::vec(prop::collection::vec(0u32..3, 1..6), 1..20),
            query in prop::collection::vec(0u32..3, 1..8),
            truncates in any::<bool>(),
        ) {
            let mut cache = PromptCache::new(24, truncates);
            let mut live: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            for (seq, text) in (0..).zip(&texts) {
                if cache.wants(None, &tokens(text), text.len()) {
                    for gone in stored(&mut cache, text, seq) {
                        prop_assert!(live.remove(&gone.0).is_some());
                    }
                    live.insert(seq, text.clone());
                }
                prop_assert!(cache.bytes <= 24);
                prop_assert_eq!(cache.bytes, live.values().map(Vec::len).sum::<usize>());
            }
            let usable = &query[..query.len() - 1];
            let shared = |text: &Vec<u32>| {
                let n = text.iter().zip(usable).take_while(|(a, b)| a == b).count();
                if truncates || n == text.len() { n } else { 0 }
            };
            let best = live.values().map(shared).max().unwrap_or(0);
            prop_assert_eq!(found(&mut cache, &query).map_or(0, |hit| hit.1), best);
        }
    }
}
