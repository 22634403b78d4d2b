//! A cache bounded by bytes, for what can be computed again.
//!
//! Values are shared pointers: whoever holds one keeps it alive, whatever becomes of its place
//! here. So eviction, and a bound of 0, cost time and change nothing else. Victims are found by the
//! clock algorithm: an entry that was used since the hand last passed is spared once.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Estimated bytes that an entry takes beside its value.
const BYTES_PER_ENTRY: usize = 96;

/// Values by key, as many as fit into a number of bytes. Shared between threads.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    bound: usize,
    inner: RwLock<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The keys in the order in which the hand meets them.
    ring: VecDeque<K>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    used: AtomicBool,
}

impl<K: Clone + Eq + Hash, V> Cache<K, V> {
    /// An empty cache of at most `bound` bytes.
    pub(crate) fn new(bound: usize) -> Self {
        let inner = Inner { entries: HashMap::new(), ring: VecDeque::new(), bytes: 0 };
        Self { bound, inner: RwLock::new(inner) }
    }

    /// The value of `key`, if it is here.
    pub(crate) fn find(&self, key: &K) -> Option<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let entry = inner.entries.get(key)?;
        entry.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(&entry.value))
    }

    /// Keeps `value`, which takes `bytes`, as the value of `key`, if it fits at all. Gives back what
    /// is kept: the value of another thread if that was faster.
    pub(crate) fn insert(&self, key: K, value: Arc<V>, bytes: usize) -> Arc<V> {
        let bytes = bytes + BYTES_PER_ENTRY;
        if bytes > self.bound {
            return value;
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = inner.entries.get(&key) {
            return Arc::clone(&entry.value);
        }
        inner.evict(self.bound - bytes);
        inner.bytes += bytes;
        inner.ring.push_back(key.clone());
        inner.entries.insert(key, Entry { value: Arc::clone(&value), bytes, used: AtomicBool::new(false) });
        value
    }

    /// The bytes of all that is kept.
    pub(crate) fn byte_len(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl<K: Clone + Eq + Hash, V> Inner<K, V> {
    /// Drops entries until they take at most `bound` bytes.
    fn evict(&mut self, bound: usize) {
        while self.bytes > bound {
            let key = self.ring.pop_front().expect("what takes bytes is on the ring");
            let entry = self.entries.get_mut(&key).expect("a key on the ring has an entry");
            if std::mem::take(entry.used.get_mut()) {
                self.ring.push_back(key);
            } else {
                self.bytes -= entry.bytes;
                self.entries.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(cache: &Cache<u32, u32>, keys: impl IntoIterator<Item = u32>) {
        for key in keys {
            assert_eq!(*cache.insert(key, Arc::new(10 * key), 4), 10 * key);
            assert!(cache.byte_len() <= cache.bound);
        }
    }

    fn kept(cache: &Cache<u32, u32>) -> Vec<u32> {
        let inner = cache.inner.read().unwrap();
        (0..100).filter(|key| inner.entries.contains_key(key)).collect()
    }

    #[test]
    fn the_bound_holds_and_used_entries_are_spared() {
        let cache = Cache::new(3 * (BYTES_PER_ENTRY + 4));
        fill(&cache, 0..3);
        assert_eq!(cache.byte_len(), 3 * (BYTES_PER_ENTRY + 4));
        assert_eq!(cache.find(&0).as_deref(), Some(&0));
        fill(&cache, [3]);
        assert_eq!(kept(&cache), [0, 2, 3]);
        fill(&cache, [4, 5]);
        assert_eq!(kept(&cache), [3, 4, 5], "an entry is spared once");
    }

    #[test]
    fn what_is_held_outlives_its_eviction() {
        let cache = Cache::new(BYTES_PER_ENTRY + 4);
        let held = cache.insert(1, Arc::new(10), 4);
        fill(&cache, 2..9);
        assert!(cache.find(&1).is_none());
        assert_eq!(*held, 10);
    }

    #[test]
    fn the_first_value_stays() {
        let cache = Cache::new(1000);
        let first = cache.insert(1, Arc::new(10), 4);
        assert!(Arc::ptr_eq(&first, &cache.insert(1, Arc::new(10), 4)));
        assert_eq!(cache.byte_len(), BYTES_PER_ENTRY + 4);
    }

    #[test]
    fn a_bound_of_0_keeps_nothing() {
        let cache = Cache::new(0);
        fill(&cache, 0..5);
        assert_eq!((kept(&cache).len(), cache.byte_len()), (0, 0));
    }
}
