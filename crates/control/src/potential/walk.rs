//! The tokens that a byte automaton allows in a state: one walk of the vocabulary's trie.
//!
//! A dead subtree is skipped. So is a wholly live one, whose tokens are taken at once: many
//! automata read long runs of a class of bytes (`.*`, `[a-z ]{1,20}`), and a [`Line`] is such a run
//! ahead of a state. A subtree that spells only the line's bytes and ends within it needs no step,
//! and the tokens along the line of the first state are known without any walk.

use lockstep_engine::vocab::{SiblingNode, SiblingTrie, TokenTrie};
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

/// Every text of at most `reach` bytes, all of them ASCII and among `bytes`, can be read.
#[derive(Clone, Copy)]
struct Line {
    bytes: u128,
    reach: u8,
}

impl Line {
    const NONE: Self = Self { bytes: 0, reach: 0 };

    /// A line from `state`: of the bytes that lead where most bytes lead, as far as all of them go
    /// on together.
    fn from(dfa: &Dfa, state: StateId) -> Self {
        let targets: [Option<StateId>; 128] = std::array::from_fn(|byte| dfa.next(state, byte as u8));
        let Some(target) = majority(&targets) else { return Self::NONE };
        let bytes = (0..128).filter(|byte| targets[*byte] == Some(target));
        let bytes = bytes.fold(0u128, |set, byte| set | 1 << byte);
        if target == state {
            return Self { bytes, reach: ENDLESS };
        }
        let (mut at, mut reach) = (target, 1);
        while reach < SiblingTrie::FAR {
            match common_target(dfa, at, bytes) {
                Some(next) if next == at => return Self { bytes, reach: ENDLESS },
                Some(next) => at = next,
                None => break,
            }
            reach += 1;
        }
        Self { bytes, reach }
    }

    /// What is left of the line after `byte`; `None` if it leaves the line.
    fn after(self, byte: u8) -> Option<Self> {
        let stays = byte.is_ascii() && self.bytes >> byte & 1 == 1 && self.reach > 0;
        // A line that goes on for ever is not used up.
        let used = u8::from(self.reach < ENDLESS);
        stays.then(|| Self { reach: self.reach - used, ..self })
    }

    /// Whether every token through `node` goes on along this line to its end.
    fn covers(self, node: &SiblingNode) -> bool {
        node.height() <= self.reach && node.ascii_below() & !self.bytes == 0
    }
}

/// The lines of one walk by state.
struct Lines<'a> {
    dfa: &'a Dfa,
    known: Vec<(StateId, Line)>,
}

impl Lines<'_> {
    fn from(&mut self, state: StateId) -> Line {
        if let Some((_, line)) = self.known.iter().find(|(known, _)| *known == state) {
            return *line;
        }
        let line = Line::from(self.dfa, state);
        if self.known.len() < REMEMBERED {
            self.known.push((state, line));
        }
        line
    }
}

/// A state that most of the live targets are, or any of them (Boyer and Moore's vote).
fn majority(targets: &[Option<StateId>]) -> Option<StateId> {
    let (mut candidate, mut lead) = (None, 0);
    for target in targets.iter().flatten() {
        if lead == 0 {
            candidate = Some(*target);
        }
        if candidate == Some(*target) { lead += 1 } else { lead -= 1 }
    }
    candidate
}

/// The one state after all of `bytes`.
fn common_target(dfa: &Dfa, state: StateId, bytes: u128) -> Option<StateId> {
    let target = dfa.next(state, bytes.trailing_zeros() as u8)?;
    let mut rest = bytes & (bytes - 1);
    while rest != 0 {
        if dfa.next(state, rest.trailing_zeros() as u8) != Some(target) {
            return None;
        }
        rest &= rest - 1;
    }
    Some(target)
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
pub(super) fn allow_readable(dfa: &Dfa, trie: &TokenTrie, state: StateId, allowed: &mut Bitset) {
    let siblings = trie.siblings();
    let (nodes, bytes, ids) = (siblings.nodes(), siblings.bytes(), trie.ids());
    let mut lines = Lines { dfa, known: Vec::new() };
    let line = lines.from(state);
    let is_first = line.bytes.count_ones() >= WIDE;
    if is_first {
        siblings.spelled_with(line.bytes, line.reach, allowed);
    }
    ids[nodes[0].ids()].iter().for_each(|id| allowed.insert(id.index()));
    let children = nodes[0].children();
    let mut path = vec![Open { next: children.start, end: children.end, state, line, is_first }];
    while let Some(open) = path.last_mut() {
        // On to the next child that is live.
        let live = (open.next..open.end).find_map(|at| Some((at, dfa.next(open.state, bytes[at])?)));
        let Some((at, state)) = live else {
            path.pop();
            continue;
        };
        open.next = at + 1;
        let node = &nodes[at];
        let (line, is_first) = match open.line.after(bytes[at]) {
            Some(line) => (line, open.is_first),
            None if node.ids_within().len() < WORTH_A_LINE => (Line::NONE, false),
            None => (lines.from(state), false),
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
        (0..dfa.state_count() as u32).map(StateId).all(|state| {
            let mut allowed = Bitset::new(vocab.row_len());
            allow_readable(&dfa, vocab.trie(), state, &mut allowed);
            (0..vocab.len()).all(|id| {
                let bytes = vocab.bytes_of(TokenId(id as u32));
                let end = bytes.iter().try_fold(state, |state, byte| dfa.next(state, *byte));
                allowed.contains(id) == end.is_some()
            })
        })
    }

    const PATTERNS: [&str; 12] = [
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
    ];

    proptest! {
        #[test]
        fn the_walk_finds_what_stepping_finds(
            mut tokens in prop::collection::vec(prop::collection::vec(
                prop::sample::select("aabbzqA! 0é".as_bytes().to_vec()), 0..9), 1..120),
            pattern in prop::sample::select(PATTERNS.to_vec()),
        ) {
            // Subtrees that are worth a line, and tokens longer than any line is followed.
            tokens.extend((0..60_u8).map(|i| vec![b'a', b'a' + i / 26, b'a' + i % 26]));
            tokens.extend((28..45).map(|n| vec![b'a'; n]));
            prop_assert!(agrees(pattern, &vocab(tokens)), "{}", pattern);
        }
    }
}
