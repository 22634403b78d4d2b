//! Potentials: nonnegative functions on token sequences, and the cursors that runs walk on.
//!
//! A potential ψ gives every sequence of tokens, ended or not, a nonnegative weight, always as a
//! natural logarithm in f64: `prefix(x) = ln ψ(x)`, `complete(x) = ln ψ(x · EOS)`, and
//! `logw_next(t | x) = prefix(x · t) - prefix(x)`, for EOS `complete(x) - prefix(x)`.
//!
//! A [`Cursor`] holds the states of n sequences in columns. Its requests never block: everybody
//! who needs something in a tick asks first and waits afterwards, so that all that needs the model
//! rides in one forward.
//!
//! Laws, checked by the test kit: consistency (the lines above), soundness (`prefix(x) = -inf`
//! implies `-inf` for every extension), never `+inf` or NaN, and purity.

mod autobatched;
mod automaton;
mod bool_fsa;
mod byte_llm;
mod canonical;
mod coerced;
mod coerced_cursor;
mod ensemble;
mod ensemble_op;
mod entrywise;
mod ext;
mod harmony;
mod llm;
mod mapped;
mod meeting;
mod normalized;
mod product;
mod row;
mod run;
mod sequences;
mod spelling;
mod stateful;
mod states;
mod symbol_map;
mod tempered;
mod ticket;
mod walk;
mod wfsa;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lockstep_engine::vocab::Vocabulary;
use lockstep_grammar::Dfa;
use lockstep_sample::TokenId;

pub use autobatched::Autobatched;
pub use bool_fsa::BoolFsa;
pub use byte_llm::{BeamParams, ByteLlm};
pub use canonical::CanonicalTokenization;
pub use coerced::{CoerceOptions, Coerced};
pub(crate) use coerced_cursor::CoercedCursor;
pub use ensemble::Ensemble;
pub use ensemble_op::EnsembleOp;
pub use ext::PotentialExt;
pub use harmony::Harmony;
pub use llm::PromptedLlm;
pub use meeting::BatchPotential;
pub use normalized::Normalized;
pub use product::Product;
pub use row::{Entries, Row};
pub use run::{Demands, Run};
pub use sequences::{FromSequences, SequencePotential};
pub(crate) use spelling::Spelling;
pub use stateful::{ParticleState, Stateful};
pub use symbol_map::{SymbolFn, SymbolMap};
pub use tempered::Tempered;
pub use ticket::{Answer, Answers, Draws, Ticket, Want};
pub use wfsa::Wfsa;
pub use words::Words;

use crate::error::{ControlError, ErrorKind};

/// What a potential promises about its values. The test kit checks each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Every value is 0 or `-inf`.
    pub boolean: bool,
    /// A live prefix has a completion.
    pub tight: bool,
    /// `ψ(x) = ψ(x · EOS) + Σ_t ψ(x · t)`.
    pub mass_exact: bool,
    /// `prefix` never rises along a sequence.
    pub monotone: bool,
    /// `prefix` is 0 within the vocabulary: only complete sequences are scored.
    pub terminal_only: bool,
}

/// A nonnegative function on token sequences.
pub trait Potential: Send + Sync {
    /// The tokens it reads.
    fn vocab(&self) -> &Arc<Vocabulary>;

    /// What it promises.
    fn claims(&self) -> Claims;

    /// Opens `n` sequences, all empty, within `run`.
    ///
    /// # Errors
    /// If the run cannot hold them.
    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError>;

    /// Adds what `n` sequences of up to `max_tokens` tokens will take of engines' memory.
    ///
    /// # Errors
    /// If a sequence of that length is impossible.
    fn demand(&self, n: usize, max_tokens: usize, demands: &mut Demands) -> Result<(), ControlError> {
        let _ = (n, max_tokens, demands);
        Ok(())
    }

    /// The automaton that decides it, if it is one over bytes.
    fn automaton(&self) -> Option<&Arc<Dfa>> {
        None
    }
}

/// What became of a row.
#[derive(Clone, Debug)]
pub enum Status {
    /// It goes on.
    Live,
    /// Its weight is 0 now and stays so.
    Dead,
    /// It failed.
    Failed(ControlError),
}

impl Status {
    /// The status of a row that weighs so much.
    pub(crate) fn of(weight: &RowResult<f64>) -> Self {
        match weight {
            Err(error) => Self::Failed(error.clone()),
            Ok(f64::NEG_INFINITY) => Self::Dead,
            Ok(_) => Self::Live,
        }
    }

    /// The status of a row that two cursors moved: failed or dead in one is so in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(error), _) | (_, Self::Failed(error)) => Self::Failed(error),
            (Self::Dead, _) | (_, Self::Dead) => Self::Dead,
            (Self::Live, Self::Live) => Self::Live,
        }
    }
}

/// Has the rows of `cursor` take their spans; their weights after that.
pub(crate) fn score_after(
    cursor: &mut dyn Cursor,
    rows: &[usize],
    spans: &[&[TokenId]],
) -> Vec<RowResult<f64>> {
    let statuses = cursor.advance(rows, spans);
    let scores = cursor.score(rows);
    let weight = |(status, score)| if let Status::Failed(error) = status { Err(error) } else { score };
    statuses.into_iter().zip(scores).map(weight).collect()
}

/// Calls `what`, user code: a panic there is an error like any other.
pub(crate) fn guarded<T>(what: &str, call: impl FnOnce() -> RowResult<T>) -> RowResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panic_in(what, &*panic)))
}

/// A panic in `what`, user code, as an error.
pub(crate) fn panic_in(what: &str, panic: &(dyn std::any::Any + Send)) -> ControlError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    ControlError::new(ErrorKind::Custom, format!("{what} panicked: {text}"))
}

pub(crate) fn closed() -> ControlError {
    ControlError::new(ErrorKind::Contract, "the row has ended: nothing can follow EOS")
}

/// A value for a row, or why there is none.
pub type RowResult<T> = Result<T, ControlError>;

/// The states of n sequences, in columns.
///
/// Rows are addressed by index. Dead rows answer `-inf` everywhere. A row advanced by EOS is
/// closed: its score is final and it cannot be advanced again.
pub trait Cursor: Send {
    /// How many rows it has.
    fn len(&self) -> usize;

    /// Whether it has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks something about `rows` (distinct). Never blocks.
    fn request(&mut self, rows: &[usize], want: Want) -> Ticket;

    /// Whether [`Want::Draw`] is answered without a row being looked at.
    fn draws(&self) -> bool {
        false
    }

    /// The allowed positions of `rows`, if the potential is boolean and can tell at once.
    fn masks(&mut self, rows: &[usize]) -> Option<Vec<Arc<lockstep_sample::Bitset>>> {
        let _ = rows;
        None
    }

    /// Each listed row (distinct) consumes the tokens of its span. EOS closes a row.
    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status>;

    /// The log-weight of each row's sequence: `prefix` while it is open, `complete` once closed.
    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>>;

    /// `complete` of each open row.
    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>>;

    /// New row i is a copy of old row `ancestors[i]`; rows may repeat, vanish, grow, shrink.
    fn select(&mut self, ancestors: &[usize]);

    /// A cursor of its own whose row i is a copy of `rows[i]`.
    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor>;

    /// Gives back what `rows` hold; they are dead from now on.
    fn release(&mut self, rows: &[usize]);

    /// The log-weights of the listed tokens after each row: a request and a wait.
    fn probe(&mut self, rows: &[usize], tokens: Vec<Vec<TokenId>>) -> Vec<RowResult<Vec<f64>>> {
        let answers = self.request(rows, Want::Tokens(tokens)).wait();
        answers.into_iter().map(|answer| answer.map(Answer::into_tokens)).collect()
    }

    /// The whole row of next-token log-weights after each row: a request and a wait.
    fn logw_next(&mut self, rows: &[usize]) -> Vec<RowResult<Row>> {
        let answers = self.request(rows, Want::Row).wait();
        answers.into_iter().map(|answer| answer.map(Answer::into_row)).collect()
    }
}
