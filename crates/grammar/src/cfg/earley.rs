//! Recognition: which productions derive which stretches of a text (Earley, 1970; symbols that
//! derive the empty text are passed at once, Aycock and Horspool, 2002).
//!
//! Terminals are matched on the text itself: an item that expects one goes on at the end of each of
//! its matches. Each item remembers how it first came to be, from items that were there before; so
//! there is one derivation of everything, and none goes in circles.

use std::collections::{HashMap, HashSet};

use super::{Cfg, Symbol};

/// A production, read up to `dot`, since position `origin` of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) production: usize,
    pub(super) dot: usize,
    origin: usize,
}

/// An item of the chart: of the set after `end` bytes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    end: usize,
    index: usize,
}

/// What an item has read last.
#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    /// A whole production.
    Derived(Place),
    /// A symbol that derives the empty text.
    Empty(usize),
    /// A terminal's match, which begins here.
    Token { start: usize, end: usize },
}

#[derive(Clone, Debug)]
struct Entry {
    item: Item,
    /// The item before its last symbol, and that symbol's derivation.
    from: Option<(Place, Child)>,
}

#[derive(Debug, Default)]
struct Set {
    entries: Vec<Entry>,
    known: HashSet<Item>,
    /// The entries that expect each symbol.
    waiting: HashMap<usize, Vec<usize>>,
}

/// Everything that derives a stretch of a text.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    cfg: &'a Cfg,
    sets: Vec<Set>,
}

impl<'a> Chart<'a> {
    pub(super) fn new(cfg: &'a Cfg, text: &str) -> Self {
        let mut sets = Vec::new();
        sets.resize_with(text.len() + 1, Set::default);
        let mut chart = Self { cfg, sets };
        for &production in &cfg.by_symbol[cfg.start] {
            chart.add(0, Item { production, dot: 0, origin: 0 }, None);
        }
        for end in 0..chart.sets.len() {
            chart.close(end, text.as_bytes());
        }
        chart
    }

    /// The item that derives the whole text from the start.
    pub(super) fn accepted(&self) -> Option<Place> {
        let end = self.sets.len() - 1;
        let is_whole = |entry: &Entry| {
            let Item { production, dot, origin } = entry.item;
            let production = &self.cfg.productions[production];
            origin == 0 && production.of == self.cfg.start && dot == production.right.len()
        };
        self.sets[end].entries.iter().position(is_whole).map(|index| Place { end, index })
    }

    /// The item at a place.
    pub(super) fn item(&self, place: Place) -> Item {
        self.sets[place.end].entries[place.index].item
    }

    /// What the item at a place has read, in order.
    pub(super) fn children(&self, mut place: Place) -> Vec<Child> {
        let mut children = Vec::new();
        while let Some((before, child)) = self.sets[place.end].entries[place.index].from {
            children.push(child);
            place = before;
        }
        children.reverse();
        children
    }

    fn add(&mut self, end: usize, item: Item, from: Option<(Place, Child)>) {
        let set = &mut self.sets[end];
        if set.known.insert(item) {
            if let Some(Symbol::Nonterminal(symbol)) =
                self.cfg.productions[item.production].right.get(item.dot)
            {
                set.waiting.entry(*symbol).or_default().push(set.entries.len());
            }
            set.entries.push(Entry { item, from });
        }
    }

    /// Adds all that follows from the items after `end` bytes.
    fn close(&mut self, end: usize, text: &[u8]) {
        let cfg = self.cfg;
        let mut matches: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut index = 0;
        while let Some(Entry { item, .. }) = self.sets[end].entries.get(index) {
            let item = *item;
            let place = Place { end, index };
            let next = Item { dot: item.dot + 1, ..item };
            match cfg.productions[item.production].right.get(item.dot) {
                Some(Symbol::Nonterminal(symbol)) => {
                    for &production in &cfg.by_symbol[*symbol] {
                        self.add(end, Item { production, dot: 0, origin: end }, None);
                    }
                    if cfg.empty[*symbol].is_some() {
                        self.add(end, next, Some((place, Child::Empty(*symbol))));
                    }
                }
                Some(Symbol::Terminal(terminal, _)) => {
                    let ends =
                        matches.entry(*terminal).or_insert_with(|| matches_at(cfg, *terminal, text, end));
                    for &to in ends.iter() {
                        self.add(to, next, Some((place, Child::Token { start: end, end: to })));
                    }
                }
                // What is empty was passed where it was expected.
                None if item.origin == end => {}
                None => {
                    let symbol = cfg.productions[item.production].of;
                    let waiting = self.sets[item.origin].waiting.get(&symbol).cloned().unwrap_or_default();
                    for index in waiting {
                        let before = Place { end: item.origin, index };
                        let Item { production, dot, origin } = self.item(before);
                        let next = Item { production, dot: dot + 1, origin };
                        self.add(end, next, Some((before, Child::Derived(place))));
                    }
                }
            }
            index += 1;
        }
    }
}

/// Where the matches of a terminal from `start` end.
fn matches_at(cfg: &Cfg, terminal: usize, text: &[u8], start: usize) -> Vec<usize> {
    let dfa = &cfg.terminals[terminal].dfa;
    let mut state = dfa.start();
    let mut ends = Vec::new();
    for (i, byte) in text.iter().enumerate().skip(start) {
        let Some(next) = dfa.next(state, *byte) else { break };
        state = next;
        if dfa.is_final(state) {
            ends.push(i + 1);
        }
    }
    ends
}
