//! Zero-width assertions, decided exactly while bytes are read from left to right.
//!
//! An assertion is a relation between what stands before a position and what stands after it. When
//! a state is entered, everything before is known ([`Before`]), so an assertion becomes a mere
//! [`Condition`] on what follows, which the thread that passed it carries along until the next
//! byte, the next character or the end of the text settles it.
//!
//! Only five kinds of neighbour matter ([`Kind`]): the edge of the text, a line feed, a carriage
//! return, an ASCII word byte, any other byte. Unicode word boundaries need the whole neighbouring
//! character; the automaton of `\w` reads it byte by byte, both what has been passed ([`Tracker`])
//! and what is promised. A word character is a complete UTF-8 encoding of one; bytes that are no
//! UTF-8 hold none.

use std::sync::LazyLock;

use regex_automata::util::look::Look;

use crate::dfa::{Dfa, StateId};

/// The automaton of one Unicode word character, in UTF-8. None of its final states has an arc.
static WORD_CHARACTER: LazyLock<Dfa> = LazyLock::new(|| {
    let class = regex_syntax::parse(r"\w").expect("a valid pattern");
    Dfa::from_hir_unlimited(&class).expect("a small language that is not empty")
});

/// Bytes that word characters do not tell apart have equal keys.
pub(crate) fn word_class(byte: u8) -> u8 {
    WORD_CHARACTER.classes().symbol(byte)
}

/// A neighbour of a position, as ASCII assertions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Edge,
    LineFeed,
    CarriageReturn,
    Word,
    Other,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Edge, Self::LineFeed, Self::CarriageReturn, Self::Word, Self::Other];

    pub(crate) fn of(byte: u8) -> Self {
        match byte {
            b'\n' => Self::LineFeed,
            b'\r' => Self::CarriageReturn,
            b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => Self::Word,
            _ => Self::Other,
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What stands before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) kind: Kind,
    /// Whether a Unicode word character ends here.
    pub(crate) word_character: bool,
}

impl Before {
    /// The start of the text.
    pub(crate) const START: Self = Self { kind: Kind::Edge, word_character: false };
}

/// How far the bytes before a position have spelled a word character without completing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tracker(Option<StateId>);

impl Tracker {
    /// Not inside a word character.
    pub(crate) const OUTSIDE: Self = Self(None);

    /// The tracker as a number of its own.
    pub(crate) fn bits(self) -> u64 {
        self.0.map_or(u64::MAX, |state| u64::from(state.0))
    }

    /// The tracker after one more byte, and whether a word character ends with it.
    pub(crate) fn after(self, byte: u8) -> (Self, bool) {
        let dfa = &*WORD_CHARACTER;
        // Lead and continuation bytes differ, so at most one of the two ways is open.
        let state = self.0.and_then(|state| dfa.next(state, byte)).or_else(|| dfa.next(dfa.start(), byte));
        match state {
            Some(state) if dfa.is_final(state) => (Self::OUTSIDE, true),
            state => (Self(state), false),
        }
    }
}

/// What is promised about the Unicode character that begins where the promise was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Promise {
    #[default]
    Nothing,
    /// It is a word character, of which the bytes up to this state have been read.
    Word,
    /// It is none; the bytes up to this state could still begin one.
    NotWord,
    /// As `NotWord`, and no word character begins here either.
    NotWordNorHere,
}

/// What a thread has promised about the text that follows. The default promises nothing, and is the
/// least of all conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Condition {
    /// The kinds ([`Kind::bit`]) that must not come next.
    forbidden: u8,
    promise: Promise,
    /// The state of the word automaton that `promise` speaks of.
    at: u16,
}

impl Condition {
    /// No condition at all.
    pub(crate) const NONE: Self = Self { forbidden: 0, promise: Promise::Nothing, at: 0 };

    /// The condition as a number of its own.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.at) << 16 | (self.promise as u32) << 8 | u32::from(self.forbidden)
    }

    /// This condition and what `look` asks of the text after a position; `None` if it cannot hold.
    pub(crate) fn with(mut self, look: Look, before: Before) -> Option<Self> {
        if let Some(holds) = unicode_relation(look) {
            return match (holds(before.word_character, true), holds(before.word_character, false)) {
                (true, true) => Some(self),
                (true, false) => self.promising_word(),
                (false, true) => self.promising_no_word(),
                (false, false) => None,
            };
        }
        for next in Kind::ALL {
            if !ascii_holds(look, before.kind, next) {
                self.forbidden |= next.bit();
            }
        }
        Kind::ALL.iter().any(|next| self.forbidden & next.bit() == 0).then_some(self)
    }

    fn promising_word(self) -> Option<Self> {
        let start = start_of_word();
        match self.promise {
            Promise::Nothing => Some(Self { promise: Promise::Word, at: start, ..self }),
            Promise::Word => (self.at == start).then_some(self), // else the promised one goes on here
            Promise::NotWord if self.at == start => None,
            // A character that begins here keeps the earlier one from being completed.
            Promise::NotWord => Some(Self { promise: Promise::Word, at: start, ..self }),
            Promise::NotWordNorHere => None,
        }
    }

    fn promising_no_word(self) -> Option<Self> {
        let start = start_of_word();
        match self.promise {
            Promise::Nothing => Some(Self { promise: Promise::NotWord, at: start, ..self }),
            Promise::Word => (self.at != start).then_some(self), // it goes on here, so none begins
            Promise::NotWord if self.at == start => Some(self),
            Promise::NotWord | Promise::NotWordNorHere => {
                Some(Self { promise: Promise::NotWordNorHere, ..self })
            }
        }
    }

    /// What is left to be kept after `byte`, or `None` if it breaks the condition.
    pub(crate) fn after(self, byte: u8) -> Option<Self> {
        if self == Self::NONE {
            return Some(self);
        }
        if self.forbidden & Kind::of(byte).bit() != 0 {
            return None;
        }
        let dfa = &*WORD_CHARACTER;
        let here = || dfa.next(dfa.start(), byte);
        let onward = || dfa.next(StateId(u32::from(self.at)), byte);
        let (state, wanted) = match self.promise {
            Promise::Nothing => return Some(Self::NONE),
            Promise::Word => (onward(), true),
            Promise::NotWord => (onward(), false),
            Promise::NotWordNorHere => (onward().or_else(here), false),
        };
        let complete = state.is_some_and(|state| dfa.is_final(state));
        match state {
            Some(state) if !complete => {
                let promise = if wanted { Promise::Word } else { Promise::NotWord };
                Some(Self { forbidden: 0, promise, at: state.0 as u16 })
            }
            _ => (complete == wanted).then_some(Self::NONE),
        }
    }

    /// Whether the text may end here.
    pub(crate) fn allows_end(self) -> bool {
        self.forbidden & Kind::Edge.bit() == 0 && self.promise != Promise::Word
    }
}

fn start_of_word() -> u16 {
    WORD_CHARACTER.start().0 as u16
}

/// Whether an assertion about anything but Unicode words holds between two neighbours.
fn ascii_holds(look: Look, before: Kind, next: Kind) -> bool {
    let word_before = before == Kind::Word;
    let word_next = next == Kind::Word;
    match look {
        Look::Start => before == Kind::Edge,
        Look::End => next == Kind::Edge,
        Look::StartLF => matches!(before, Kind::Edge | Kind::LineFeed),
        Look::EndLF => matches!(next, Kind::Edge | Kind::LineFeed),
        Look::StartCRLF => match before {
            Kind::Edge | Kind::LineFeed => true,
            Kind::CarriageReturn => next != Kind::LineFeed,
            Kind::Word | Kind::Other => false,
        },
        Look::EndCRLF => match next {
            Kind::Edge | Kind::CarriageReturn => true,
            Kind::LineFeed => before != Kind::CarriageReturn,
            Kind::Word | Kind::Other => false,
        },
        Look::WordAscii => word_before != word_next,
        Look::WordAsciiNegate => word_before == word_next,
        Look::WordStartAscii => !word_before && word_next,
        Look::WordEndAscii => word_before && !word_next,
        Look::WordStartHalfAscii => !word_before,
        Look::WordEndHalfAscii => !word_next,
        Look::WordUnicode
        | Look::WordUnicodeNegate
        | Look::WordStartUnicode
        | Look::WordEndUnicode
        | Look::WordStartHalfUnicode
        | Look::WordEndHalfUnicode => unreachable!("decided by the unicode relation"),
    }
}

/// For an assertion about Unicode words: whether it holds, by (word before, word next).
fn unicode_relation(look: Look) -> Option<fn(bool, bool) -> bool> {
    Some(match look {
        Look::WordUnicode => |before, next| before != next,
        Look::WordUnicodeNegate => |before, next| before == next,
        Look::WordStartUnicode => |before, next| !before && next,
        Look::WordEndUnicode => |before, next| before && !next,
        Look::WordStartHalfUnicode => |before, _| !before,
        Look::WordEndHalfUnicode => |_, next| !next,
        _ => return None,
    })
}

/// Whether an assertion speaks of Unicode words.
pub(crate) fn is_unicode(look: Look) -> bool {
    unicode_relation(look).is_some()
}
