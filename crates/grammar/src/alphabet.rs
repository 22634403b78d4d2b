//! Bytes that an automaton never tells apart, folded into symbols.

/// A partition of the 256 byte values. Symbols are numbered by their lowest byte, so two equal
/// partitions are equal values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alphabet {
    symbols: Box<[u8; 256]>,
    /// The lowest byte of each symbol, rising.
    representatives: Vec<u8>,
}

impl Alphabet {
    /// Puts two bytes into one symbol if their keys are equal.
    pub(crate) fn by_key<K: PartialEq>(key: impl Fn(u8) -> K) -> Self {
        let mut symbols = Box::new([0; 256]);
        let mut representatives: Vec<u8> = Vec::new();
        let mut keys: Vec<K> = Vec::new();
        for byte in 0..=u8::MAX {
            let own = key(byte);
            let symbol = keys.iter().position(|known| *known == own).unwrap_or_else(|| {
                keys.push(own);
                representatives.push(byte);
                keys.len() - 1
            });
            symbols[usize::from(byte)] = symbol as u8; // at most 256 symbols
        }
        Self { symbols, representatives }
    }

    /// How many symbols there are, 1 to 256.
    pub(crate) fn len(&self) -> usize {
        self.representatives.len()
    }

    /// The symbol of a byte.
    #[inline]
    pub(crate) fn symbol(&self, byte: u8) -> u8 {
        self.symbols[usize::from(byte)]
    }

    /// The lowest byte of each symbol, in the order of the symbols.
    pub(crate) fn representatives(&self) -> &[u8] {
        &self.representatives
    }

    /// Heap bytes held.
    pub(crate) fn byte_len(&self) -> usize {
        size_of::<[u8; 256]>() + self.representatives.capacity()
    }
}
