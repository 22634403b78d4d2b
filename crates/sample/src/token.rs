//! Token ids.

use std::fmt;

/// A token of a vocabulary, by its index. Two ids with equal bytes are two tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TokenId(pub u32);

impl TokenId {
    /// The end symbol. It stands for the whole end-of-sequence set of a model and is no index.
    pub const EOS: Self = Self(u32::MAX);

    /// Whether this is the end symbol.
    #[must_use]
    pub const fn is_eos(self) -> bool {
        self.0 == u32::MAX
    }

    /// The id as an index into a row. Meaningless for [`TokenId::EOS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_eos() { f.write_str("EOS") } else { self.0.fmt(f) }
    }
}

impl From<u32> for TokenId {
    fn from(id: u32) -> Self {
        Self(id)
    }
}
