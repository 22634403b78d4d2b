//! The texts of an automaton: how many, the shortest, and some of them.

use std::collections::{BTreeSet, VecDeque};

use lockstep::grammar::{Dfa, StateId};
use lockstep::sample::{DrawKey, ProblemKey};

/// Samples turn towards their end after this many bytes.
const LONG: usize = 32;

/// Attempts for each sample wanted: equal ones count once.
const ATTEMPTS: usize = 8;

/// How many texts there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    Infinite,
    Finite(u128),
    /// Finite, and more than 128 bits count; infinity if it is more than a float holds.
    Huge(f64),
}

/// An automaton, and for each state the bytes that lead from it to acceptance at the soonest.
pub(super) struct Language<'a> {
    dfa: &'a Dfa,
    distance: Vec<usize>,
    size: Size,
}

impl<'a> Language<'a> {
    pub(super) fn new(dfa: &'a Dfa) -> Self {
        let n = dfa.state_count();
        let mut sources: Vec<Vec<StateId>> = vec![Vec::new(); n];
        let mut arcs_out = vec![0_usize; n];
        for state in states(n) {
            for (_, next) in arcs(dfa, state) {
                sources[next.0 as usize].push(state);
                arcs_out[state.0 as usize] += 1;
            }
        }
        Self { dfa, distance: distances(dfa, &sources), size: size(dfa, &sources, arcs_out) }
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// The shortest text from `state` to acceptance; of those the first in order of bytes.
    pub(super) fn shortest(&self, mut state: StateId) -> Vec<u8> {
        let mut text = Vec::new();
        while self.distance[state.0 as usize] > 0 {
            let nearer = |(_, next): &(u8, StateId)| self.to_end(*next) < self.to_end(state);
            let (byte, next) = arcs(self.dfa, state).find(nearer).expect("a live state leads to acceptance");
            text.push(byte);
            state = next;
        }
        text
    }

    fn to_end(&self, state: StateId) -> usize {
        self.distance[state.0 as usize]
    }

    /// Up to `n` different texts, drawn with `seed`: printable ASCII where that can be.
    pub(super) fn samples(&self, n: usize, seed: u64) -> Vec<Vec<u8>> {
        let problem = ProblemKey::new(seed, 0);
        let (mut texts, mut known) = (Vec::new(), BTreeSet::new());
        for attempt in 0..ATTEMPTS.saturating_mul(n) {
            if texts.len() == n {
                break;
            }
            let text = self.sample(problem, u32::try_from(attempt).unwrap_or(u32::MAX));
            if known.insert(text.clone()) {
                texts.push(text);
            }
        }
        texts
    }

    fn sample(&self, problem: ProblemKey, number: u32) -> Vec<u8> {
        let (mut text, mut state) = (Vec::new(), self.dfa.start());
        loop {
            let key = DrawKey::new(problem, number, u32::try_from(text.len()).unwrap_or(u32::MAX), 0);
            let pick = |position: u32, n: usize| ((key.uniform(position) * n as f64) as usize).min(n - 1);
            let mut live: Vec<(u8, StateId)> = arcs(self.dfa, state).collect();
            if self.dfa.is_final(state) && (live.is_empty() || text.len() >= LONG || pick(0, 4) == 0) {
                return text;
            }
            if live.iter().any(|(byte, _)| is_plain(*byte)) {
                live.retain(|(byte, _)| is_plain(*byte));
            }
            if text.len() >= LONG {
                let nearer: Vec<_> = arcs(self.dfa, state)
                    .filter(|(_, next)| self.to_end(*next) < self.to_end(state))
                    .collect();
                live = nearer;
            }
            let (byte, next) = live[pick(1, live.len())];
            text.push(byte);
            state = next;
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

fn states(n: usize) -> impl Iterator<Item = StateId> {
    (0..n).filter_map(|state| u32::try_from(state).ok()).map(StateId)
}

fn arcs(dfa: &Dfa, state: StateId) -> impl Iterator<Item = (u8, StateId)> + '_ {
    (0..=u8::MAX).filter_map(move |byte| Some((byte, dfa.next(state, byte)?)))
}

/// The bytes to acceptance, by a search backwards.
fn distances(dfa: &Dfa, sources: &[Vec<StateId>]) -> Vec<usize> {
    let mut distance = vec![usize::MAX; sources.len()];
    let mut queue: VecDeque<StateId> = states(sources.len()).filter(|state| dfa.is_final(*state)).collect();
    queue.iter().for_each(|state| distance[state.0 as usize] = 0);
    while let Some(state) = queue.pop_front() {
        for source in &sources[state.0 as usize] {
            if distance[source.0 as usize] == usize::MAX {
                distance[source.0 as usize] = distance[state.0 as usize] + 1;
                queue.push_back(*source);
            }
        }
    }
    distance
}

/// Counts the texts from the last states to the first; states on a cycle never have their turn.
fn size(dfa: &Dfa, sources: &[Vec<StateId>], mut arcs_left: Vec<usize>) -> Size {
    let n = sources.len();
    let mut exact: Vec<Option<u128>> = states(n).map(|s| Some(u128::from(dfa.is_final(s)))).collect();
    let mut about: Vec<f64> = states(n).map(|s| f64::from(u8::from(dfa.is_final(s)))).collect();
    let mut settled: Vec<StateId> = states(n).filter(|state| arcs_left[state.0 as usize] == 0).collect();
    let mut done = 0;
    while let Some(state) = settled.pop() {
        done += 1;
        let at = state.0 as usize;
        for source in &sources[at] {
            let to = source.0 as usize;
            exact[to] = exact[to].zip(exact[at]).and_then(|(a, b)| a.checked_add(b));
            about[to] += about[at];
            arcs_left[to] -= 1;
            if arcs_left[to] == 0 {
                settled.push(*source);
            }
        }
    }
    let start = dfa.start().0 as usize;
    match exact[start] {
        _ if done < n => Size::Infinite,
        Some(size) => Size::Finite(size),
        None => Size::Huge(about[start]),
    }
}

#[cfg(test)]
mod tests {
    use lockstep::grammar::RegexOptions;

    use super::*;

    fn dfa(pattern: &str) -> Dfa {
        Dfa::from_regex(pattern, &RegexOptions::default()).unwrap()
    }

    #[test]
    fn texts_are_counted() {
        for (pattern, size) in [
            ("", Size::Finite(1)),
            ("a|b|ab", Size::Finite(3)),
            ("[0-9]{3}", Size::Finite(1000)),
            ("a{2,4}", Size::Finite(3)),
            ("é", Size::Finite(1)),
            ("ab*", Size::Infinite),
            ("[ab]{126}", Size::Finite(1 << 126)),
        ] {
            assert_eq!(Language::new(&dfa(pattern)).size(), size, "{pattern}");
        }
        let Size::Huge(size) = Language::new(&dfa("[ab]{200}")).size() else { panic!("it is huge") };
        assert!((size / 2f64.powi(200) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn samples_are_accepted_and_different() {
        for (pattern, n) in [("a|b", 2), (r"\w{3,9}", 5), ("(é|x)*", 5), ("a{100}b*", 3), (".*end", 5)] {
            let dfa = dfa(pattern);
            let texts = Language::new(&dfa).samples(n, 7);
            assert!(!texts.is_empty() && texts.len() <= n);
            assert!(texts.iter().all(|text| dfa.accepts(text)), "{pattern}: {texts:?}");
            assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), texts.len());
            assert_eq!(texts, Language::new(&dfa).samples(n, 7));
        }
    }

    #[test]
    fn the_shortest_text_completes() {
        let dfa = dfa("abc|x[bc]|xyz");
        assert_eq!(Language::new(&dfa).shortest(dfa.start()), b"xb");
    }
}
