//! Look-ahead: `(?=body)` and `(?!body)`, wherever no repetition repeats them.
//!
//! A body asks whether the rest of the text has a prefix that it matches. `extract` takes the
//! bodies out of the syntax tree, `debts` determinises: a thread that has passed a look-ahead owes
//! its answer, and the body is read along with what follows. So assertions inside a body and beside
//! it see the text as it is, and the result is exact: `A(?=B)C` is `A((B.*) ∩ C)`, `A(?!B)C` is
//! `A(C \ (B.*))`.

mod debts;
mod extract;

pub(crate) use debts::determinize;
pub(crate) use extract::{LookAhead, extract, hide, mark};
