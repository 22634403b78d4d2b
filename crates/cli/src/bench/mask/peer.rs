//! llguidance on the same vocabulary, if it is built in.

use lockstep::engine::TokenId;
use lockstep::engine::vocab::Vocabulary;

/// What this program is built without.
#[cfg(not(feature = "peers"))]
pub(super) const MISSING: &str = "not built: --features peers";

/// Compiles patterns.
pub(super) struct Peer(
    #[cfg(feature = "peers")] llguidance::ParserFactory,
    #[cfg(not(feature = "peers"))] Never,
);

/// A pattern and what was read of it.
pub(super) struct Matcher(
    #[cfg(feature = "peers")] llguidance::Matcher,
    #[cfg(not(feature = "peers"))] Never,
);

#[cfg(not(feature = "peers"))]
enum Never {}

#[cfg(not(feature = "peers"))]
impl Peer {
    pub(super) fn new(_: &Vocabulary) -> Option<Self> {
        None
    }

    pub(super) fn compile(&self, _: &str) -> Result<Matcher, String> {
        match self.0 {}
    }
}

#[cfg(not(feature = "peers"))]
impl Matcher {
    pub(super) fn fork(&self) -> Self {
        match self.0 {}
    }

    pub(super) fn mask(&mut self) -> Option<Vec<u32>> {
        match self.0 {}
    }

    pub(super) fn allows(&mut self, _: TokenId) -> bool {
        match self.0 {}
    }

    pub(super) fn read(&mut self, _: TokenId) -> bool {
        match self.0 {}
    }
}

#[cfg(feature = "peers")]
impl Peer {
    /// llguidance with its own defaults. `None` if the vocabulary has no end of sequence.
    pub(super) fn new(vocab: &Vocabulary) -> Option<Self> {
        use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
        let size = u32::try_from(vocab.len()).ok()?;
        let words: Vec<Vec<u8>> = (0..size)
            .map(|id| match vocab.is_special(TokenId(id)) {
                // Its mark of special tokens.
                true => [b"\xFF", vocab.text_of(TokenId(id))].concat(),
                false => vocab.bytes_of(TokenId(id)).to_vec(),
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, vocab.eos().lowest()?), &words);
        let tokens: TokEnv = std::sync::Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = llguidance::ParserFactory::new_simple(&tokens).ok()?;
        factory.quiet();
        Some(Self(factory))
    }

    pub(super) fn compile(&self, pattern: &str) -> Result<Matcher, String> {
        let grammar = llguidance::api::TopLevelGrammar::from_regex(pattern);
        let matcher = llguidance::Matcher::new(self.0.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(error),
            None => Ok(Matcher(matcher)),
        }
    }
}

#[cfg(feature = "peers")]
impl Matcher {
    /// A copy, for use in the same thread.
    pub(super) fn fork(&self) -> Self {
        Self(self.0.clone())
    }

    /// The allowed tokens as words of 32 bits; it keeps the last mask, which is dropped first.
    pub(super) fn mask(&mut self) -> Option<Vec<u32>> {
        self.0.invalidate_bias_cache();
        Some(self.0.compute_mask().ok()?.as_slice().to_vec())
    }

    pub(super) fn allows(&mut self, token: TokenId) -> bool {
        self.0.validate_tokens(&[token.0]).is_ok_and(|n| n == 1)
    }

    /// Reads a token; false once it refuses one.
    pub(super) fn read(&mut self, token: TokenId) -> bool {
        self.0.consume_token(token.0).is_ok()
    }
}
