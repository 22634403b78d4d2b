//! Languages over bytes, as automata that know which prefixes can still be completed.
//!
//! A pattern or a list of strings becomes a [`Dfa`]: the minimal deterministic automaton of its
//! language, without any state from which acceptance is out of reach. So a prefix is alive, that
//! is [`Dfa::next`] has answered for each of its bytes, if and only if some accepted text extends
//! it. A [`Wfsa`] gives texts weights, and knows the total weight of all that extend a prefix.
//! A [`Cfg`] is a context-free grammar that tells which texts are complete and gives them trees.
//! Nothing here knows of tokens or models.
//!
//! ```
//! use lockstep_grammar::{Dfa, RegexOptions};
//!
//! let dfa = Dfa::from_regex(r"\d{4}-\d{2}", &RegexOptions { unicode: false, ..Default::default() })?;
//! assert!(dfa.accepts(b"2024-07"));
//! let after_two = dfa.next(dfa.start(), b'2').expect("a digit may begin");
//! assert!(dfa.next(after_two, b'-').is_none());
//! # Ok::<(), lockstep_grammar::RegexError>(())
//! ```
//!
//! The way of a pattern: `syntax` (pattern to syntax tree, or an error that names the construct),
//! `nfa` (tree to automaton over bytes), `subset` (determinisation, with `look` deciding the
//! zero-width assertions) or, for patterns with look-aheads, `ahead`, then `minimize` (trim, merging
//! in `finite`, refinement of a `partition`, canonical numbering).

mod ahead;
mod alphabet;
mod cfg;
mod charset;
mod dfa;
mod error;
mod finite;
mod interned;
mod limits;
mod log_sum;
mod look;
mod minimize;
mod nfa;
mod partition;
mod product;
mod strings;
mod subset;
mod syntax;
mod wfsa;

pub use cfg::{Cfg, CfgError, CfgOptions, ParseNode, ParseTree};
pub use dfa::{Dfa, StateId};
pub use error::{RegexError, RegexErrorKind};
pub use limits::Limits;
pub use syntax::RegexOptions;
pub use wfsa::{Forward, WeightedArc, Wfsa};
