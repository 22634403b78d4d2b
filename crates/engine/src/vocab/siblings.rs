//! The trie of a vocabulary's tokens with siblings side by side, for walking byte automata.
//!
//! A walk looks at the bytes of all children of a live node, and at the few that go on. So those
//! bytes lie together; in a [`TokenTrie`], which is in preorder, subtrees lie between them. Besides,
//! it is known of each subtree which ASCII bytes and how many are in it, and whether the rest is
//! UTF-8, and of all tokens which are spelled with some set of bytes: what an automaton reads in one
//! run is taken at once.

use std::ops::Range;

use lockstep_sample::Bitset;

use super::trie::TokenTrie;

/// What the bytes of a token up to some place are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// UTF-8.
    Whole,
    /// UTF-8 but for the last character, which goes on.
    Part,
    /// No beginning of any UTF-8.
    Not,
}

/// A node of a [`SiblingTrie`].
#[derive(Clone, Copy, Debug)]
pub struct SiblingNode {
    ascii_below: u128,
    children: (u32, u32),
    ids: (u32, u32),
    ids_end: u32,
    height: u8,
    is_foreign_below: bool,
    text: Text,
}

impl SiblingNode {
    /// The [height](Self::height) of nodes that are higher than can be told, or below which bytes
    /// that are not ASCII spell no UTF-8.
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
    /// that many, or if bytes that are not ASCII, or that should not be, leave the beginning of a
    /// token below no [`Text`].
    #[must_use]
    pub const fn height(&self) -> u8 {
        self.height
    }

    /// The ASCII bytes on the edges below: bit b for byte b.
    #[must_use]
    pub const fn ascii_below(&self) -> u128 {
        self.ascii_below
    }

    /// Whether some byte below is not ASCII.
    #[must_use]
    pub const fn is_foreign_below(&self) -> bool {
        self.is_foreign_below
    }

    /// What the bytes from the root to this node are.
    #[must_use]
    pub const fn text(&self) -> Text {
        self.text
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
    /// The tokens that begin no UTF-8.
    malformed: Bitset,
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
                is_foreign_below: false,
                text: Text::Whole,
            });
        }
        for node in 1..nodes.len() {
            nodes[node].text = text_at(node, &bytes, &nodes, &parents);
        }
        for node in (1..nodes.len()).rev() {
            let (byte, child) = (bytes[node], nodes[node]);
            let parent = &mut nodes[parents[node]];
            let breaks = child.text == Text::Not && (!byte.is_ascii() || parent.text == Text::Part);
            let reached = if breaks { SiblingNode::TALL } else { child.height.saturating_add(1) };
            parent.height = parent.height.max(reached);
            parent.ascii_below |= child.ascii_below | if byte.is_ascii() { 1 << byte } else { 0 };
            parent.is_foreign_below |= child.is_foreign_below || !byte.is_ascii();
        }
        let universe = trie.ids().iter().map(|id| id.index() + 1).max().unwrap_or(0);
        let empty = Bitset::new(universe);
        let malformed = nodes.iter().filter(|node| node.text == Text::Not);
        let malformed = malformed.flat_map(|node| &trie.ids()[node.ids()]).map(|id| id.0);
        let mut this = Self {
            malformed: Bitset::from_ids(universe, malformed),
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

    /// Adds to `tokens` those of at most `longest` bytes whose ASCII bytes are all in `bytes` (bit b
    /// for byte b). More than [`SiblingTrie::FAR`] is any length. Bytes that are not ASCII are
    /// `foreign`: if they may be, any that begin UTF-8 will do, together with those before them.
    ///
    /// # Panics
    /// If a token is not below the length of `tokens`.
    pub fn spelled_with(&self, bytes: u128, foreign: bool, longest: u8, tokens: &mut Bitset) {
        tokens.unite(&self.all);
        tokens.subtract(if foreign { &self.malformed } else { &self.foreign });
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
        let sets =
            self.with_byte.iter().chain(&self.longer).chain([&self.all, &self.foreign, &self.malformed]);
        self.bytes.capacity()
            + self.nodes.capacity() * size_of::<SiblingNode>()
            + sets.map(Bitset::byte_len).sum::<usize>()
    }
}

/// What the bytes to `node` are, if that is known of the nodes above it.
fn text_at(node: usize, bytes: &[u8], nodes: &[SiblingNode], parents: &[usize]) -> Text {
    // From the last place where the text was whole: less than a character lies between.
    let mut since = vec![bytes[node]];
    let mut above = parents[node];
    while nodes[above].text == Text::Part {
        since.insert(0, bytes[above]);
        above = parents[above];
    }
    if nodes[above].text == Text::Not {
        return Text::Not;
    }
    match std::str::from_utf8(&since) {
        Ok(_) => Text::Whole,
        Err(error) if error.error_len().is_none() => Text::Part,
        Err(_) => Text::Not,
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

    /// What some bytes are, by trying what may follow them.
    fn text(bytes: &[u8]) -> Text {
        if std::str::from_utf8(bytes).is_ok() {
            return Text::Whole;
        }
        let goes_on = (0x80..0xC0).any(|next| {
            let rests = [vec![next], vec![next, 0x80], vec![next, 0x80, 0x80]];
            rests.iter().any(|rest| std::str::from_utf8(&[bytes, rest].concat()).is_ok())
        });
        if goes_on { Text::Part } else { Text::Not }
    }

    /// A node as (bytes to it, itself, tokens at it, tokens within).
    type Spelled = (Vec<u8>, SiblingNode, Vec<TokenId>, Vec<TokenId>);

    /// Every node.
    fn spelled(trie: &TokenTrie) -> Vec<Spelled> {
        let siblings = trie.siblings();
        let (mut seen, mut open) = (Vec::new(), vec![(0, Vec::new())]);
        while let Some((at, text)) = open.pop() {
            let node = siblings.nodes()[at];
            for child in node.children() {
                open.push((child, [&text[..], &[siblings.bytes()[child]]].concat()));
            }
            seen.push((text, node, trie.ids()[node.ids()].to_vec(), trie.ids()[node.ids_within()].to_vec()));
        }
        seen
    }

    proptest! {
        #[test]
        fn nodes_know_what_is_below_them(
            tokens in prop::collection::vec(prop::collection::vec(prop::sample::select(b"abc\xc3\x80\xe2".to_vec()), 0..5), 1..20),
        ) {
            let trie = trie(&tokens);
            for (spelling, node, ids, within) in spelled(&trie) {
                prop_assert_eq!(node.text(), text(&spelling));
                let of = |keep: &dyn Fn(&[u8]) -> bool| -> Vec<TokenId> {
                    trie.ids().iter().copied().filter(|id| keep(&tokens[id.index()])).collect()
                };
                prop_assert_eq!(ids, of(&|token| token == spelling));
                prop_assert_eq!(&within, &of(&|token| token.starts_with(&spelling)));
            }
            let siblings = trie.siblings();
            let breaks = |token: &Vec<u8>| (1..=token.len()).any(|end| match text(&token[..end]) {
                Text::Not => !token[end - 1].is_ascii() || text(&token[..end - 1]) == Text::Part,
                _ => false,
            });
            let height = |token: &Vec<u8>| if breaks(token) { SiblingNode::TALL } else { token.len() as u8 };
            prop_assert_eq!(Some(siblings.nodes()[0].height()), tokens.iter().map(height).max());
            let (ascii, foreign): (Vec<u8>, Vec<u8>) =
                tokens.iter().flatten().partition(|byte| byte.is_ascii());
            prop_assert_eq!(siblings.nodes()[0].ascii_below(), ascii.iter().fold(0, |set, byte| set | 1 << byte));
            prop_assert_eq!(siblings.nodes()[0].is_foreign_below(), !foreign.is_empty());
        }

        #[test]
        fn tokens_are_found_by_their_bytes_and_length(
            tokens in prop::collection::vec(prop::collection::vec(prop::sample::select(b" abz\x7f\xc3\x80\xe2".to_vec()), 0..6), 1..30),
            bytes in prop::collection::vec(prop::sample::select(b" abz\x7f".to_vec()), 0..4),
            foreign in any::<bool>(),
            longest in prop::sample::select(vec![0, 1, 2, 3, 33, 254]),
        ) {
            let trie = trie(&tokens);
            let set = bytes.iter().fold(0_u128, |set, byte| set | 1 << byte);
            let mut found = Bitset::new(tokens.len() + 1);
            trie.siblings().spelled_with(set, foreign, longest, &mut found);
            for (id, token) in tokens.iter().enumerate() {
                let is_in = |byte: &u8| if byte.is_ascii() { bytes.contains(byte) } else { foreign };
                let expected = token.len() <= usize::from(longest)
                    && token.iter().all(is_in)
                    && (!foreign || text(token) != Text::Not);
                prop_assert_eq!(found.contains(id), expected);
            }
        }
    }
}
