//! From definitions to productions.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Alternative, Alternatives, Definition, Expr, Grammar, is_terminal};
use super::terminals::Definitions;
use super::{Cfg, CfgError, CfgOptions, Nonterminal, Production, Shown, Symbol, Terminal};

/// The most symbols that all productions may have together: counted repetitions write theirs out.
const MAX_SYMBOLS: usize = 1 << 18;

pub(super) fn compile(grammar: &Grammar, options: &CfgOptions) -> Result<Cfg, CfgError> {
    let mut compiler = Compiler::new(grammar, options)?;
    for definition in &grammar.definitions {
        if !is_terminal(&definition.name) {
            compiler.rule(definition)?;
        }
    }
    let Some(&rule) = compiler.rules.get(options.start.as_str()) else {
        return Err(CfgError::new(1, format!("there is no rule `{}` to start from", options.start)));
    };
    // A text may end with what is ignored.
    let start = compiler.symbol("", Shown::Never);
    let mut right = vec![Symbol::Nonterminal(rule)];
    right.extend(compiler.ignored.map(Symbol::Nonterminal));
    compiler.produce(start, right, None, 1)?;
    Ok(compiler.finish(start))
}

struct Compiler<'a> {
    definitions: Definitions<'a>,
    rules: BTreeMap<&'a str, usize>,
    /// The symbol of any number of ignored terminals, if there are some.
    ignored: Option<usize>,
    symbols: Vec<Nonterminal>,
    terminals: Vec<Terminal>,
    terminal_ids: BTreeMap<String, usize>,
    productions: Vec<Production>,
    size: usize,
}

impl<'a> Compiler<'a> {
    fn new(grammar: &'a Grammar, options: &CfgOptions) -> Result<Self, CfgError> {
        let mut compiler = Self {
            definitions: Definitions::new(&grammar.definitions, &options.limits),
            rules: BTreeMap::new(),
            ignored: None,
            symbols: Vec::new(),
            terminals: Vec::new(),
            terminal_ids: BTreeMap::new(),
            productions: Vec::new(),
            size: 0,
        };
        let mut known = BTreeSet::new();
        for definition in &grammar.definitions {
            let Definition { name, line, inlines_single, .. } = definition;
            if !known.insert(name.as_str()) {
                return Err(CfgError::new(*line, format!("`{name}` is defined twice")));
            }
            if is_terminal(name) {
                // Unused ones are checked too.
                compiler.terminal(name, *line)?;
            } else {
                let shown = match (name.starts_with('_'), inlines_single) {
                    (true, _) => Shown::Never,
                    (false, true) => Shown::UnlessSingle,
                    (false, false) => Shown::Always,
                };
                let symbol = compiler.symbol(name, shown);
                compiler.rules.insert(name, symbol);
            }
        }
        if !grammar.ignored.is_empty() {
            let any = compiler.symbol("", Shown::Never);
            compiler.produce(any, Vec::new(), None, 1)?;
            for (body, line) in &grammar.ignored {
                let terminal = compiler.anonymous("what is ignored", body, *line)?;
                let right = vec![Symbol::Nonterminal(any), Symbol::Terminal(terminal, false)];
                compiler.produce(any, right, None, *line)?;
            }
            compiler.ignored = Some(any);
        }
        Ok(compiler)
    }

    fn symbol(&mut self, name: &str, shown: Shown) -> usize {
        self.symbols.push(Nonterminal { name: name.to_owned(), shown });
        self.symbols.len() - 1
    }

    fn produce(
        &mut self,
        of: usize,
        right: Vec<Symbol>,
        alias: Option<String>,
        line: usize,
    ) -> Result<(), CfgError> {
        self.size += right.len() + 1;
        if self.size > MAX_SYMBOLS {
            return Err(CfgError::new(line, format!("the grammar is larger than {MAX_SYMBOLS} symbols")));
        }
        self.productions.push(Production { of, right, alias });
        Ok(())
    }

    fn rule(&mut self, definition: &Definition) -> Result<(), CfgError> {
        let symbol = self.rules[definition.name.as_str()];
        self.alternatives(symbol, &definition.body, definition)
    }

    fn alternatives(&mut self, of: usize, body: &Alternatives, rule: &Definition) -> Result<(), CfgError> {
        for Alternative { items, alias } in body {
            let mut right = Vec::with_capacity(items.len());
            for item in items {
                self.item(item, rule, &mut right)?;
            }
            self.produce(of, right, alias.clone(), rule.line)?;
        }
        Ok(())
    }

    /// Appends an item's symbols.
    fn item(&mut self, item: &Expr, rule: &Definition, right: &mut Vec<Symbol>) -> Result<(), CfgError> {
        let line = rule.line;
        let (terminal, is_shown) = match item {
            Expr::Name(name) if is_terminal(name) => (self.terminal(name, line)?, !name.starts_with('_')),
            Expr::Name(name) => {
                let symbol = self.rules.get(name.as_str()).copied();
                let symbol =
                    symbol.ok_or_else(|| CfgError::new(line, format!("the rule `{name}` is not defined")))?;
                right.push(Symbol::Nonterminal(symbol));
                return Ok(());
            }
            Expr::Group(body) => {
                let group = self.symbol("", Shown::Never);
                self.alternatives(group, body, rule)?;
                right.push(Symbol::Nonterminal(group));
                return Ok(());
            }
            Expr::Repeat { of, min, max } => return self.repeat(of, *min, *max, rule, right),
            Expr::Text(text, _) => (self.literal(text, item, line)?, false),
            Expr::Regex(pattern, _) => (self.literal(&format!("/{pattern}/"), item, line)?, true),
            Expr::Range(first, last) => (self.literal(&format!("{first}..{last}"), item, line)?, true),
        };
        right.extend(self.ignored.map(Symbol::Nonterminal));
        right.push(Symbol::Terminal(terminal, is_shown || rule.shows_all));
        Ok(())
    }

    fn repeat(
        &mut self,
        of: &Expr,
        min: u32,
        max: Option<u32>,
        rule: &Definition,
        right: &mut Vec<Symbol>,
    ) -> Result<(), CfgError> {
        let mut once = Vec::new();
        self.item(of, rule, &mut once)?;
        for _ in 0..min {
            if right.len() + once.len() > MAX_SYMBOLS {
                return Err(CfgError::new(
                    rule.line,
                    format!("the grammar is larger than {MAX_SYMBOLS} symbols"),
                ));
            }
            right.extend(&once);
        }
        match max {
            None => {
                let more = self.symbol("", Shown::Never);
                self.produce(more, Vec::new(), None, rule.line)?;
                let again = [&[Symbol::Nonterminal(more)], once.as_slice()].concat();
                self.produce(more, again, None, rule.line)?;
                right.push(Symbol::Nonterminal(more));
            }
            Some(max) if max > min => {
                // One more, then up to one less more, and so on inwards.
                let mut inner: Option<usize> = None;
                for _ in min..max {
                    let optional = self.symbol("", Shown::Never);
                    self.produce(optional, Vec::new(), None, rule.line)?;
                    let mut next = once.clone();
                    next.extend(inner.map(Symbol::Nonterminal));
                    self.produce(optional, next, None, rule.line)?;
                    inner = Some(optional);
                }
                right.extend(inner.map(Symbol::Nonterminal));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// A terminal with a definition.
    fn terminal(&mut self, name: &str, line: usize) -> Result<usize, CfgError> {
        if let Some(known) = self.terminal_ids.get(name) {
            return Ok(*known);
        }
        let definition = self.definitions.find(name);
        let definition =
            definition.ok_or_else(|| CfgError::new(line, format!("the terminal `{name}` is not defined")))?;
        let dfa = self.definitions.automaton(&format!("`{name}`"), &definition.body, definition.line)?;
        self.terminals.push(Terminal { name: name.to_owned(), dfa });
        self.terminal_ids.insert(name.to_owned(), self.terminals.len() - 1);
        Ok(self.terminals.len() - 1)
    }

    /// A terminal that a rule writes out.
    fn literal(&mut self, name: &str, item: &Expr, line: usize) -> Result<usize, CfgError> {
        let key = format!("{item:?}");
        if let Some(known) = self.terminal_ids.get(&key) {
            return Ok(*known);
        }
        let body = vec![Alternative { items: vec![item.clone()], alias: None }];
        let terminal = self.anonymous(&format!("{name:?}"), &body, line)?;
        name.clone_into(&mut self.terminals[terminal].name);
        self.terminal_ids.insert(key, terminal);
        Ok(terminal)
    }

    fn anonymous(&mut self, what: &str, body: &Alternatives, line: usize) -> Result<usize, CfgError> {
        let dfa = self.definitions.automaton(what, body, line)?;
        self.terminals.push(Terminal { name: String::new(), dfa });
        Ok(self.terminals.len() - 1)
    }

    fn finish(self, start: usize) -> Cfg {
        let Self { symbols, terminals, productions, .. } = self;
        let mut by_symbol = vec![Vec::new(); symbols.len()];
        for (i, production) in productions.iter().enumerate() {
            by_symbol[production.of].push(i);
        }
        let names = symbols
            .iter()
            .filter(|symbol| symbol.shown != Shown::Never)
            .map(|symbol| symbol.name.clone())
            .chain(productions.iter().filter_map(|production| production.alias.clone()))
            .chain(terminals.iter().map(|terminal| terminal.name.clone()))
            .filter(|name| !name.is_empty())
            .collect();
        let empty = empty_productions(symbols.len(), &productions);
        Cfg { symbols, terminals, productions, by_symbol, empty, start, names }
    }
}

/// For each symbol that derives the empty text, the first production found by which it does.
fn empty_productions(symbols: usize, productions: &[Production]) -> Vec<Option<usize>> {
    let mut empty: Vec<Option<usize>> = vec![None; symbols];
    loop {
        let before = empty.clone();
        for (i, production) in productions.iter().enumerate() {
            let is_empty = |symbol: &Symbol| matches!(symbol, Symbol::Nonterminal(n) if before[*n].is_some());
            if empty[production.of].is_none() && production.right.iter().all(is_empty) {
                empty[production.of] = Some(i);
            }
        }
        if empty == before {
            return empty;
        }
    }
}
