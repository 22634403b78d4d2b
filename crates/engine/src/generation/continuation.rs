//! A finished row's state, to go on from.

use lockstep_sample::TokenId;

use crate::kv::Reservation;
use crate::model::SeqId;
use crate::scheduler::Command;
use crate::sync::{Sender, Weak};

/// What a finished row has read and drawn, with the model's memory of it.
///
/// Put into [`RowSpec::continues`](super::RowSpec::continues), the next row goes on from here and
/// costs only its new tokens. Dropping it frees the memory.
#[derive(Debug)]
pub struct Continuation {
    pub(crate) sequence: LooseSequence,
    pub(crate) held: Vec<TokenId>,
    pub(crate) pending: Option<TokenId>,
    pub(crate) adapter: Option<String>,
    /// Memory for what is held.
    pub(crate) reservation: Reservation,
}

impl Continuation {
    /// The tokens that the model's memory holds, in order.
    #[must_use]
    pub fn held(&self) -> &[TokenId] {
        &self.held
    }

    /// The last drawn token, which was not fed: a continuing row feeds it first.
    #[must_use]
    pub fn pending(&self) -> Option<TokenId> {
        self.pending
    }
}

/// A sequence of the model that nobody else knows of: freed with this.
#[derive(Debug)]
pub(crate) struct LooseSequence {
    id: SeqId,
    /// Weak, so that it does not keep the engine running.
    commands: Weak<Sender<Command>>,
}

impl LooseSequence {
    pub(crate) fn new(id: SeqId, commands: Weak<Sender<Command>>) -> Self {
        Self { id, commands }
    }

    /// Whether it is a sequence of the engine that listens to these commands.
    pub(crate) fn belongs_to(&self, commands: &Weak<Sender<Command>>) -> bool {
        self.commands.ptr_eq(commands)
    }

    /// The sequence, whose owner the caller becomes.
    pub(crate) fn into_id(mut self) -> SeqId {
        self.commands = Weak::new();
        self.id
    }
}

impl Drop for LooseSequence {
    fn drop(&mut self) {
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::Free(self.id));
        }
    }
}
