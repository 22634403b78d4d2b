//! Requests on a cursor, and the tickets that answer them.

use std::sync::Arc;

use lockstep_sample::{Bitset, DrawKey, DrawMethod, Drawn, TokenId};

use super::{Row, RowResult};

/// What is wanted of each row of a request.
#[derive(Clone, Debug)]
pub enum Want {
    /// A token drawn in proportion to the row's weights. Only of cursors that
    /// [draw](super::Cursor::draws).
    Draw(Draws),
    /// The whole row.
    Row,
    /// The log-weights of a few tokens, a list for each row.
    Tokens(Vec<Vec<TokenId>>),
    /// Nothing yet: the row is kept, so that advancing it needs no further forward.
    Hold,
}

/// The draws of a request: a key for each row, and the allowed positions if not all are.
#[derive(Clone, Debug)]
pub struct Draws {
    /// Fixes each row's noise.
    pub keys: Vec<DrawKey>,
    /// How to draw.
    pub method: DrawMethod,
    /// For each row the allowed positions.
    pub masks: Option<Vec<Arc<Bitset>>>,
}

/// The answer for one row.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Want::Draw`]; `None` if the row is dead.
    Draw(Option<Drawn>),
    /// To [`Want::Row`].
    Row(Row),
    /// To [`Want::Tokens`], in order.
    Tokens(Vec<f64>),
    /// To [`Want::Hold`].
    Held,
}

impl Answer {
    /// The row of an answer to [`Want::Row`]; a dead row for anything else.
    #[must_use]
    pub fn into_row(self) -> Row {
        if let Self::Row(row) = self { row } else { Row::dead() }
    }

    /// The log-weights of an answer to [`Want::Tokens`]; none for anything else.
    #[must_use]
    pub fn into_tokens(self) -> Vec<f64> {
        if let Self::Tokens(weights) = self { weights } else { Vec::new() }
    }

    /// The draw of an answer to [`Want::Draw`]; none for anything else.
    #[must_use]
    pub fn into_draw(self) -> Option<Drawn> {
        if let Self::Draw(drawn) = self { drawn } else { None }
    }
}

/// An answer for each row of a request, in its order.
pub type Answers = Vec<RowResult<Answer>>;

/// Answers on their way.
#[must_use = "a request is answered when its ticket is waited for"]
pub struct Ticket(Box<dyn FnOnce() -> Answers + Send>);

impl Ticket {
    /// Answers that are there already.
    pub fn ready(answers: Answers) -> Self {
        Self(Box::new(|| answers))
    }

    /// Answers that `collect` waits for.
    pub fn deferred(collect: impl FnOnce() -> Answers + Send + 'static) -> Self {
        Self(Box::new(collect))
    }

    /// Blocks until they are there.
    #[must_use]
    pub fn wait(self) -> Answers {
        (self.0)()
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}
