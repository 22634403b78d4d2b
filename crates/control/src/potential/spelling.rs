//! How tokens are spelled in another vocabulary's symbols, and the trie of the spellings.

use std::sync::Arc;

use lockstep_engine::vocab::{TokenTrie, Vocabulary};
use lockstep_sample::TokenId;

use super::coerced::ordinary;
use super::symbol_map::SymbolMap;
use crate::error::{ControlError, ErrorKind};

/// The spelling of each token of a vocabulary.
///
/// A token that has none, such as a special one, is spelled as a symbol that is no member of the
/// inner vocabulary: no potential gives it any weight.
pub(crate) struct Spelling {
    vocab: Arc<Vocabulary>,
    form: Form,
    stranger: TokenId,
}

enum Form {
    /// A token's symbols are its bytes, each its own id. The trie is the vocabulary's, which all share.
    Bytes(Arc<TokenTrie>),
    Symbols(Symbols),
}

/// Spellings by id, and as a trie in preorder: the children of a node follow it, each with its
/// whole subtree.
struct Symbols {
    spellings: Vec<Option<Box<[TokenId]>>>,
    nodes: Vec<Node>,
    /// The spelled tokens in the order of their nodes.
    ids: Vec<TokenId>,
}

/// A node of the trie of spellings; the root has no symbol.
struct Node {
    symbol: TokenId,
    /// The index after the last node of the subtree.
    end: usize,
    ids: std::ops::Range<usize>,
}

/// An id that is no member of `vocab`.
pub(crate) fn stranger(vocab: &Vocabulary) -> TokenId {
    TokenId(u32::try_from(vocab.len()).expect("ids have 32 bits"))
}

impl Spelling {
    /// Tokens as their bytes, for an inner potential over bytes.
    pub(crate) fn bytes(vocab: Arc<Vocabulary>) -> Self {
        let form = Form::Bytes(Arc::clone(vocab.trie()));
        Self { vocab, form, stranger: stranger(&Vocabulary::bytes()) }
    }

    /// Each token as its entry says, in symbols of `inner`; a token without an entry has none.
    pub(crate) fn symbols(
        vocab: Arc<Vocabulary>,
        inner: &Vocabulary,
        spellings: Vec<Option<Box<[TokenId]>>>,
    ) -> Self {
        Self { vocab, form: Form::Symbols(Symbols::new(spellings)), stranger: stranger(inner) }
    }

    /// Each token of `vocab` as the symbols of `item` that are its bytes, one each.
    ///
    /// # Errors
    /// If a symbol of `item` is not one byte, or no token is spelled in its symbols.
    pub(crate) fn flattened(vocab: Arc<Vocabulary>, item: &Vocabulary) -> Result<Self, ControlError> {
        if item.same_tokens(&Vocabulary::bytes()) {
            return Ok(Self::bytes(vocab));
        }
        if let Some(symbol) = ordinary(item).find(|symbol| item.bytes_of(*symbol).len() != 1) {
            let message = format!(
                "the item potential must read single bytes, but its token {symbol} is `{}`",
                item.display(symbol)
            );
            return Err(ControlError::new(ErrorKind::Vocabulary, message));
        }
        let spellings = SymbolMap::Bytes.spellings(&vocab, item)?;
        if spellings.iter().all(Option::is_none) {
            let message = "no token is a sequence of the item potential's symbols";
            return Err(ControlError::new(ErrorKind::Vocabulary, message));
        }
        Ok(Self::symbols(vocab, item, spellings))
    }

    pub(crate) fn vocab(&self) -> &Arc<Vocabulary> {
        &self.vocab
    }

    /// Appends the symbols of `token`; of the end, the end.
    pub(crate) fn spell(&self, token: TokenId, out: &mut Vec<TokenId>) {
        if token.is_eos() {
            return out.push(token);
        }
        match &self.form {
            Form::Bytes(_) if self.vocab.is_member(token) && !self.vocab.is_special(token) => {
                out.extend(self.vocab.bytes_of(token).iter().map(|byte| TokenId(u32::from(*byte))));
            }
            Form::Bytes(_) => out.push(self.stranger),
            Form::Symbols(Symbols { spellings, .. }) => match spellings.get(token.index()) {
                Some(Some(symbols)) => out.extend(symbols),
                _ => out.push(self.stranger),
            },
        }
    }

    /// The tokens that end at `node`. The root is node 0.
    pub(crate) fn ids(&self, node: usize) -> &[TokenId] {
        match &self.form {
            Form::Bytes(trie) => &trie.ids()[trie.nodes()[node].ids()],
            Form::Symbols(Symbols { nodes, ids, .. }) => &ids[nodes[node].ids.clone()],
        }
    }

    /// The tokens that end at `node` or below.
    pub(crate) fn ids_within(&self, node: usize) -> &[TokenId] {
        let end = self.end(node);
        match &self.form {
            Form::Bytes(trie) => {
                let to = trie.nodes().get(end).map_or(trie.ids().len(), |after| after.ids().start);
                &trie.ids()[trie.nodes()[node].ids().start..to]
            }
            Form::Symbols(Symbols { nodes, ids, .. }) => {
                let to = nodes.get(end).map_or(ids.len(), |after| after.ids.start);
                &ids[nodes[node].ids.start..to]
            }
        }
    }

    /// The symbol on the edge into `node`.
    pub(crate) fn symbol(&self, node: usize) -> TokenId {
        match &self.form {
            Form::Bytes(trie) => TokenId(u32::from(trie.nodes()[node].byte())),
            Form::Symbols(Symbols { nodes, .. }) => nodes[node].symbol,
        }
    }

    fn end(&self, node: usize) -> usize {
        match &self.form {
            Form::Bytes(trie) => trie.nodes()[node].end(),
            Form::Symbols(Symbols { nodes, .. }) => nodes[node].end,
        }
    }

    pub(crate) fn is_leaf(&self, node: usize) -> bool {
        self.end(node) == node + 1
    }

    /// The children of `node`.
    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.end(node);
        let sibling = move |child: usize| (child < end).then_some(child);
        std::iter::successors(sibling(node + 1), move |child| sibling(self.end(*child)))
    }
}

impl Symbols {
    fn new(spellings: Vec<Option<Box<[TokenId]>>>) -> Self {
        let spelled = spellings.iter().zip(0..).filter_map(|(s, id)| Some((&**s.as_ref()?, TokenId(id))));
        let mut spelled: Vec<(&[TokenId], TokenId)> = spelled.collect();
        spelled.sort_unstable();
        let mut nodes = vec![Node { symbol: TokenId::EOS, end: 0, ids: 0..0 }];
        let mut ids = Vec::with_capacity(spelled.len());
        // The open nodes from the root to the last token's node, and that token's symbols.
        let (mut path, mut last): (Vec<usize>, &[TokenId]) = (vec![0], &[]);
        for (symbols, id) in spelled {
            let shared = symbols.iter().zip(last).take_while(|(a, b)| a == b).count();
            for node in path.drain(shared + 1..) {
                nodes[node].end = nodes.len();
            }
            for &symbol in &symbols[shared..] {
                path.push(nodes.len());
                nodes.push(Node { symbol, end: 0, ids: ids.len()..ids.len() });
            }
            ids.push(id);
            nodes[path[symbols.len()]].ids.end = ids.len();
            last = symbols;
        }
        for node in path {
            nodes[node].end = nodes.len();
        }
        Self { spellings, nodes, ids }
    }
}
