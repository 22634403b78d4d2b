//! From a chart to a tree.

use std::fmt;

use super::earley::{Chart, Child, Place};
use super::{Cfg, Shown, Symbol};

/// A node of a tree: a rule, or an alias of one of its alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTree {
    /// The rule or alias; of a text that is a lone token, the terminal.
    pub rule: String,
    /// What it is made of, in order.
    pub children: Vec<ParseNode>,
}

/// A child of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseNode {
    /// Another node.
    Tree(ParseTree),
    /// A terminal and what it matched. Strings are left out, except in `!` rules, and so are terminals
    /// whose names begin with `_`.
    Token {
        /// Its name; of one that a rule writes out, what is written.
        terminal: String,
        /// What it matched.
        text: String,
    },
}

impl fmt::Display for ParseTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.rule)?;
        for (i, child) in self.children.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match child {
                ParseNode::Tree(tree) => write!(f, "{comma}{tree}")?,
                ParseNode::Token { terminal, text } => write!(f, "{comma}{terminal} {text}")?,
            }
        }
        f.write_str(")")
    }
}

/// A node on its way: a production, what it has read, and the children it shows.
struct Frame {
    production: usize,
    reads: Vec<Child>,
    next: usize,
    shows: Vec<ParseNode>,
}

/// The tree of what the item at `place`, of the start symbol, has read. The stack is explicit: lists
/// nest as deep as they are long.
pub(super) fn build(cfg: &Cfg, chart: &Chart<'_>, text: &str, place: Place) -> ParseTree {
    let derived = |place: Place| Frame {
        production: chart.item(place).production,
        reads: chart.children(place),
        next: 0,
        shows: Vec::new(),
    };
    let empty = |symbol: usize| {
        let production = cfg.empty[symbol].expect("an empty symbol has an empty production");
        let reads = cfg.productions[production].right.iter().map(|symbol| match symbol {
            Symbol::Nonterminal(symbol) => Child::Empty(*symbol),
            Symbol::Terminal(..) => unreachable!("an empty production has no terminals"),
        });
        Frame { production, reads: reads.collect(), next: 0, shows: Vec::new() }
    };
    let mut stack = vec![derived(place)];
    loop {
        let frame = stack.last_mut().expect("the last frame returns");
        let Some(child) = frame.reads.get(frame.next) else {
            let Frame { production, shows, .. } = stack.pop().expect("there is a frame");
            let nodes = shown(cfg, production, shows);
            match stack.last_mut() {
                Some(parent) => parent.shows.extend(nodes),
                None => return root(nodes),
            }
            continue;
        };
        let symbol = cfg.productions[frame.production].right[frame.next];
        frame.next += 1;
        match (*child, symbol) {
            (Child::Derived(place), _) => {
                let frame = derived(place);
                stack.push(frame);
            }
            (Child::Empty(symbol), _) => {
                let frame = empty(symbol);
                stack.push(frame);
            }
            (Child::Token { start, end }, Symbol::Terminal(terminal, true)) => {
                let terminal = cfg.terminals[terminal].name.clone();
                frame.shows.push(ParseNode::Token { terminal, text: text[start..end].to_owned() });
            }
            (Child::Token { .. }, _) => {}
        }
    }
}

/// What a production shows of itself and its children.
fn shown(cfg: &Cfg, production: usize, children: Vec<ParseNode>) -> Vec<ParseNode> {
    let production = &cfg.productions[production];
    let symbol = &cfg.symbols[production.of];
    let is_single = children.len() == 1 && production.alias.is_none();
    match symbol.shown {
        Shown::Never if production.alias.is_none() => children,
        Shown::UnlessSingle if is_single => children,
        _ => {
            let rule = production.alias.clone().unwrap_or_else(|| symbol.name.clone());
            vec![ParseNode::Tree(ParseTree { rule, children })]
        }
    }
}

/// The tree whose root shows `nodes`.
fn root(mut nodes: Vec<ParseNode>) -> ParseTree {
    match (nodes.len(), nodes.pop()) {
        (1, Some(ParseNode::Tree(tree))) => tree,
        (1, Some(token @ ParseNode::Token { .. })) => {
            let ParseNode::Token { terminal, .. } = &token else { unreachable!("it is a token") };
            ParseTree { rule: terminal.clone(), children: vec![token] }
        }
        (_, last) => {
            // A start rule that shows only its children.
            nodes.extend(last);
            ParseTree { rule: String::new(), children: nodes }
        }
    }
}
