//! The bodies of look-aheads, taken out of the syntax tree.
//!
//! The parser knows no look-around, but it says where it meets one. There the group is disguised as
//! a plain one of the same length, so offsets and inline flags stay what they are; in the tree it
//! becomes a capture, which survives translation, and leaves an empty capture as its mark.

use regex_syntax::ast::{self, Ast, ErrorKind as AstError};
use regex_syntax::hir::{Capture, Hir, HirKind};

use crate::error::RegexError;

/// A look-ahead of a pattern.
#[derive(Debug)]
pub(crate) struct LookAhead {
    /// Whether the body must match, or must not.
    pub(crate) wanted: bool,
    pub(crate) body: Hir,
}

/// A look-ahead found in the pattern's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    wanted: bool,
    /// Of its parenthesis, in bytes.
    offset: usize,
}

/// If `error` is about a look-ahead in `pattern`, makes it a plain group there and notes it.
pub(crate) fn hide(pattern: &mut String, error: &ast::Error, found: &mut Vec<Found>) -> bool {
    let span = error.span().start.offset..error.span().end.offset;
    let wanted = match (error.kind(), &pattern[span.clone()]) {
        (AstError::UnsupportedLookAround, prefix) if prefix.contains('<') => return false,
        (AstError::UnsupportedLookAround, prefix) if prefix.ends_with('=') => true,
        (AstError::UnsupportedLookAround, prefix) if prefix.ends_with('!') => false,
        _ => return false,
    };
    pattern.replace_range(span.end - 1..span.end, ":");
    found.push(Found { wanted, offset: span.start });
    true
}

/// Makes the groups that `found` speaks of captures, numbered from 1 in its order, and all other
/// captures plain groups.
///
/// # Errors
/// If a repetition holds a look-ahead.
pub(crate) fn mark(tree: &mut Ast, found: &[Found]) -> Result<(), RegexError> {
    let mut first_repeated: Option<usize> = None;
    let mut pending = vec![(tree, false)];
    while let Some((node, repeated)) = pending.pop() {
        match node {
            Ast::Repetition(repetition) => pending.push((&mut repetition.ast, true)),
            Ast::Alternation(alternation) => {
                pending.extend(alternation.asts.iter_mut().map(|branch| (branch, repeated)));
            }
            Ast::Concat(concat) => pending.extend(concat.asts.iter_mut().map(|part| (part, repeated))),
            Ast::Group(group) => {
                let offset = group.span.start.offset;
                if let Ok(number) = found.binary_search_by_key(&offset, |found| found.offset) {
                    if repeated {
                        first_repeated = Some(first_repeated.map_or(offset, |first| first.min(offset)));
                    }
                    group.kind = ast::GroupKind::CaptureIndex(number as u32 + 1);
                } else if group.is_capturing() {
                    let flags = ast::Flags { span: group.span, items: Vec::new() };
                    group.kind = ast::GroupKind::NonCapturing(flags);
                }
                pending.push((&mut group.ast, repeated));
            }
            _ => {}
        }
    }
    match first_repeated {
        Some(offset) => Err(RegexError::unsupported("look-ahead inside a repetition", offset)),
        None => Ok(()),
    }
}

/// The tree with an empty capture n + 1 in the place of the n-th look-ahead, and the look-aheads.
/// Bodies may hold marks of others.
pub(crate) fn extract(tree: Hir, found: &[Found]) -> (Hir, Vec<LookAhead>) {
    let empty = |found: &Found| LookAhead { wanted: found.wanted, body: Hir::empty() };
    let mut aheads: Vec<LookAhead> = found.iter().map(empty).collect();
    let tree = take_out(tree, &mut aheads);
    (tree, aheads)
}

/// Recurses as deep as the pattern is nested, which the parser bounds.
fn take_out(tree: Hir, aheads: &mut [LookAhead]) -> Hir {
    if tree.properties().explicit_captures_len() == 0 {
        return tree;
    }
    match tree.into_kind() {
        HirKind::Capture(capture) => {
            let body = take_out(*capture.sub, aheads);
            aheads[capture.index as usize - 1].body = body;
            Hir::capture(Capture { sub: Box::new(Hir::empty()), ..capture })
        }
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(|part| take_out(part, aheads)).collect()),
        HirKind::Alternation(branches) => {
            Hir::alternation(branches.into_iter().map(|branch| take_out(branch, aheads)).collect())
        }
        HirKind::Repetition(_) => unreachable!("no repetition holds a look-ahead"),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => {
            unreachable!("only what has parts holds a capture")
        }
    }
}
