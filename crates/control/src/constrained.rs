//! A boolean potential as the constraint of a generating row.

use std::sync::Arc;

use lockstep_engine::generation::Constraint;
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::{Bitset, TokenId};

use crate::error::{ControlError, ErrorKind};
use crate::potential::{Cursor, Potential, Run, Status};

/// The constraint that lets a row write what `potential` allows: a boolean potential over the row's
/// tokens that knows its masks, such as [`Coerced`](crate::Coerced) of an automaton.
///
/// # Errors
/// If it is not boolean, or cannot be opened.
pub fn constraint(potential: &dyn Potential) -> Result<Box<dyn Constraint>, ControlError> {
    if !potential.claims().boolean {
        let message = "a constraint must be boolean: use a potential that only allows or forbids";
        return Err(ControlError::new(ErrorKind::Argument, message));
    }
    let cursor = potential.open(1, &Run::default())?;
    Ok(Box::new(PotentialConstraint { cursor, vocab: Arc::clone(potential.vocab()) }))
}

struct PotentialConstraint {
    cursor: Box<dyn Cursor>,
    vocab: Arc<Vocabulary>,
}

impl Constraint for PotentialConstraint {
    fn mask(&mut self) -> Result<Arc<Bitset>, String> {
        let masks = self.cursor.masks(&[0]).ok_or("the potential cannot tell what it allows")?;
        let mask = masks.into_iter().next().ok_or("the potential told nothing")?;
        let eos = self.vocab.eos();
        if eos.ids().len() == 1 {
            return Ok(mask);
        }
        // A row draws real ids: what allows the end allows each of its ids.
        let mut ids = Bitset::from_ids(
            self.vocab.len(),
            mask.iter().filter(|id| *id < self.vocab.len()).map(|id| id as u32),
        );
        if mask.contains(self.vocab.eos_position()) {
            eos.ids().iter().for_each(|id| ids.insert(*id as usize));
        }
        Ok(Arc::new(ids))
    }

    fn accept(&mut self, token: TokenId) -> Result<(), String> {
        let token = if self.vocab.eos().ids().contains(&token.0) { TokenId::EOS } else { token };
        match self.cursor.advance(&[0], &[&[token]]).into_iter().next() {
            Some(Status::Live) => Ok(()),
            Some(Status::Failed(error)) => Err(error.to_string()),
            Some(Status::Dead) | None => Err(format!("{token} is not allowed here")),
        }
    }
}
