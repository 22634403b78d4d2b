//! Potentials read through other vocabularies, under maps of all kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_control::potential::{
    Claims, CoerceOptions, Cursor, Potential, RowResult, Run, Status, SymbolMap, Ticket, Want,
};
use lockstep_control::testkit::{Tolerance, WeightedSet, words};
use lockstep_control::{BoolFsa, Coerced, ControlError, ErrorKind, PotentialExt};
use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

use super::{check, tokens};
use crate::support::{DEAD, assert_equal, byte_set, bytes, function, ids, members, vocabulary};

const STRINGS: &[(&str, f64)] = &[("", 0.5), ("abba", 2.0), ("ab", 3.0), ("bab", 0.25), ("bb", 1.0)];

/// The bytes of tokens, as a function.
fn spell(vocab: &Arc<Vocabulary>) -> impl Fn(&[TokenId]) -> Vec<TokenId> + Clone + Send + Sync + 'static {
    let vocab = Arc::clone(vocab);
    move |context| {
        context.iter().flat_map(|token| vocab.bytes_of(*token)).map(|byte| TokenId((*byte).into())).collect()
    }
}

fn with(homomorphic: Option<bool>, prune: bool) -> CoerceOptions {
    CoerceOptions { prune, homomorphic }
}

#[test]
fn all_readings_of_one_map_are_equal() {
    let vocab = tokens();
    let inner = byte_set(STRINGS);
    let walked = inner.clone().coerce(Arc::clone(&vocab)).unwrap();
    check(&walked, 0);
    let f = spell(&vocab);
    let function = || {
        let f = f.clone();
        SymbolMap::function(move |context| Ok(f(context)))
    };
    for (map, homomorphic) in [
        (SymbolMap::Bytes, Some(false)),
        (function(), None),
        (function(), Some(true)),
        (function(), Some(false)),
    ] {
        for prune in [true, false] {
            let options = with(homomorphic, prune);
            let coerced = Coerced::with_map(inner.clone(), vocab.clone(), map.clone(), options).unwrap();
            let monotone = homomorphic == Some(true);
            assert_eq!(coerced.claims(), Claims { monotone, ..Claims::default() });
            assert_eq!(coerced.tokens(), ids(&[0, 1, 2, 3, 4]));
            check(&coerced, 0);
            assert_equal(&coerced, &walked, &words(&members(&vocab), 3), Tolerance::WEIGHTED);
        }
    }
}

#[test]
fn flattening_reads_an_alphabet_and_prunes_what_it_lacks() {
    let set = WeightedSet::new("bac", STRINGS).potential();
    let vocab = vocabulary(&["a", "xa", "ab", "ba", "a", "b", "bad", "", "<|a|>", "</s>"], &[8], &[9]);
    let flat = Coerced::with_map(set, vocab.clone(), SymbolMap::Bytes, CoerceOptions::default()).unwrap();
    assert_eq!(flat.tokens(), ids(&[0, 2, 3, 4, 5, 7]));
    check(&flat, 0);
    assert_equal(
        &flat,
        &byte_set(STRINGS).coerce(vocab).unwrap(),
        &words(&flat.tokens(), 3),
        Tolerance::WEIGHTED,
    );
}

#[test]
fn a_map_that_is_not_homomorphic_is_asked_about_whole_contexts() {
    // Spaces at the beginning of a text are dropped.
    let vocab = vocabulary(&["a", " ", " a", "b", "b ", "<|a|>", "</s>"], &[5], &[6]);
    let inner = byte_set(&[("a b", 1.0), ("b", 2.0), ("", 0.5), ("b  a", 0.25)]);
    let longest = Arc::new(AtomicUsize::new(0));
    let (seen, f) = (Arc::clone(&longest), spell(&vocab));
    let map = SymbolMap::function(move |context| {
        seen.fetch_max(context.len(), Ordering::Relaxed);
        let symbols = f(context);
        Ok(symbols.into_iter().skip_while(|symbol| symbol.0 == u32::from(b' ')).collect())
    });
    let coerced = Coerced::with_map(inner.clone(), vocab.clone(), map, CoerceOptions::default()).unwrap();
    check(&coerced, 0);
    let (tables, strings) = (Arc::clone(&vocab), Arc::clone(&inner));
    let reference = function(&vocab, Claims::default(), move |context, ended| {
        if context.contains(&TokenId(5)) {
            return DEAD;
        }
        let text: Vec<u8> = context.iter().flat_map(|token| tables.bytes_of(*token)).copied().collect();
        let text = String::from_utf8(text).unwrap();
        let trimmed = bytes(text.trim_start_matches(' '));
        super::weight(&*strings, &trimmed, ended)
    });
    assert_equal(&coerced, &*reference, &words(&members(&vocab), 3), Tolerance::WEIGHTED);
    assert!(longest.load(Ordering::Relaxed) >= 4, "rows after three tokens are weighed by whole contexts");
}

#[test]
fn pruning_goes_by_what_a_token_is_on_its_own() {
    // The map knows `x` only behind an `a`.
    let vocab = vocabulary(&["a", "x", "b"], &[], &[]);
    let map = SymbolMap::function(|context| {
        let symbol = |i: usize| match context[i].0 {
            0 => u32::from(b'a'),
            1 if i > 0 && context[i - 1].0 == 0 => u32::from(b'b'),
            1 => 1000,
            _ => u32::from(b'b'),
        };
        Ok((0..context.len()).map(|i| TokenId(symbol(i))).collect())
    });
    let inner = byte_set(STRINGS);
    let coerce =
        |prune| Coerced::with_map(inner.clone(), vocab.clone(), map.clone(), with(None, prune)).unwrap();
    let (pruned, whole) = (coerce(true), coerce(false));
    check(&pruned, 0);
    check(&whole, 0);
    assert_eq!((pruned.tokens(), whole.tokens()), (ids(&[0, 2]), ids(&[0, 1, 2])));
    assert_eq!(super::weight(&pruned, &ids(&[0, 1]), true), DEAD);
    assert_eq!(super::weight(&whole, &ids(&[0, 1]), true), super::weight(&*inner, &bytes("ab"), true));
}

#[test]
fn potentials_24_a_terminal_only_critic_stays_so_under_a_map() {
    let claims = Claims { terminal_only: true, ..Claims::default() };
    let critic = function(
        &Vocabulary::bytes(),
        claims,
        |context, ended| {
            if ended { -(context.len() as f64) } else { 0.0 }
        },
    );
    let vocab = tokens();
    for homomorphic in [Some(true), Some(false)] {
        let f = spell(&vocab);
        let map = SymbolMap::function(move |context| Ok(f(context)));
        let coerced = Coerced::with_map(critic.clone(), vocab.clone(), map, with(homomorphic, true)).unwrap();
        assert_eq!(coerced.claims(), claims);
        check(&coerced, 0);
    }
}

#[test]
fn what_leaves_nothing_or_fails_is_an_error() {
    let inner = byte_set(STRINGS);
    let map = |symbol: Option<u32>| {
        SymbolMap::function(move |_| match symbol {
            Some(symbol) => Ok(vec![TokenId(symbol)]),
            None => Err(ControlError::new(ErrorKind::Custom, "no idea")),
        })
    };
    let coerce = |map, vocab| Coerced::with_map(inner.clone(), vocab, map, CoerceOptions::default());
    let nothing = coerce(map(Some(300)), tokens()).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::Vocabulary);
    let special = Coerced::new(inner.clone(), vocabulary(&["<a>", "</s>"], &[0], &[1])).unwrap_err();
    assert_eq!(special.kind(), ErrorKind::Vocabulary);
    assert_eq!(coerce(map(None), tokens()).unwrap_err().to_string(), "no idea");
    let ends = coerce(map(Some(TokenId::EOS.0)), tokens()).unwrap_err();
    assert!(ends.to_string().contains("EOS"), "{ends}");
    let panics = coerce(SymbolMap::function(|_| panic!("oh no")), tokens()).unwrap_err();
    assert!(panics.to_string().contains("oh no"), "{panics}");
    // One that fails later fails its row only.
    let f = spell(&tokens());
    let late = SymbolMap::function(move |context| match context {
        [TokenId(0), TokenId(0)] => panic!("twice"),
        _ => Ok(f(context)),
    });
    let coerced =
        Coerced::with_map(byte_set(&[("aa", 1.0), ("ab", 1.0)]), tokens(), late, CoerceOptions::default());
    let coerced = coerced.unwrap();
    let mut cursor = coerced.open(2, &Run::default()).unwrap();
    let statuses = cursor.advance(&[0, 1], &[&ids(&[0, 0]), &ids(&[0, 1])]);
    assert!(matches!(&statuses[0], Status::Failed(error) if error.to_string().contains("twice")));
    assert!(matches!(statuses[1], Status::Live));
}

/// An automaton that hides behind a cursor which counts the symbols it reads or weighs.
struct Counted {
    inner: BoolFsa,
    symbols: Arc<AtomicUsize>,
}

impl Potential for Counted {
    fn vocab(&self) -> &Arc<Vocabulary> {
        self.inner.vocab()
    }
    fn claims(&self) -> Claims {
        self.inner.claims()
    }
    fn open(&self, n: usize, run: &Run) -> Result<Box<dyn Cursor>, ControlError> {
        Ok(Box::new(CountedCursor { inner: self.inner.open(n, run)?, symbols: Arc::clone(&self.symbols) }))
    }
}

struct CountedCursor {
    inner: Box<dyn Cursor>,
    symbols: Arc<AtomicUsize>,
}

impl Cursor for CountedCursor {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn request(&mut self, rows: &[usize], want: Want) -> Ticket {
        let weighed = match &want {
            Want::Tokens(tokens) => tokens.iter().map(Vec::len).sum(),
            _ => 257 * rows.len(),
        };
        self.symbols.fetch_add(weighed, Ordering::Relaxed);
        self.inner.request(rows, want)
    }
    fn advance(&mut self, rows: &[usize], spans: &[&[TokenId]]) -> Vec<Status> {
        self.symbols.fetch_add(spans.iter().map(|span| span.len()).sum(), Ordering::Relaxed);
        self.inner.advance(rows, spans)
    }
    fn score(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.score(rows)
    }
    fn complete(&mut self, rows: &[usize]) -> Vec<RowResult<f64>> {
        self.inner.complete(rows)
    }
    fn select(&mut self, ancestors: &[usize]) {
        self.inner.select(ancestors);
    }
    fn fork(&self, rows: &[usize]) -> Box<dyn Cursor> {
        Box::new(Self { inner: self.inner.fork(rows), symbols: Arc::clone(&self.symbols) })
    }
    fn release(&mut self, rows: &[usize]) {
        self.inner.release(rows);
    }
}

#[test]
fn a_token_costs_its_bytes_and_a_row_its_live_edges_whatever_was_read() {
    let symbols = Arc::new(AtomicUsize::new(0));
    let counted = Counted { inner: BoolFsa::from_regex("(ab)*").unwrap(), symbols: Arc::clone(&symbols) };
    let vocab = vocabulary(&["ab", "abab", "abba", "b", "bababababa", "abac", "</s>"], &[], &[6]);
    let coerced = counted.coerce(vocab).unwrap();
    let mut cursor = coerced.open(1, &Run::default()).unwrap();
    let cost = |cursor: &mut dyn Cursor, ask: &dyn Fn(&mut dyn Cursor)| {
        symbols.store(0, Ordering::Relaxed);
        ask(cursor);
        symbols.load(Ordering::Relaxed)
    };
    for _ in 0..3 {
        let probe = |cursor: &mut dyn Cursor| {
            assert_eq!(cursor.probe(&[0], vec![ids(&[1, 3])]).remove(0).unwrap(), [0.0, DEAD]);
        };
        assert_eq!(cost(&mut *cursor, &probe), 4 + 1);
        // The root's two edges and the end; the one edge of `a`; both of `ab`; both of `aba`.
        let row = |cursor: &mut dyn Cursor| {
            assert_eq!(cursor.logw_next(&[0]).remove(0).unwrap().log_total(), 3.0_f64.ln());
        };
        let (weighed, advanced) = (3 + 1 + 2 + 2, 1 + 1 + 1);
        assert_eq!(cost(&mut *cursor, &row), weighed + advanced);
        let read = |cursor: &mut dyn Cursor| drop(cursor.advance(&[0], &[&[TokenId(1); 100]]));
        assert_eq!(cost(&mut *cursor, &read), 400);
    }
}
