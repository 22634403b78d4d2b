//! Where tokens sit in a row of next-token weights.
//!
//! A token's position is its id. The end symbol, which has the folded mass of the
//! end-of-sequence set, sits at the set's lowest id, or behind the last id if the set is empty.
//! The other ids of the set have no mass of their own. Pruning never renumbers.

use lockstep_sample::TokenId;

use super::Vocabulary;

impl Vocabulary {
    /// How many positions a row has.
    #[must_use]
    pub fn row_len(&self) -> usize {
        self.len() + usize::from(self.eos().ids().is_empty())
    }

    /// The position of the end symbol.
    #[must_use]
    pub fn eos_position(&self) -> usize {
        self.eos().lowest().map_or(self.len(), |id| id as usize)
    }

    /// The position of a token or the end symbol.
    #[must_use]
    pub fn position_of(&self, token: TokenId) -> usize {
        if token.is_eos() { self.eos_position() } else { token.index() }
    }

    /// The token at a position: the end symbol at its own.
    #[must_use]
    pub fn token_at(&self, position: usize) -> TokenId {
        match u32::try_from(position) {
            Ok(id) if position != self.eos_position() => TokenId(id),
            _ => TokenId::EOS,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_sample::EosSet;

    use super::*;
    use crate::vocab::TokenEntry;

    #[test]
    fn the_end_sits_at_its_lowest_id_or_behind_the_last() {
        let tokens = vec![TokenEntry { bytes: b"a".to_vec(), special: false }; 4];
        let two = Vocabulary::new(tokens, EosSet::new([3, 1])).unwrap();
        assert_eq!((two.row_len(), two.eos_position()), (4, 1));
        assert_eq!(two.token_at(1), TokenId::EOS);
        assert_eq!(two.token_at(3), TokenId(3));
        let bytes = Vocabulary::bytes();
        assert_eq!((bytes.row_len(), bytes.eos_position()), (257, 256));
        assert_eq!(bytes.position_of(TokenId::EOS), 256);
    }
}
