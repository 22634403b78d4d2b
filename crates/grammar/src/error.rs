//! What can go wrong when a language is built.

/// What kind of fault a [`RegexError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegexErrorKind {
    /// The pattern is not a well-formed regular expression.
    Syntax,
    /// The pattern uses a construct that has a meaning elsewhere, but none here.
    Unsupported,
    /// No text at all is in the language.
    EmptyLanguage,
    /// Construction would need more memory or deeper nesting than is allowed.
    TooLarge,
    /// Construction took longer than is allowed.
    TooSlow,
    /// The texts from some state of a weighted automaton weigh infinitely much together.
    Divergent,
    /// A log-weight is NaN or beyond the range of f64.
    InvalidWeight,
}

/// An error of building an automaton. Its message is one line, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RegexError {
    kind: RegexErrorKind,
    offset: Option<usize>,
    message: String,
}

impl RegexError {
    pub(crate) fn new(kind: RegexErrorKind, offset: Option<usize>, message: impl Into<String>) -> Self {
        Self { kind, offset, message: message.into() }
    }

    pub(crate) fn unsupported(construct: &str, offset: usize) -> Self {
        let message = format!("{construct} at offset {offset} is not supported");
        Self::new(RegexErrorKind::Unsupported, Some(offset), message)
    }

    pub(crate) fn empty_language(reason: &str) -> Self {
        Self::new(RegexErrorKind::EmptyLanguage, None, format!("the language is empty: {reason}"))
    }

    pub(crate) fn divergent(state: u32) -> Self {
        let message = format!(
            "the total weight of the texts from state {state} diverges, or f64 cannot tell: lower the weights of the cycles there"
        );
        Self::new(RegexErrorKind::Divergent, None, message)
    }

    pub(crate) fn invalid_weight(what: &str, weight: f64) -> Self {
        let message =
            format!("the log-weight {weight} of {what} is no log-weight; give a finite number or -inf");
        Self::new(RegexErrorKind::InvalidWeight, None, message)
    }

    /// What kind of fault this is.
    #[must_use]
    pub fn kind(&self) -> RegexErrorKind {
        self.kind
    }

    /// Where in the pattern the fault lies, in bytes from its start, if it lies at one place.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        self.offset
    }
}
