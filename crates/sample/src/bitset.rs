//! A set of small integers, such as the tokens that a constraint allows.
//!
//! Invariant: bits at and beyond the length are zero, so counts, equality and whole-word reads need
//! no masking.

const WORD: usize = u64::BITS as usize;

/// A subset of `0..len`, one bit an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bitset {
    words: Vec<u64>,
    len: usize,
}

impl Bitset {
    /// The empty subset of `0..len`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(WORD)], len }
    }

    /// All of `0..len`.
    #[must_use]
    pub fn full(len: usize) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(WORD)];
        if !len.is_multiple_of(WORD)
            && let Some(last) = words.last_mut()
        {
            *last = (1 << (len % WORD)) - 1;
        }
        Self { words, len }
    }

    /// The subset of `0..len` that holds `ids`, in any order, repeats allowed.
    ///
    /// # Panics
    /// If an id is not below `len`.
    #[must_use]
    pub fn from_ids(len: usize, ids: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::new(len);
        for id in ids {
            set.insert(id as usize);
        }
        set
    }

    /// The size of the universe, not of the subset (see [`Bitset::count`]).
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the universe is empty. Whether the subset is: [`Bitset::none`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `i` is in the set; false at and beyond the length.
    #[must_use]
    pub fn contains(&self, i: usize) -> bool {
        self.words.get(i / WORD).is_some_and(|word| word >> (i % WORD) & 1 == 1)
    }

    /// Adds `i`.
    ///
    /// # Panics
    /// If `i` is not below the length.
    pub fn insert(&mut self, i: usize) {
        assert!(i < self.len, "bit {i} is outside a set over 0..{}", self.len);
        self.words[i / WORD] |= 1 << (i % WORD);
    }

    /// Removes `i`.
    ///
    /// # Panics
    /// If `i` is not below the length.
    pub fn remove(&mut self, i: usize) {
        assert!(i < self.len, "bit {i} is outside a set over 0..{}", self.len);
        self.words[i / WORD] &= !(1 << (i % WORD));
    }

    /// How many elements the set has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has at least `n` elements, told from as few words as tell it.
    pub(crate) fn has_at_least(&self, n: usize) -> bool {
        let mut count = 0;
        n == 0
            || self.words.iter().any(|word| {
                count += word.count_ones() as usize;
                count >= n
            })
    }

    /// Whether the set has no element.
    #[must_use]
    pub fn none(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Keeps only what `other` holds too.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn intersect(&mut self, other: &Self) {
        assert_eq!(self.len, other.len, "only sets over the same universe intersect");
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Adds what `other` holds.
    ///
    /// # Panics
    /// If the universe of `other` is larger.
    pub fn unite(&mut self, other: &Self) {
        assert!(other.len <= self.len, "a set unites with sets over its universe or a smaller one");
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Removes what `other` holds, over any universe.
    pub fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// The elements, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(w, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(w * WORD + bit)
            })
        })
    }

    /// The bits: element `i` is bit `i % 64` of word `i / 64`.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Bytes of memory behind the bits.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_tree_set(
            len in 1usize..300,
            steps in prop::collection::vec((any::<bool>(), 0usize..300), 0..60),
        ) {
            let mut set = Bitset::new(len);
            let mut reference = BTreeSet::new();
            for (add, i) in steps {
                let i = i % len;
                if add {
                    set.insert(i);
                    reference.insert(i);
                } else {
                    set.remove(i);
                    reference.remove(&i);
                }
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), reference.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.count(), reference.len());
            for n in [0, 1, reference.len(), reference.len() + 1] {
                prop_assert_eq!(set.has_at_least(n), reference.len() >= n);
            }
            prop_assert_eq!(set.none(), reference.is_empty());
            prop_assert!((0..len + 70).all(|i| set.contains(i) == reference.contains(&i)));
            prop_assert_eq!(&set, &Bitset::from_ids(len, reference.iter().map(|&i| i as u32)));
        }
    }

    #[test]
    fn a_full_set_has_no_bit_beyond_its_length() {
        for len in [0, 1, 63, 64, 65, 128, 200] {
            let full = Bitset::full(len);
            assert_eq!(full.count(), len);
            assert_eq!(full, Bitset::from_ids(len, 0..len as u32));
            assert_eq!(full.byte_len(), 8 * len.div_ceil(64));
        }
    }

    #[test]
    fn an_intersection_holds_the_common_elements() {
        let mut a = Bitset::from_ids(130, [0, 5, 64, 129]);
        a.intersect(&Bitset::from_ids(130, [5, 6, 129]));
        assert_eq!(a.iter().collect::<Vec<_>>(), [5, 129]);
    }

    #[test]
    fn unions_and_differences_take_smaller_universes() {
        let mut a = Bitset::from_ids(130, [0, 5, 64, 129]);
        a.unite(&Bitset::from_ids(70, [5, 69]));
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 5, 64, 69, 129]);
        a.subtract(&Bitset::from_ids(66, [0, 1, 64]));
        assert_eq!(a.iter().collect::<Vec<_>>(), [5, 69, 129]);
    }

    #[test]
    #[should_panic(expected = "outside a set")]
    fn a_bit_beyond_the_length_is_refused() {
        Bitset::new(3).insert(3);
    }
}
