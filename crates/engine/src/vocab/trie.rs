//! The trie of a vocabulary's tokens, for walking an automaton over all of them at once.

use std::ops::Range;

use lockstep_sample::TokenId;

/// Tokens by their bytes, as a flat array in preorder.
///
/// Node 0 is the root; the tokens without bytes end there. The children of a node follow it, by
/// ascending byte, each with its whole subtree, so a walk is a scan that skips a dead subtree by
/// one jump. Every id has a place of its own: ids with equal bytes end at the same node.
#[derive(Clone, Debug)]
pub struct TokenTrie {
    nodes: Vec<TrieNode>,
    ids: Vec<TokenId>,
    /// For each node the ASCII bytes on the edges below it, bit = byte.
    ascii_below: Vec<u128>,
}

/// A node of a [`TokenTrie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrieNode {
    byte: u8,
    height: u8,
    end: u32,
    ids: (u32, u32),
}

impl TrieNode {
    /// The [height](Self::height) of nodes that are higher than can be told, or that have other
    /// bytes than ASCII below them.
    pub const TALL: u8 = u8::MAX;

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

    /// How many bytes the longest token through this node has after it; [`Self::TALL`] if there are
    /// that many, or some are not ASCII.
    #[must_use]
    pub const fn height(&self) -> u8 {
        self.height
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
        let mut nodes = vec![TrieNode { byte: 0, height: 0, end: 0, ids: (0, 0) }];
        let mut ids = Vec::new();
        let mut parents = vec![0];
        // The open nodes from the root to the last token's node, and that token's bytes.
        let (mut path, mut last): (Vec<usize>, &[u8]) = (vec![0], &[]);
        for (bytes, id) in tokens {
            let shared = bytes.iter().zip(last).take_while(|(a, b)| a == b).count();
            for node in path.drain(shared + 1..) {
                nodes[node].end = index(nodes.len());
            }
            for &byte in &bytes[shared..] {
                parents.push(path[path.len() - 1]);
                path.push(nodes.len());
                nodes.push(TrieNode { byte, height: 0, end: 0, ids: (index(ids.len()), index(ids.len())) });
            }
            ids.push(id);
            nodes[path[bytes.len()]].ids.1 = index(ids.len());
            last = bytes;
        }
        for node in path {
            nodes[node].end = index(nodes.len());
        }
        let mut ascii_below = vec![0; nodes.len()];
        for node in (1..nodes.len()).rev() {
            let TrieNode { byte, height, .. } = nodes[node];
            let parent = parents[node];
            let reached = if byte.is_ascii() { height.saturating_add(1) } else { TrieNode::TALL };
            nodes[parent].height = nodes[parent].height.max(reached);
            ascii_below[parent] |= ascii_below[node] | if byte.is_ascii() { 1 << byte } else { 0 };
        }
        Self { nodes, ids, ascii_below }
    }

    /// The nodes in preorder, the root first.
    #[must_use]
    pub fn nodes(&self) -> &[TrieNode] {
        &self.nodes
    }

    /// The ASCII bytes on the edges below `node`: bit b for byte b.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn ascii_below(&self, node: usize) -> u128 {
        self.ascii_below[node]
    }

    /// The tokens that end at `node` or below it.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn ids_within(&self, node: usize) -> &[TokenId] {
        let TrieNode { end, ids, .. } = self.nodes[node];
        &self.ids[ids.0 as usize..self.nodes[end as usize - 1].ids.1 as usize]
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.nodes.capacity() * size_of::<TrieNode>()
            + self.ids.capacity() * size_of::<TokenId>()
            + self.ascii_below.capacity() * size_of::<u128>()
    }

    /// All tokens in the order of their nodes: by bytes, equal bytes by id.
    #[must_use]
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
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
