//! The trie of a vocabulary's tokens with siblings side by side, for walking byte automata.
//!
//! A walk looks at the bytes of all children of a live node, and at the few that go on. So those
//! bytes lie together; in a [`TokenTrie`], which is in preorder, subtrees lie between them. Besides,
//! it is known of each subtree which ASCII bytes and how many are in it, and of all tokens which
//! are spelled with some set of bytes: what an automaton reads in one run is taken at once.

use std::ops::Range;

use lockstep_sample::Bitset;

use super::trie::TokenTrie;

/// A node of a [`SiblingTrie`].
#[derive(Clone, Copy, Debug)]
pub struct SiblingNode {
    ascii_below: u128,
    children: (u32, u32),
    ids: (u32, u32),
    ids_end: u32,
    height: u8,
}

impl SiblingNode {
    /// The [height](Self::height) of nodes that are higher than can be told, or that have other
    /// bytes than ASCII below them.
    pub const TALL: u8 = u8::MAX;

    /// The children, by ascending byte.
    #[must_use]
    pub const fn children(&self) -> Range<usize> {
        self.children.0 as usize..self.children.1 as usize
    }

    /// The tokens that end here, as a range of [`TokenTrie::ids`].
    #[must_use]
    pub const fn ids(&self) -> Range<usize> {
        self.ids.0 as usize..self.ids.1 as usize
    }

    /// The tokens that end here or below, as a range of [`TokenTrie::ids`].
    #[must_use]
    pub const fn ids_within(&self) -> Range<usize> {
        self.ids.0 as usize..self.ids_end as usize
    }

    /// How many bytes the longest token through this node has after it; [`Self::TALL`] if there are
    /// that many, or some are not ASCII.
    #[must_use]
    pub const fn height(&self) -> u8 {
        self.height
    }

    /// The ASCII bytes on the edges below: bit b for byte b.
    #[must_use]
    pub const fn ascii_below(&self) -> u128 {
        self.ascii_below
    }
}

/// The nodes of a [`TokenTrie`] in breadth-first order: node 0 is the root, and the children of a
/// node are neighbours.
#[derive(Clone, Debug)]
pub struct SiblingTrie {
    /// The byte on the edge into each node; 0 at the root.
    bytes: Vec<u8>,
    nodes: Vec<SiblingNode>,
    /// All tokens.
    all: Bitset,
    /// A heap over the ASCII bytes: leaf `128 + b` has the tokens with byte b, every other node what
    /// its two children have.
    with_byte: Vec<Bitset>,
    /// The tokens with a byte that is not ASCII.
    foreign: Bitset,
    /// At `n` the tokens of more than n bytes.
    longer: Vec<Bitset>,
}

impl SiblingTrie {
    /// Lengths up to this are told apart by [`SiblingTrie::spelled_with`].
    pub const FAR: u8 = 32;

    pub(super) fn new(trie: &TokenTrie) -> Self {
        let index = |n: usize| u32::try_from(n).expect("a vocabulary's bytes fit in 32 bits");
        let deep = trie.nodes();
        let (mut order, mut bytes, mut nodes) = (vec![0], Vec::new(), Vec::<SiblingNode>::new());
        let mut parents = vec![0];
        while nodes.len() < order.len() {
            let at = order[nodes.len()];
            let begin = order.len();
            let mut child = at + 1;
            while child < deep[at].end() {
                order.push(child);
                parents.push(nodes.len());
                child = deep[child].end();
            }
            let ids = deep[at].ids();
            bytes.push(deep[at].byte());
            nodes.push(SiblingNode {
                ascii_below: 0,
                children: (index(begin), index(order.len())),
                ids: (index(ids.start), index(ids.end)),
                ids_end: index(deep[deep[at].end() - 1].ids().end),
                height: 0,
            });
        }
        for node in (1..nodes.len()).rev() {
            let (byte, SiblingNode { ascii_below, height, .. }) = (bytes[node], nodes[node]);
            let parent = &mut nodes[parents[node]];
            let (own, reached) =
                if byte.is_ascii() { (1 << byte, height.saturating_add(1)) } else { (0, SiblingNode::TALL) };
            parent.height = parent.height.max(reached);
            parent.ascii_below |= ascii_below | own;
        }
        let universe = trie.ids().iter().map(|id| id.index() + 1).max().unwrap_or(0);
        let empty = Bitset::new(universe);
        let mut this = Self {
            bytes,
            nodes,
            all: Bitset::from_ids(universe, trie.ids().iter().map(|id| id.0)),
            with_byte: vec![empty.clone(); 256],
            foreign: empty.clone(),
            longer: vec![empty; usize::from(Self::FAR) + 1],
        };
        this.sort_tokens(trie);
        this
    }

    /// Puts each token into the sets that it belongs to.
    fn sort_tokens(&mut self, trie: &TokenTrie) {
        trie.walk(
            (0_u128, false, 0_usize),
            |&(ascii, foreign, len), byte| {
                let own = if byte.is_ascii() { 1 << byte } else { 0 };
                Some((ascii | own, foreign || !byte.is_ascii(), len + 1))
            },
            |&(mut ascii, foreign, len), id| {
                while ascii != 0 {
                    self.with_byte[128 + ascii.trailing_zeros() as usize].insert(id.index());
                    ascii &= ascii - 1;
                }
                if foreign {
                    self.foreign.insert(id.index());
                }
                self.longer.iter_mut().take(len).for_each(|longer| longer.insert(id.index()));
            },
        );
        for node in (1..128).rev() {
            let (above, below) = self.with_byte.split_at_mut(2 * node);
            above[node].unite(&below[0]);
            above[node].unite(&below[1]);
        }
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[SiblingNode] {
        &self.nodes
    }

    /// The byte on the edge into each node; 0 at the root, where it means nothing.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sets `tokens` to the tokens of at most `longest` bytes, all of them in `bytes` (bit b for
    /// byte b). More than [`SiblingTrie::FAR`] is any length.
    ///
    /// # Panics
    /// If a token is not below the length of `tokens`.
    pub fn spelled_with(&self, bytes: u128, longest: u8, tokens: &mut Bitset) {
        tokens.unite(&self.all);
        tokens.subtract(&self.foreign);
        if let Some(longer) = self.longer.get(usize::from(longest)) {
            tokens.subtract(longer);
        }
        // The bytes that are not in the set, by the largest nodes of the heap that have no others.
        let mut open = vec![(1_usize, 0_u32, 128_u32)];
        while let Some((node, first, n)) = open.pop() {
            let wanted = bytes >> first & u128::MAX >> (128 - n);
            if wanted == 0 {
                tokens.subtract(&self.with_byte[node]);
            } else if wanted != u128::MAX >> (128 - n) {
                open.push((2 * node, first, n / 2));
                open.push((2 * node + 1, first + n / 2, n / 2));
            }
        }
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let sets = self.with_byte.iter().chain(&self.longer).chain([&self.all, &self.foreign]);
        self.bytes.capacity()
            + self.nodes.capacity() * size_of::<SiblingNode>()
            + sets.map(Bitset::byte_len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use lockstep_sample::TokenId;
    use proptest::prelude::*;

    use super::*;

    fn trie(tokens: &[Vec<u8>]) -> TokenTrie {
        let mut sorted: Vec<(&[u8], TokenId)> =
            (0..).zip(tokens).map(|(id, token)| (token.as_slice(), TokenId(id))).collect();
        sorted.sort();
        TokenTrie::new(sorted.into_iter())
    }

    /// Every node as (bytes to it, tokens at it, tokens within).
    fn spelled(trie: &TokenTrie) -> Vec<(Vec<u8>, Vec<TokenId>, Vec<TokenId>)> {
        let siblings = trie.siblings();
        let (mut seen, mut open) = (Vec::new(), vec![(0, Vec::new())]);
        while let Some((at, text)) = open.pop() {
            let node = siblings.nodes()[at];
            for child in node.children() {
                open.push((child, [&text[..], &[siblings.bytes()[child]]].concat()));
            }
            seen.push((text, trie.ids()[node.ids()].to_vec(), trie.ids()[node.ids_within()].to_vec()));
        }
        seen
    }

    proptest! {
        #[test]
        fn nodes_know_what_is_below_them(
            tokens in prop::collection::vec(prop::collection::vec(prop::sample::select(b"abc\xc3\x80".to_vec()), 0..5), 1..20),
        ) {
            let trie = trie(&tokens);
            for (text, ids, within) in spelled(&trie) {
                let of = |keep: &dyn Fn(&[u8]) -> bool| -> Vec<TokenId> {
                    trie.ids().iter().copied().filter(|id| keep(&tokens[id.index()])).collect()
                };
                prop_assert_eq!(ids, of(&|token| token == text));
                prop_assert_eq!(&within, &of(&|token| token.starts_with(&text)));
            }
            let siblings = trie.siblings();
            let mut longest = 0;
            for token in &tokens {
                longest = longest.max(if token.is_ascii() { token.len() as u8 } else { SiblingNode::TALL });
            }
            prop_assert_eq!(siblings.nodes()[0].height(), longest);
            let ascii = tokens.iter().flatten().filter(|byte| byte.is_ascii());
            prop_assert_eq!(siblings.nodes()[0].ascii_below(), ascii.fold(0, |set, byte| set | 1 << byte));
        }

        #[test]
        fn tokens_are_found_by_their_bytes_and_length(
            tokens in prop::collection::vec(prop::collection::vec(prop::sample::select(b" abz\x7f\xc3".to_vec()), 0..6), 1..30),
            bytes in prop::collection::vec(prop::sample::select(b" abz\x7f".to_vec()), 0..4),
            longest in prop::sample::select(vec![0, 1, 2, 3, 33, 254]),
        ) {
            let trie = trie(&tokens);
            let set = bytes.iter().fold(0_u128, |set, byte| set | 1 << byte);
            let mut found = Bitset::new(tokens.len() + 1);
            trie.siblings().spelled_with(set, longest, &mut found);
            for (id, token) in tokens.iter().enumerate() {
                let expected = token.len() <= usize::from(longest) && token.iter().all(|byte| bytes.contains(byte));
                prop_assert_eq!(found.contains(id), expected);
            }
        }
    }
}
