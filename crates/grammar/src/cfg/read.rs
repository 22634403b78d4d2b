//! From words to definitions.

use super::CfgError;
use super::lex::{Kind, Word};

/// What a grammar's text says.
#[derive(Debug, Default)]
pub(super) struct Grammar {
    pub(super) definitions: Vec<Definition>,
    /// What may stand between terminals, with its line.
    pub(super) ignored: Vec<(Alternatives, usize)>,
}

/// A rule or a terminal.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) line: usize,
    /// `?`: a node with a single child is that child.
    pub(super) inlines_single: bool,
    /// `!`: strings are shown in trees.
    pub(super) shows_all: bool,
    pub(super) body: Alternatives,
}

pub(super) type Alternatives = Vec<Alternative>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alternative {
    pub(super) items: Vec<Expr>,
    pub(super) alias: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Name(String),
    Text(String, bool),
    Regex(String, String),
    /// Characters from the first to the last.
    Range(char, char),
    Group(Alternatives),
    /// At least `min` times, at most `max` times if there is a limit.
    Repeat {
        of: Box<Expr>,
        min: u32,
        max: Option<u32>,
    },
}

/// Whether a name is a terminal's.
pub(super) fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase())
}

/// The deepest nesting of groups: reading recurses over it.
const NEST_LIMIT: usize = 200;

pub(super) fn read(words: &[Word]) -> Result<Grammar, CfgError> {
    let mut reader = Reader { words, at: 0, depth: 0 };
    let mut grammar = Grammar::default();
    while let Some(word) = reader.words.get(reader.at) {
        match &word.kind {
            Kind::End => reader.at += 1,
            Kind::Name(_) => grammar.definitions.push(reader.definition()?),
            Kind::Directive(name) if name == "ignore" => {
                reader.at += 1;
                grammar.ignored.push((reader.alternatives()?, word.line));
                reader.end()?;
            }
            Kind::Directive(name) => {
                let hint = if name == "import" { ": define the terminal in the grammar" } else { "" };
                return Err(CfgError::new(word.line, format!("%{name} is not supported{hint}")));
            }
            _ => return Err(reader.unexpected("a definition begins with a name")),
        }
    }
    Ok(grammar)
}

struct Reader<'a> {
    words: &'a [Word],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> &Kind {
        // The words end with an end.
        self.words.get(self.at).map_or(&Kind::End, |word| &word.kind)
    }

    fn line(&self) -> usize {
        self.words.get(self.at).or(self.words.last()).map_or(1, |word| word.line)
    }

    fn unexpected(&self, expected: &str) -> CfgError {
        let found = match self.peek() {
            Kind::End => "the end of the line".to_owned(),
            Kind::Sign(sign) => format!("`{sign}`"),
            Kind::Name(name) => format!("`{name}`"),
            Kind::Text(text, _) => format!("{text:?}"),
            Kind::Regex(pattern, _) => format!("/{pattern}/"),
            Kind::Number(number) => format!("`{number}`"),
            Kind::Directive(name) => format!("`%{name}`"),
        };
        CfgError::new(self.line(), format!("{found} is unexpected: {expected}"))
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_there = matches!(self.peek(), Kind::Sign(found) if *found == sign);
        self.at += usize::from(is_there);
        is_there
    }

    fn end(&mut self) -> Result<(), CfgError> {
        if *self.peek() != Kind::End {
            return Err(self.unexpected("a definition ends with its line"));
        }
        self.at += 1;
        Ok(())
    }

    fn name(&mut self) -> Option<String> {
        let Kind::Name(name) = self.peek() else { return None };
        let name = name.clone();
        self.at += 1;
        Some(name)
    }

    fn definition(&mut self) -> Result<Definition, CfgError> {
        let line = self.line();
        let written = self.name().ok_or_else(|| self.unexpected("a definition begins with a name"))?;
        let name = written.trim_start_matches(['?', '!']).to_owned();
        let modifiers = &written[..written.len() - name.len()];
        if is_terminal(&name) && !modifiers.is_empty() {
            return Err(CfgError::new(
                line,
                format!("`{name}` is a terminal: only rules have `{modifiers}`"),
            ));
        }
        match self.peek() {
            Kind::Sign(".") => return Err(CfgError::new(line, "priorities are not supported")),
            Kind::Sign("{") => return Err(CfgError::new(line, "templates are not supported")),
            _ => {}
        }
        if !self.takes(":") {
            return Err(self.unexpected("a name is followed by `:`"));
        }
        let body = self.alternatives()?;
        self.end()?;
        let has_alias = body.iter().any(|alternative| alternative.alias.is_some());
        if is_terminal(&name) && has_alias {
            return Err(CfgError::new(line, format!("`{name}` is a terminal: only rules have aliases")));
        }
        let (inlines_single, shows_all) = (modifiers.contains('?'), modifiers.contains('!'));
        Ok(Definition { name, line, inlines_single, shows_all, body })
    }

    fn alternatives(&mut self) -> Result<Alternatives, CfgError> {
        self.depth += 1;
        if self.depth > NEST_LIMIT {
            return Err(CfgError::new(self.line(), format!("groups nest deeper than {NEST_LIMIT}")));
        }
        let mut alternatives = Vec::new();
        loop {
            let mut items = Vec::new();
            while let Some(item) = self.item()? {
                items.push(item);
            }
            let alias = match self.takes("->") {
                true => Some(self.name().ok_or_else(|| self.unexpected("an alias is a name"))?),
                false => None,
            };
            alternatives.push(Alternative { items, alias });
            if !self.takes("|") {
                break;
            }
        }
        self.depth -= 1;
        Ok(alternatives)
    }

    /// The group up to `close`, after its opening bracket.
    fn group(&mut self, close: &str) -> Result<Expr, CfgError> {
        let line = self.line();
        let alternatives = self.alternatives()?;
        if alternatives.iter().any(|alternative| alternative.alias.is_some()) {
            return Err(CfgError::new(
                line,
                "an alias names a whole alternative of a rule, not one of a group",
            ));
        }
        if !self.takes(close) {
            return Err(self.unexpected(&format!("a group ends with `{close}`")));
        }
        Ok(Expr::Group(alternatives))
    }

    /// The next item of an alternative, with what repeats it.
    fn item(&mut self) -> Result<Option<Expr>, CfgError> {
        let atom = match self.peek().clone() {
            Kind::Name(name) => {
                if name.starts_with(['?', '!']) {
                    return Err(self.unexpected("modifiers stand where a rule is defined"));
                }
                self.at += 1;
                if matches!(self.peek(), Kind::Sign("{")) {
                    return Err(CfgError::new(self.line(), "templates are not supported"));
                }
                Expr::Name(name)
            }
            Kind::Text(text, ignores_case) => {
                self.at += 1;
                if self.takes("..") { self.range(&text)? } else { Expr::Text(text, ignores_case) }
            }
            Kind::Regex(pattern, flags) => {
                self.at += 1;
                Expr::Regex(pattern, flags)
            }
            Kind::Sign("(") => {
                self.at += 1;
                self.group(")")?
            }
            Kind::Sign("[") => {
                self.at += 1;
                Expr::Repeat { of: Box::new(self.group("]")?), min: 0, max: Some(1) }
            }
            _ => return Ok(None),
        };
        let (min, max) = if self.takes("?") {
            (0, Some(1))
        } else if self.takes("*") {
            (0, None)
        } else if self.takes("+") {
            (1, None)
        } else if self.takes("~") {
            let min = self.number()?;
            let max = if self.takes("..") { self.number()? } else { min };
            if max < min || max == 0 {
                return Err(CfgError::new(self.line(), format!("~{min}..{max} repeats nothing")));
            }
            (min, Some(max))
        } else {
            return Ok(Some(atom));
        };
        Ok(Some(Expr::Repeat { of: Box::new(atom), min, max }))
    }

    fn range(&mut self, from: &str) -> Result<Expr, CfgError> {
        let single = |text: &str| {
            let mut chars = text.chars();
            chars.next().filter(|_| chars.next().is_none())
        };
        let Kind::Text(to, false) = self.peek().clone() else {
            return Err(self.unexpected("a range ends with a string"));
        };
        self.at += 1;
        match (single(from), single(&to)) {
            (Some(first), Some(last)) if first <= last => Ok(Expr::Range(first, last)),
            _ => Err(CfgError::new(self.line(), format!("{from:?}..{to:?} is no range of characters"))),
        }
    }

    fn number(&mut self) -> Result<u32, CfgError> {
        let Kind::Number(number) = *self.peek() else {
            return Err(self.unexpected("`~` is followed by a number"));
        };
        self.at += 1;
        Ok(number)
    }
}
