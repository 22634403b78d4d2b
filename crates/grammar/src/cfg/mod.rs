//! Context-free grammars over text, as boundaries need them: which texts are complete, and a tree.
//!
//! Grammars are written in the notation of Lark. A text is in the language if some derivation spells
//! it: terminals are regular languages matched wherever a rule has them, at any length, without a
//! lexer that would commit to the longest one. What `%ignore` names may stand before every terminal
//! and at the end.
//!
//! ```
//! use lockstep_grammar::{Cfg, CfgOptions};
//!
//! let grammar = r#"
//!     ?sum: product | sum "+" product -> add
//!     ?product: NUMBER | product "*" NUMBER -> mul
//!     NUMBER: /[0-9]+/
//!     %ignore " "
//! "#;
//! let options = CfgOptions { start: "sum".into(), ..CfgOptions::default() };
//! let cfg = Cfg::from_lark(grammar, &options)?;
//! let tree = cfg.parse("1 + 2*3").expect("a sum");
//! assert_eq!(tree.to_string(), "add(NUMBER 1, mul(NUMBER 2, NUMBER 3))");
//! assert!(cfg.parse("1 +").is_none());
//! # Ok::<(), lockstep_grammar::CfgError>(())
//! ```
//!
//! The way of a grammar: `lex` and `read` (notation to definitions), `terminals` (definitions to
//! automata), `compile` (rules to productions), `earley` (a text to a chart of what derives what),
//! `tree` (a chart to one tree).

mod compile;
mod earley;
mod lex;
mod read;
mod terminals;
mod tree;

use std::collections::BTreeSet;

pub use tree::{ParseNode, ParseTree};

use crate::dfa::Dfa;
use crate::limits::Limits;

/// How a grammar is read, and what building its terminals may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CfgOptions {
    /// The rule that texts are derived from. Default `start`.
    pub start: String,
    /// What the construction of each terminal's automaton may use.
    pub limits: Limits,
}

impl Default for CfgOptions {
    fn default() -> Self {
        Self { start: "start".to_owned(), limits: Limits::default() }
    }
}

/// Why a grammar is none. The message is one line, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct CfgError {
    line: usize,
    message: String,
}

impl CfgError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    /// The line of the grammar that the fault lies in, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

/// A context-free grammar over text.
#[derive(Clone, Debug)]
pub struct Cfg {
    symbols: Vec<Nonterminal>,
    terminals: Vec<Terminal>,
    productions: Vec<Production>,
    /// The productions of each symbol.
    by_symbol: Vec<Vec<usize>>,
    /// For a symbol that derives the empty text, a production by which it does, whose symbols were
    /// known to do so before it was.
    empty: Vec<Option<usize>>,
    start: usize,
    names: BTreeSet<String>,
}

/// What a tree shows of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// A node.
    Always,
    /// A node, unless it would have a single child, which then stands for it (`?rule`).
    UnlessSingle,
    /// Its children in its place (`_rule`, and the groups and repetitions of a rule).
    Never,
}

#[derive(Clone, Debug)]
struct Nonterminal {
    name: String,
    shown: Shown,
}

#[derive(Clone, Debug)]
struct Terminal {
    name: String,
    dfa: Dfa,
}

#[derive(Clone, Debug)]
struct Production {
    of: usize,
    right: Vec<Symbol>,
    alias: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Nonterminal(usize),
    /// A terminal, and whether trees show it.
    Terminal(usize, bool),
}

impl Cfg {
    /// The grammar that `text` defines, in a part of Lark's notation: rules (`?`, `!` and `_`
    /// variants), aliases, terminals of strings, regular expressions and ranges, groups, `[ ]`,
    /// `? * + ~`, `%ignore`. Terminals may name terminals.
    ///
    /// # Errors
    /// Naming the line: the notation is malformed, a name is missing or defined twice, a terminal is
    /// no regular expression or matches the empty text, or something is used that is not supported
    /// (`%import`, `%declare`, `%override`, `%extend`, templates, priorities).
    pub fn from_lark(text: &str, options: &CfgOptions) -> Result<Self, CfgError> {
        compile::compile(&read::read(&lex::lex(text)?)?, options)
    }

    /// Whether some derivation spells `text`.
    #[must_use]
    pub fn accepts(&self, text: &str) -> bool {
        earley::Chart::new(self, text).accepted().is_some()
    }

    /// A tree of `text`; `None` if it is not in the language. An ambiguous text has one of its trees,
    /// always the same one; of several alternatives of the start rule the first.
    #[must_use]
    pub fn parse(&self, text: &str) -> Option<ParseTree> {
        let chart = earley::Chart::new(self, text);
        let accepted = chart.accepted()?;
        Some(tree::build(self, &chart, text, accepted))
    }

    /// Whether a node of a tree can have this name: a rule's, an alias, or, for a tree that is a lone
    /// token, a terminal's.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}
