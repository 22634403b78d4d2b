//! The end-of-sequence set of a model.

/// The ids that end a sequence: distinct, ascending, possibly none.
///
/// Draws see the set as one symbol, [`TokenId::EOS`](crate::TokenId::EOS), at its lowest id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EosSet {
    ids: Vec<u32>,
}

impl EosSet {
    /// The set of `ids`, in any order, repeats allowed.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = u32>) -> Self {
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self { ids }
    }

    /// The ids, ascending.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The id whose position the whole set takes in a draw; none if the set is empty.
    #[must_use]
    pub fn lowest(&self) -> Option<u32> {
        self.ids.first().copied()
    }

    /// Whether `id` ends a sequence.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_and_distinct() {
        let eos = EosSet::new([7, 2, 7]);
        assert_eq!(eos.ids(), [2, 7]);
        assert_eq!(eos.lowest(), Some(2));
        assert!(eos.contains(7) && !eos.contains(3));
        assert_eq!(EosSet::new([]).lowest(), None);
    }
}
