//! Restriction of a language to the texts over a set of characters.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Repetition};

use crate::dfa::Dfa;
use crate::error::{RegexError, RegexErrorKind};
use crate::limits::Budget;
use crate::product;

/// The texts of `dfa` whose every character is in `charset`.
pub(crate) fn restrict(dfa: &Dfa, charset: &str, budget: &mut Budget) -> Result<Dfa, RegexError> {
    budget.charge(charset.len().saturating_mul(size_of::<ClassUnicodeRange>()))?;
    let class = ClassUnicode::new(charset.chars().map(|c| ClassUnicodeRange::new(c, c)));
    let sub = Box::new(Hir::class(Class::Unicode(class)));
    let texts = Hir::repetition(Repetition { min: 0, max: None, greedy: true, sub });
    let texts = Dfa::from_hir(&texts, budget)?;
    product::intersection(dfa, &texts, budget)?.minimal(budget).map_err(|error| match error.kind() {
        RegexErrorKind::EmptyLanguage => {
            RegexError::empty_language("no text over `charset` is accepted; add the characters it needs")
        }
        _ => error,
    })
}
