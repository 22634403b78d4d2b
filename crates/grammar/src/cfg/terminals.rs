//! Terminals: from definitions to automata, by way of one regular expression each.

use std::collections::BTreeMap;

use super::CfgError;
use super::read::{Alternatives, Definition, Expr, is_terminal};
use crate::dfa::Dfa;
use crate::limits::Limits;
use crate::syntax::RegexOptions;

/// The longest regular expression that a terminal may become, in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// The terminals that a grammar defines, by name.
pub(super) struct Definitions<'a> {
    by_name: BTreeMap<&'a str, &'a Definition>,
    limits: Limits,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(definitions: &'a [Definition], limits: &Limits) -> Self {
        let terminals = definitions.iter().filter(|definition| is_terminal(&definition.name));
        Self { by_name: terminals.map(|d| (d.name.as_str(), d)).collect(), limits: *limits }
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a Definition> {
        self.by_name.get(name).copied()
    }

    /// The automaton of alternatives of a terminal in `line`.
    pub(super) fn automaton(&self, what: &str, body: &Alternatives, line: usize) -> Result<Dfa, CfgError> {
        let mut pattern = String::new();
        self.write(body, line, &mut Vec::new(), &mut pattern)?;
        let options = RegexOptions { limits: self.limits, ..RegexOptions::default() };
        let dfa = Dfa::from_regex(&pattern, &options)
            .map_err(|error| CfgError::new(line, format!("{what} is no terminal: {error}")))?;
        if dfa.accepts(b"") {
            let message = format!("{what} matches the empty text: make it optional where it is used");
            return Err(CfgError::new(line, message));
        }
        Ok(dfa)
    }

    fn write(
        &self,
        body: &Alternatives,
        line: usize,
        inside: &mut Vec<&'a str>,
        out: &mut String,
    ) -> Result<(), CfgError> {
        for (i, alternative) in body.iter().enumerate() {
            if i > 0 {
                out.push('|');
            }
            for item in &alternative.items {
                self.write_item(item, line, inside, out)?;
            }
        }
        if out.len() > MAX_PATTERN {
            return Err(CfgError::new(line, format!("a terminal is longer than {MAX_PATTERN} bytes")));
        }
        Ok(())
    }

    fn write_item(
        &self,
        item: &Expr,
        line: usize,
        inside: &mut Vec<&'a str>,
        out: &mut String,
    ) -> Result<(), CfgError> {
        match item {
            Expr::Name(name) => {
                let Some((&name, definition)) = self.by_name.get_key_value(name.as_str()) else {
                    let why = if is_terminal(name) {
                        "is not defined"
                    } else {
                        "is a rule: a terminal has no rules"
                    };
                    return Err(CfgError::new(line, format!("`{name}` {why}")));
                };
                if inside.contains(&name) {
                    return Err(CfgError::new(
                        definition.line,
                        format!("the terminal `{name}` contains itself"),
                    ));
                }
                inside.push(name);
                out.push_str("(?:");
                self.write(&definition.body, definition.line, inside, out)?;
                out.push(')');
                inside.pop();
            }
            Expr::Text(text, ignores_case) => {
                out.push_str(if *ignores_case { "(?i:" } else { "(?:" });
                out.push_str(&regex_syntax::escape(text));
                out.push(')');
            }
            Expr::Regex(pattern, flags) => {
                // Python's l and u say how text is encoded; here it is always Unicode.
                let flags: String = flags.chars().filter(|flag| "imsx".contains(*flag)).collect();
                let close = if flags.contains('x') { "\n)" } else { ")" };
                out.push_str(&format!("(?{flags}:{pattern}{close}"));
            }
            Expr::Range(first, last) => {
                out.push_str(&format!("[\\x{{{:x}}}-\\x{{{:x}}}]", u32::from(*first), u32::from(*last)));
            }
            Expr::Group(body) => {
                out.push_str("(?:");
                self.write(body, line, inside, out)?;
                out.push(')');
            }
            Expr::Repeat { of, min, max } => {
                out.push_str("(?:");
                self.write_item(of, line, inside, out)?;
                out.push(')');
                out.push_str(&match max {
                    Some(max) => format!("{{{min},{max}}}"),
                    None => format!("{{{min},}}"),
                });
            }
        }
        Ok(())
    }
}
