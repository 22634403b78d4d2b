//! What a generating row's tokens must obey.

use std::fmt;
use std::sync::Arc;

use lockstep_sample::{Bitset, TokenId};

/// A language of token sequences, at the state after the tokens accepted so far.
///
/// It is called on a thread of its own, while the forward runs. A failure or panic ends its row and
/// no other; one that hangs delays its row alone.
pub trait Constraint: Send {
    /// The ids that may come next, over the vocabulary's ids; every id stands for itself, those of
    /// the end-of-sequence set included.
    ///
    /// # Errors
    /// Ends the row, with this message.
    fn mask(&mut self) -> Result<Arc<Bitset>, String>;

    /// Takes a token that the last mask allowed.
    ///
    /// # Errors
    /// Ends the row, with this message.
    fn accept(&mut self, token: TokenId) -> Result<(), String>;
}

impl fmt::Debug for dyn Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}
