//! The trie of a vocabulary's tokens, for walking an automaton over all of them at once.

use std::ops::Range;
use std::sync::OnceLock;

use lockstep_sample::TokenId;

use super::siblings::SiblingTrie;

/// Tokens by their bytes, as a flat array in preorder.
///
/// Node 0 is the root; the tokens without bytes end there. The children of a node follow it, by
/// ascending byte, each with its whole subtree, so a walk is a scan that skips a dead subtree by
/// one jump. Every id has a place of its own: ids with equal bytes end at the same node.
#[derive(Clone, Debug)]
pub struct TokenTrie {
    nodes: Vec<TrieNode>,
    ids: Vec<TokenId>,
    longest: usize,
    siblings: OnceLock<SiblingTrie>,
}

/// A node of a [`TokenTrie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrieNode {
    byte: u8,
    end: u32,
    ids: (u32, u32),
}

impl TrieNode {
    /// The byte on the edge into this node; 0 at the root, where it means nothing.
    #[must_use]
    pub const fn byte(&self) -> u8 {
        self.byte
    }

    /// The index after the last node of this subtree: where a walk goes on when this node is dead.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.end as usize
    }

    /// The tokens that end here, as a range of [`TokenTrie::ids`].
    #[must_use]
    pub const fn ids(&self) -> Range<usize> {
        self.ids.0 as usize..self.ids.1 as usize
    }
}

impl TokenTrie {
    /// The trie of `tokens`, which come by ascending bytes, equal bytes by ascending id, fewer than
    /// 2^32 bytes in all.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], TokenId)>) -> Self {
        let index = |n: usize| u32::try_from(n).expect("a vocabulary's bytes fit in 32 bits");
        let mut nodes = vec![TrieNode { byte: 0, end: 0, ids: (0, 0) }];
        let mut ids = Vec::new();
        let mut longest = 0;
        // The open nodes from the root to the last token's node, and that token's bytes.
        let (mut path, mut last): (Vec<usize>, &[u8]) = (vec![0], &[]);
        for (bytes, id) in tokens {
            let shared = bytes.iter().zip(last).take_while(|(a, b)| a == b).count();
            for node in path.drain(shared + 1..) {
                nodes[node].end = index(nodes.len());
            }
            for &byte in &bytes[shared..] {
                path.push(nodes.len());
                nodes.push(TrieNode { byte, end: 0, ids: (index(ids.len()), index(ids.len())) });
            }
            ids.push(id);
            longest = longest.max(bytes.len());
            nodes[path[bytes.len()]].ids.1 = index(ids.len());
            last = bytes;
        }
        for node in path {
            nodes[node].end = index(nodes.len());
        }
        Self { nodes, ids, longest, siblings: OnceLock::new() }
    }

    /// The nodes in preorder, the root first.
    #[must_use]
    pub fn nodes(&self) -> &[TrieNode] {
        &self.nodes
    }

    /// All tokens in the order of their nodes: by bytes, equal bytes by id.
    #[must_use]
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// How many bytes the longest token has.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The same trie with siblings side by side. Built when first asked for.
    #[must_use]
    pub fn siblings(&self) -> &SiblingTrie {
        self.siblings.get_or_init(|| SiblingTrie::new(self))
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.nodes.capacity() * size_of::<TrieNode>()
            + self.ids.capacity() * size_of::<TokenId>()
            + self.siblings.get().map_or(0, SiblingTrie::byte_len)
    }

    /// Walks an automaton over all tokens that it does not refuse.
    ///
    /// `start` is its state at the root. `step` gives the state after one more byte, or `None` if
    /// no token below can be accepted: then nothing below is looked at. `visit` sees each token
    /// whose every byte was stepped over, once, with the state after it; in order of bytes, equal
    /// bytes by id.
    ///
    /// The stack is explicit and as deep as the longest token.
    pub fn walk<S>(
        &self,
        start: S,
        mut step: impl FnMut(&S, u8) -> Option<S>,
        mut visit: impl FnMut(&S, TokenId),
    ) {
        let root = self.nodes[0];
        self.ids[root.ids()].iter().for_each(|id| visit(&start, *id));
        // The path of live nodes above the next one: where each subtree ends, and the state in it.
        let mut path = vec![(root.end(), start)];
        let mut at = 1;
        while at < self.nodes.len() {
            let node = self.nodes[at];
            while path.last().is_some_and(|(end, _)| *end <= at) {
                path.pop();
            }
            let (_, above) = path.last().expect("the root ends after every node");
            match step(above, node.byte) {
                Some(state) => {
                    self.ids[node.ids()].iter().for_each(|id| visit(&state, *id));
                    path.push((node.end(), state));
                    at += 1;
                }
                None => at = node.end(),
            }
        }
    }
}
