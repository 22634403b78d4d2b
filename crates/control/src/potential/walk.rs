//! The tokens that a byte automaton allows in a state: one walk of the vocabulary's trie.
//!
//! A dead subtree is skipped. So is a wholly live one, whose tokens are taken at once: many
//! automata read long runs of a class of characters (`.*`, `[a-z ]{1,20}`), and a [`Line`] is such a
//! run ahead of a state. A subtree that spells only what is on the line and ends within it needs no
//! step, and the tokens along the line of the first state are known without any walk.

use lockstep_engine::vocab::{SiblingNode, SiblingTrie, Text, TokenTrie};
use lockstep_grammar::{Dfa, StateId};
use lockstep_sample::Bitset;

/// Subtrees of fewer tokens are walked without looking for a line.
const WORTH_A_LINE: usize = 32;

/// Lines of fewer bytes have few tokens along them.
const WIDE: u32 = 32;

/// Lines that one walk remembers. It meets few states from which a line is worth finding.
const REMEMBERED: usize = 16;

/// The reach of a line that goes on for ever.
const ENDLESS: u8 = SiblingNode::TALL - 1;

/// Every text of at most `reach` bytes, all of them ASCII and among `bytes`, can be read. If
/// `foreign`, characters that are not ASCII may stand anywhere in it, and the last may go on.
#[derive(Clone, Copy)]
struct Line {
    bytes: u128,
    foreign: bool,
    reach: u8,
}

impl Line {
    const NONE: Self = Self { bytes: 0, foreign: false, reach: 0 };

    /// A line from `state`: of the bytes that lead where most bytes lead, as far as all of them go
    /// on together.
    fn from(states: &Kinds<'_>, state: StateId) -> Self {
        let Kinds { dfa, alike } = states;
        let kind = |state: StateId| alike[state.0 as usize];
        let targets: [Option<u32>; 128] = std::array::from_fn(|byte| dfa.next(state, byte as u8).map(kind));
        let Some(target) = majority(&targets) else { return Self::NONE };
        let bytes = (0..128).filter(|byte| targets[*byte] == Some(target));
        let bytes = bytes.fold(0u128, |set, byte| set | 1 << byte);
        let endless = |foreign| Self { bytes, foreign, reach: ENDLESS };
        // A step to what no token tells from the state itself can be repeated.
        if target == kind(state) {
            return endless(states.after_foreign(state) == Some(target));
        }
        let first = dfa.next(state, bytes.trailing_zeros() as u8);
        let mut at = first.expect("a target is led to by some byte");
        let mut reach = 1;
        while reach < SiblingTrie::FAR {
            match states.after_all(at, bytes) {
                Some(next) if kind(next) == kind(at) => return endless(false),
                Some(next) => at = next,
                None => break,
            }
            reach += 1;
        }
        Self { bytes, foreign: false, reach }
    }

    /// What is left of the line after `byte`, which leads to `node`; `None` if it leaves the line.
    fn after(self, byte: u8, node: &SiblingNode) -> Option<Self> {
        let stays = match byte.is_ascii() {
            true => self.bytes >> byte & 1 == 1,
            false => self.foreign && node.text() != Text::Not,
        };
        // A line that goes on for ever is not used up.
        let used = u8::from(self.reach < ENDLESS);
        (stays && self.reach > 0).then(|| Self { reach: self.reach - used, ..self })
    }

    /// Whether every token through `node` goes on along this line to its end.
    fn covers(self, node: &SiblingNode) -> bool {
        node.height() <= self.reach
            && node.ascii_below() & !self.bytes == 0
            && (self.foreign || !node.is_foreign_below())
    }
}

/// An automaton, and which of its states no text as long as a token tells apart.
pub(super) struct Kinds<'a> {
    pub(super) dfa: &'a Dfa,
    /// Equal numbers for states that are alike.
    pub(super) alike: &'a [u32],
}

impl Kinds<'_> {
    /// A state that those after each of `bytes` are alike to.
    fn after_all(&self, state: StateId, bytes: u128) -> Option<StateId> {
        let target = self.dfa.next(state, bytes.trailing_zeros() as u8)?;
        let mut rest = bytes & (bytes - 1);
        while rest != 0 {
            let other = self.dfa.next(state, rest.trailing_zeros() as u8)?;
            if self.alike[other.0 as usize] != self.alike[target.0 as usize] {
                return None;
            }
            rest &= rest - 1;
        }
        Some(target)
    }

    /// What all states after one character that is not ASCII are alike to.
    fn after_foreign(&self, state: StateId) -> Option<u32> {
        let mut known: Vec<(StateId, (u8, u8, u8), u32)> = Vec::new();
        let mut common = None;
        // First bytes, the range of the second, and how many more follow (Unicode, table 3-7).
        for (first, second, more) in [
            (0xC2..=0xDF, (0x80, 0xBF), 0),
            (0xE0..=0xE0, (0xA0, 0xBF), 1),
            (0xE1..=0xEC, (0x80, 0xBF), 1),
            (0xED..=0xED, (0x80, 0x9F), 1),
            (0xEE..=0xEF, (0x80, 0xBF), 1),
            (0xF0..=0xF0, (0x90, 0xBF), 2),
            (0xF1..=0xF3, (0x80, 0xBF), 2),
            (0xF4..=0xF4, (0x80, 0x8F), 2),
        ] {
            for byte in first {
                let at = self.dfa.next(state, byte)?;
                let end = self.after_rest(at, (second.0, second.1, more), &mut known)?;
                if *common.get_or_insert(end) != end {
                    return None;
                }
            }
        }
        common
    }

    /// What all states are alike to that are reached by a byte from `low` to `high` and `more`
    /// bytes, each of any six bits.
    fn after_rest(
        &self,
        state: StateId,
        rest: (u8, u8, u8),
        known: &mut Vec<(StateId, (u8, u8, u8), u32)>,
    ) -> Option<u32> {
        if let Some((.., end)) = known.iter().find(|(at, of, _)| (*at, *of) == (state, rest)) {
            return Some(*end);
        }
        let (low, high, more) = rest;
        let mut common = None;
        for byte in low..=high {
            let at = self.dfa.next(state, byte)?;
            let end = match more {
                0 => self.alike[at.0 as usize],
                _ => self.after_rest(at, (0x80, 0xBF, more - 1), known)?,
            };
            if *common.get_or_insert(end) != end {
                return None;
            }
        }
        known.push((state, rest, common?));
        common
    }
}

/// The lines of one walk by state.
struct Lines<'a> {
    states: &'a Kinds<'a>,
    known: Vec<(StateId, Line)>,
}

impl Lines<'_> {
    /// The line from `state`, after bytes that are `text`.
    fn from(&mut self, state: StateId, text: Text) -> Line {
        let known = self.known.iter().find(|(known, _)| *known == state).map(|(_, line)| *line);
        let line = known.unwrap_or_else(|| {
            let line = Line::from(self.states, state);
            if self.known.len() < REMEMBERED {
                self.known.push((state, line));
            }
            line
        });
        // Nodes know what is UTF-8 from the root on.
        Line { foreign: line.foreign && text == Text::Whole, ..line }
    }
}

/// What most of the live targets are, or any of them (Boyer and Moore's vote).
fn majority(targets: &[Option<u32>]) -> Option<u32> {
    let (mut candidate, mut lead) = (None, 0);
    for target in targets.iter().flatten() {
        if lead == 0 {
            candidate = Some(*target);
        }
        if candidate == Some(*target) { lead += 1 } else { lead -= 1 }
    }
    candidate
}

/// A live node whose children from `next` on have not been looked at.
struct Open {
    next: usize,
    end: usize,
    state: StateId,
    line: Line,
    /// Whether the line is that of the first state, whose tokens are allowed already.
    is_first: bool,
}

/// Adds the tokens of `trie` that can be read from `state` to `allowed`, which is empty.
pub(super) fn allow_readable(states: &Kinds<'_>, trie: &TokenTrie, state: StateId, allowed: &mut Bitset) {
    let siblings = trie.siblings();
    let (nodes, bytes, ids) = (siblings.nodes(), siblings.bytes(), trie.ids());
    let mut lines = Lines { states, known: Vec::new() };
    let line = lines.from(state, Text::Whole);
    let is_first = line.bytes.count_ones() >= WIDE;
    if is_first {
        siblings.spelled_with(line.bytes, line.foreign, line.reach, allowed);
    }
    ids[nodes[0].ids()].iter().for_each(|id| allowed.insert(id.index()));
    let children = nodes[0].children();
    let mut path = vec![Open { next: children.start, end: children.end, state, line, is_first }];
    while let Some(open) = path.last_mut() {
        // On to the next child that is live.
        let live = (open.next..open.end).find_map(|at| Some((at, states.dfa.next(open.state, bytes[at])?)));
        let Some((at, state)) = live else {
            path.pop();
            continue;
        };
        open.next = at + 1;
        let node = &nodes[at];
        let (line, is_first) = match open.line.after(bytes[at], node) {
            Some(line) => (line, open.is_first),
            None if node.ids_within().len() < WORTH_A_LINE => (Line::NONE, false),
            None => (lines.from(state, node.text()), false),
        };
        let covered = line.covers(node);
        if !is_first {
            let taken = if covered { node.ids_within() } else { node.ids() };
            ids[taken].iter().for_each(|id| allowed.insert(id.index()));
        }
        let children = node.children();
        if !covered && !children.is_empty() {
            path.push(Open { next: children.start, end: children.end, state, line, is_first });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_engine::vocab::{TokenEntry, Vocabulary};
    use lockstep_grammar::RegexOptions;
    use lockstep_sample::{EosSet, TokenId};
    use proptest::prelude::*;

    use super::*;

    fn vocab(tokens: Vec<Vec<u8>>) -> Arc<Vocabulary> {
        let tokens = tokens.into_iter().map(|bytes| TokenEntry { bytes, special: false });
        Vocabulary::new(tokens.collect(), EosSet::new([])).unwrap()
    }

    /// Whether the walk from every state finds what stepping through each token does.
    fn agrees(pattern: &str, vocab: &Vocabulary) -> bool {
        let dfa = Dfa::from_regex(pattern, &RegexOptions::default()).unwrap();
        let alike = dfa.alike(vocab.trie().longest(), |_| true);
        let states = Kinds { dfa: &dfa, alike: &alike };
        (0..dfa.state_count() as u32).map(StateId).all(|state| {
            let mut allowed = Bitset::new(vocab.row_len());
            allow_readable(&states, vocab.trie(), state, &mut allowed);
            (0..vocab.len()).all(|id| {
                let bytes = vocab.bytes_of(TokenId(id as u32));
                let end = bytes.iter().try_fold(state, |state, byte| dfa.next(state, *byte));
                allowed.contains(id) == end.is_some()
            })
        })
    }

    const PATTERNS: [&str; 17] = [
        "",
        "(?s:.)*",
        ".{1,40}",
        "[a-z ]{0,7}!",
        "[a-p]{1,3}[a-z]*",
        "[a-z]*([A-Z][a-z]*)*",
        r"\w+( \w+)*",
        "(ab|ba)*",
        "[ -~]{2}",
        "é*[a-z]+|[a-z]{20}[0-9]",
        "a[b-z]*a",
        "(?s-u:[\\x00-\\x7f])*",
        "[^q]*",
        "[^é]*",
        "(?s:.){1,60}",
        "[^a]*(a[^b]*)*",
        "[ -~\\u{80}-\\u{d7ff}]*",
    ];

    proptest! {
        #[test]
        fn the_walk_finds_what_stepping_finds(
            mut tokens in prop::collection::vec(prop::collection::vec(
                prop::sample::select("aabbzqA! 0é€\u{1f600}\u{ed0}".as_bytes().to_vec()), 0..9), 1..120),
            characters in prop::collection::vec("[abqé€\u{1f600}]{1,6}", 0..60),
            pattern in prop::sample::select(PATTERNS.to_vec()),
        ) {
            tokens.extend(characters.into_iter().map(String::into_bytes));
            // Subtrees that are worth a line, and tokens longer than any line is followed.
            tokens.extend((0..60_u8).map(|i| vec![b'a', b'a' + i / 26, b'a' + i % 26]));
            tokens.extend((28..45).map(|n| vec![b'a'; n]));
            prop_assert!(agrees(pattern, &vocab(tokens)), "{}", pattern);
        }
    }
}
