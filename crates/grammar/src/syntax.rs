//! From a pattern to its syntax tree, or to an error that names the construct and its offset.
//!
//! The grammar is that of `regex-syntax`. Constructs that other dialects give a meaning which no
//! automaton here has are refused by name; that includes the few which the grammar would read as
//! something else, namely possessive quantifiers (`a++`) and a lone `(?R)`.

use std::borrow::Cow;

use regex_syntax::ast::{self, Ast, ErrorKind as AstError};
use regex_syntax::hir::{self, ErrorKind as HirError, Hir};

use crate::ahead::{self, LookAhead};
use crate::error::{RegexError, RegexErrorKind};
use crate::limits::{Budget, Limits};

/// How a pattern is read, and what building it may cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegexOptions {
    /// Whether text is UTF-8 and classes hold Unicode scalars (default), or all is bytewise:
    /// classes over bytes, ASCII `\w \d \s \b`, `.` any byte but a line feed.
    pub unicode: bool,
    /// Keeps only the texts whose every character is among these; `None` (default) leaves the
    /// language as it is.
    pub charset: Option<String>,
    /// What construction may use.
    pub limits: Limits,
}

impl Default for RegexOptions {
    fn default() -> Self {
        Self { unicode: true, charset: None, limits: Limits::default() }
    }
}

/// The deepest nesting of groups, classes and repetitions. Compilation recurses over it.
const NEST_LIMIT: u32 = 250;

/// Estimated bytes of the trees for a byte of pattern, and for a class that stands for a large
/// Unicode table.
const BYTES_PER_PATTERN_BYTE: usize = 256;
const BYTES_PER_UNICODE_CLASS: usize = 16 << 10;

/// A parsed pattern.
pub(crate) struct Tree {
    /// An empty capture n + 1, here or in a body, is the mark of `aheads[n]`.
    pub(crate) hir: Hir,
    pub(crate) aheads: Vec<LookAhead>,
    /// What was charged for it.
    pub(crate) bytes: usize,
}

/// Parses `pattern`; `unicode` as in [`RegexOptions`].
pub(crate) fn parse(pattern: &str, unicode: bool, budget: &mut Budget) -> Result<Tree, RegexError> {
    let pattern_bytes = pattern.len().saturating_mul(BYTES_PER_PATTERN_BYTE);
    budget.charge(pattern_bytes)?;
    let mut parser = ast::parse::ParserBuilder::new().nest_limit(NEST_LIMIT).build();
    let (mut hidden, mut found) = (Cow::Borrowed(pattern), Vec::new());
    let mut ast = loop {
        match parser.parse(&hidden) {
            Ok(ast) => break ast,
            Err(error) if ahead::hide(hidden.to_mut(), &error, &mut found) => budget.check_time()?,
            Err(error) => return Err(explain(pattern, &error)),
        }
    };
    let class_bytes = ast::visit(&ast, Survey { budget, class_bytes: 0 })?;
    if !found.is_empty() {
        ahead::mark(&mut ast, &found)?;
    }
    let hir = hir::translate::TranslatorBuilder::new()
        .unicode(unicode)
        .utf8(unicode)
        .build()
        .translate(pattern, &ast)
        .map_err(|error| explain_translation(&error))?;
    let (hir, aheads) = if found.is_empty() { (hir, Vec::new()) } else { ahead::extract(hir, &found) };
    Ok(Tree { hir, aheads, bytes: pattern_bytes + class_bytes })
}

/// A walk over the tree that refuses what would be misread, and charges for large classes.
struct Survey<'a> {
    budget: &'a mut Budget,
    class_bytes: usize,
}

impl Survey<'_> {
    fn charge_class(&mut self) -> Result<(), RegexError> {
        self.budget.step()?;
        self.class_bytes += BYTES_PER_UNICODE_CLASS;
        self.budget.charge(BYTES_PER_UNICODE_CLASS)
    }
}

impl ast::Visitor for Survey<'_> {
    type Output = usize;
    type Err = RegexError;

    fn finish(self) -> Result<usize, RegexError> {
        Ok(self.class_bytes)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), RegexError> {
        match ast {
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => self.charge_class(),
            Ast::Repetition(outer) => match &*outer.ast {
                Ast::Repetition(inner)
                    if inner.greedy && outer.greedy && outer.op.kind == ast::RepetitionKind::OneOrMore =>
                {
                    Err(RegexError::unsupported("possessive quantifier", inner.op.span.start.offset))
                }
                _ => Ok(()),
            },
            Ast::Flags(set) => match &set.flags.items[..] {
                [ast::FlagsItem { kind: ast::FlagsItemKind::Flag(ast::Flag::CRLF), .. }] => {
                    Err(RegexError::unsupported("recursion", set.span.start.offset))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), RegexError> {
        match item {
            ast::ClassSetItem::Unicode(_) | ast::ClassSetItem::Perl(_) => self.charge_class(),
            _ => Ok(()),
        }
    }
}

/// The error of a pattern that does not parse.
fn explain(pattern: &str, error: &ast::Error) -> RegexError {
    let offset = error.span().start.offset;
    let rest = &pattern[offset..];
    let construct = match error.kind() {
        AstError::UnsupportedBackreference if rest.starts_with(r"\0") => "octal escape",
        AstError::UnsupportedBackreference => "back-reference",
        AstError::UnsupportedLookAround => "look-behind",
        AstError::EscapeUnrecognized => match foreign_escape(rest) {
            Some(construct) => construct,
            None => return malformed(error.kind(), offset),
        },
        AstError::RepetitionMissing if is_verb(pattern, offset) => {
            return RegexError::unsupported("backtracking verb", offset - 1);
        }
        // Read as a flag, a recursion leaves nothing to repeat.
        AstError::RepetitionMissing if pattern[..offset].ends_with("(?R)") => {
            return RegexError::unsupported("recursion", offset - "(?R)".len());
        }
        AstError::FlagUnrecognized | AstError::FlagUnexpectedEof | AstError::RepetitionMissing => {
            // The group's parenthesis is the last one before the place where its flags went wrong.
            let open = pattern[..offset].rfind('(').unwrap_or(offset);
            return match foreign_group(&pattern[open..]) {
                Some(construct) => RegexError::unsupported(construct, open),
                None => malformed(error.kind(), offset),
            };
        }
        AstError::NestLimitExceeded(limit) => {
            let message = format!("nesting at offset {offset} is deeper than {limit} levels");
            return RegexError::new(RegexErrorKind::TooLarge, Some(offset), message);
        }
        kind => return malformed(kind, offset),
    };
    RegexError::unsupported(construct, offset)
}

fn malformed(what: impl std::fmt::Display, offset: usize) -> RegexError {
    let message = format!("{what} at offset {offset}");
    RegexError::new(RegexErrorKind::Syntax, Some(offset), message)
}

/// Escapes that other dialects know, by what follows the backslash.
fn foreign_escape(rest: &str) -> Option<&'static str> {
    let mut chars = rest.chars().skip(1);
    Some(match (chars.next()?, chars.next()) {
        ('k', Some('<' | '\'' | '{')) => "back-reference",
        ('g', Some('<' | '\'')) => "recursion",
        ('g', Some('{' | '-' | '+' | '0'..='9')) => "back-reference",
        ('K', _) => "match reset",
        ('G', _) => "match continuation",
        ('Q', _) => "quoted literal",
        ('R' | 'X' | 'N' | 'h' | 'H' | 'V' | 'Z', _) => "escape that other dialects define",
        _ => return None,
    })
}

/// Groups that other dialects know, by how they begin.
fn foreign_group(group: &str) -> Option<&'static str> {
    let mut chars = group.strip_prefix("(?")?.chars();
    Some(match (chars.next()?, chars.next()) {
        ('>', _) => "atomic group",
        ('|', _) => "branch reset",
        ('(', _) => "conditional",
        ('#', _) => "comment group",
        ('&', _) | ('P', Some('>')) | ('0'..='9', _) | ('+' | '-', Some('0'..='9')) => "recursion",
        ('P', Some('=')) => "back-reference",
        ('\'', _) => "quoted group name",
        ('C', _) => "callout",
        _ => return None,
    })
}

/// Whether the `*` at `offset` begins a verb such as `(*ACCEPT)`.
fn is_verb(pattern: &str, offset: usize) -> bool {
    pattern[..offset].ends_with('(')
        && pattern[offset..].strip_prefix('*').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
}

/// The error of a pattern that parses but has no meaning in its mode.
fn explain_translation(error: &hir::Error) -> RegexError {
    let offset = error.span().start.offset;
    let unsupported = |what: &str, instead: &str| {
        let message = format!("{what} at offset {offset} is not supported; {instead}");
        RegexError::new(RegexErrorKind::Unsupported, Some(offset), message)
    };
    match error.kind() {
        HirError::InvalidUtf8 => {
            unsupported("bytewise class that matches parts of a character", "set `unicode` to false")
        }
        HirError::UnicodeNotAllowed => unsupported(
            "character or class beyond ASCII in bytewise mode",
            r"write its bytes as \xNN or put it in (?u:…)",
        ),
        HirError::UnicodePropertyNotFound => malformed("unknown Unicode property", offset),
        HirError::UnicodePropertyValueNotFound => malformed("unknown value of a Unicode property", offset),
        kind => malformed(kind, offset),
    }
}
