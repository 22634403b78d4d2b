//! The laws of potentials, as assertions.
//!
//! Each assertion panics if a law fails, and names the law, the context and the values. The oracle
//! is the potential itself on whole contexts: a fresh cursor whose rows read their context as one
//! span. Vocabularies are small, or the caller says which symbols to enumerate.
//!
//! ```
//! use lockstep_control::potential::BoolFsa;
//! use lockstep_control::testkit::{Tolerance, assert_claims, assert_contract, assert_cursor, words};
//! use lockstep_engine::TokenId;
//!
//! let digits = BoolFsa::from_regex("[ab]c?").expect("a pattern");
//! let symbols: Vec<TokenId> = b"abc".iter().map(|byte| TokenId(u32::from(*byte))).collect();
//! assert_contract(&digits, &words(&symbols, 3), Tolerance::EXACT);
//! assert_cursor(&digits, &symbols, 50, 1, Tolerance::EXACT);
//! assert_claims(&digits, &symbols, 3, 2, Tolerance::EXACT);
//! ```

mod claims;
mod cursor;
mod sparse;

use std::fmt::Display;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

pub use claims::{assert_claims, assert_soundness, assert_tight};
pub use cursor::assert_cursor;
pub use sparse::assert_sparse;

use crate::potential::{Cursor, Potential, Row, RowResult, Run};

/// How far two log-weights (nats) that should be equal may be apart:
/// `|a - b| <= absolute + relative · |b|`. Infinities are close only if they are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// In nats.
    pub absolute: f64,
    /// A share of the expected value.
    pub relative: f64,
}

impl Tolerance {
    /// No difference at all: for boolean potentials.
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0 };
    /// For potentials whose weights are sums of f64.
    pub const WEIGHTED: Self = Self { absolute: 1e-9, relative: 1e-9 };
    /// For language models.
    pub const MODEL: Self = Self { absolute: 1e-5, relative: 1e-3 };

    /// Whether `actual` is as good as `expected`. NaN is close to nothing.
    #[must_use]
    pub fn close(self, actual: f64, expected: f64) -> bool {
        if actual.is_infinite() || expected.is_infinite() {
            return actual == expected;
        }
        (actual - expected).abs() <= self.absolute + self.relative * expected.abs()
    }
}

/// All sequences of up to `depth` of the symbols, shortest first, from the empty one.
#[must_use]
pub fn words(symbols: &[TokenId], depth: usize) -> Vec<Vec<TokenId>> {
    let mut words = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..depth {
        let to = words.len();
        for i in from..to {
            for symbol in symbols {
                let mut word: Vec<TokenId> = words[i].clone();
                word.push(*symbol);
                words.push(word);
            }
        }
        from = to;
    }
    words
}

/// Consistency: `logw_next(t | x) = prefix(x · t) - prefix(x)` for every token t, and for EOS
/// `complete(x) - prefix(x)`, as a row and as probes. A dead context's row is `-inf` throughout.
/// Values are never `+inf` or NaN, and the empty sequence is live.
///
/// # Panics
/// If the law fails for one of `contexts` (without EOS), or a row fails.
pub fn assert_logw_next_consistency(
    potential: &dyn Potential,
    contexts: &[Vec<TokenId>],
    tolerance: Tolerance,
) {
    let oracle = Oracle::new("logw_next consistency", potential);
    if oracle.score(&[]) == f64::NEG_INFINITY {
        oracle.fail(&[], "the empty sequence has weight zero");
    }
    for context in contexts {
        let mut cursor = oracle.at(std::slice::from_ref(context));
        let before = oracle.value(context, "prefix", cursor.score(&[0]).remove(0));
        let row = oracle.row(context, cursor.logw_next(&[0]).remove(0));
        let tokens = oracle.tokens();
        let probed = cursor.probe(&[0], vec![tokens.clone()]).remove(0);
        let probed =
            probed.unwrap_or_else(|error| oracle.fail(context, format_args!("probe fails: {error}")));
        let extended: Vec<Vec<TokenId>> =
            tokens.iter().map(|token| [context.as_slice(), &[*token]].concat()).collect();
        for ((token, probed), after) in tokens.iter().zip(probed).zip(oracle.scores(&extended)) {
            let expected = if before == f64::NEG_INFINITY { before } else { after - before };
            let entry = oracle.entry(&row, *token);
            for (name, actual) in [("logw_next", entry), ("probe", probed)] {
                let actual = oracle.value(context, name, Ok(actual));
                if !tolerance.close(actual, expected) {
                    let token = show(oracle.vocab(), &[*token]);
                    oracle.fail(
                        context,
                        format_args!(
                            "{name} of {token} is {actual}, but the weights {before} before and {after} after it give {expected}"
                        ),
                    );
                }
            }
        }
        for position in (0..oracle.vocab().row_len()).filter(|position| row.at(*position) > f64::NEG_INFINITY)
        {
            if !tokens.contains(&oracle.vocab().token_at(position)) {
                oracle.fail(context, format_args!("position {position} is live, but belongs to no token"));
            }
        }
        let completed = oracle.value(context, "complete", cursor.complete(&[0]).remove(0));
        let ended = oracle.score(&[context.as_slice(), &[TokenId::EOS]].concat());
        if !tolerance.close(completed, ended) {
            oracle.fail(context, format_args!("complete is {completed}, but the ended row scores {ended}"));
        }
    }
}

/// Autoregressive factorisation: `complete(x) - prefix(ε)` is the sum of `logw_next` along x and
/// its end, read from the rows of one cursor.
///
/// # Panics
/// If the law fails for one of `contexts` (without EOS), or a row fails.
pub fn assert_autoreg_fact(potential: &dyn Potential, contexts: &[Vec<TokenId>], tolerance: Tolerance) {
    let oracle = Oracle::new("autoregressive factorisation", potential);
    let start = oracle.score(&[]);
    for context in contexts {
        let mut cursor = oracle.open(1);
        let ended = [context.as_slice(), &[TokenId::EOS]].concat();
        let mut sum = 0.0;
        for (i, token) in ended.iter().enumerate() {
            let row = oracle.row(&ended[..i], cursor.logw_next(&[0]).remove(0));
            sum += oracle.value(&ended[..i], "logw_next", Ok(oracle.entry(&row, *token)));
            let _ = cursor.advance(&[0], &[&[*token]]);
            if sum == f64::NEG_INFINITY {
                break;
            }
        }
        let expected = oracle.score(&ended);
        if !tolerance.close(start + sum, expected) {
            oracle.fail(context, format_args!("the factors give {}, complete is {expected}", start + sum));
        }
    }
}

/// Batch consistency: a row's score, completion, next-token weights and probes are the same, bit
/// for bit, alone in its cursor, among the rows of all `contexts`, and in requests of any part of
/// those.
///
/// # Panics
/// If the law fails for one of `contexts` (without EOS), or a row fails.
pub fn assert_batch_consistency(potential: &dyn Potential, contexts: &[Vec<TokenId>]) {
    let oracle = Oracle::new("batch consistency", potential);
    let alone: Vec<Vec<u64>> = contexts
        .iter()
        .map(|context| {
            let mut cursor = oracle.at(std::slice::from_ref(context));
            answers(&oracle, &mut *cursor, &[0], std::slice::from_ref(context)).remove(0)
        })
        .collect();
    let all: Vec<usize> = (0..contexts.len()).collect();
    let (even, odd): (Vec<usize>, Vec<usize>) = all.iter().partition(|row| *row % 2 == 0);
    let reversed: Vec<usize> = all.iter().rev().copied().collect();
    for split in [vec![all], vec![reversed], vec![odd, even]] {
        let mut cursor = oracle.at(contexts);
        for rows in split {
            let those: Vec<Vec<TokenId>> = rows.iter().map(|row| contexts[*row].clone()).collect();
            for (row, together) in rows.iter().zip(answers(&oracle, &mut *cursor, &rows, &those)) {
                if let Some(at) = (0..together.len()).find(|at| together[*at] != alone[*row][*at]) {
                    let (a, b) = (f64::from_bits(alone[*row][at]), f64::from_bits(together[at]));
                    let what = match at {
                        0 => "score".to_owned(),
                        1 => "complete".to_owned(),
                        _ => format!("logw_next or probe, value {}", at - 2),
                    };
                    oracle.fail(
                        &contexts[*row],
                        format_args!("{what} is {a} alone and {b} among {} rows", rows.len()),
                    );
                }
            }
        }
    }
}

/// Everything that `rows`, which have read `contexts`, answer, as bits.
fn answers(
    oracle: &Oracle<'_>,
    cursor: &mut dyn Cursor,
    rows: &[usize],
    contexts: &[Vec<TokenId>],
) -> Vec<Vec<u64>> {
    let scores = cursor.score(rows);
    let completed = cursor.complete(rows);
    let dense = cursor.logw_next(rows);
    let probed = cursor.probe(rows, vec![oracle.tokens(); rows.len()]);
    let mut all = Vec::with_capacity(rows.len());
    for ((((score, completed), row), probed), context) in
        scores.into_iter().zip(completed).zip(dense).zip(probed).zip(contexts)
    {
        let mut values =
            vec![oracle.value(context, "score", score), oracle.value(context, "complete", completed)];
        let row = oracle.row(context, row);
        values.extend((0..oracle.vocab().row_len()).map(|position| row.at(position)));
        values.extend(
            probed.unwrap_or_else(|error| oracle.fail(context, format_args!("probe fails: {error}"))),
        );
        all.push(values.into_iter().map(f64::to_bits).collect());
    }
    all
}

/// [`assert_logw_next_consistency`], [`assert_autoreg_fact`] and [`assert_batch_consistency`].
///
/// # Panics
/// If one of these laws fails for one of `contexts` (without EOS), or a row fails.
pub fn assert_contract(potential: &dyn Potential, contexts: &[Vec<TokenId>], tolerance: Tolerance) {
    assert_logw_next_consistency(potential, contexts, tolerance);
    assert_autoreg_fact(potential, contexts, tolerance);
    assert_batch_consistency(potential, contexts);
}

/// A potential on whole contexts, and the words for what is wrong with it.
struct Oracle<'a> {
    law: &'static str,
    potential: &'a dyn Potential,
    /// Nothing is reserved: tests are small.
    run: Run,
}

impl<'a> Oracle<'a> {
    fn new(law: &'static str, potential: &'a dyn Potential) -> Self {
        Self { law, potential, run: Run::default() }
    }

    fn vocab(&self) -> &Vocabulary {
        self.potential.vocab()
    }

    /// Every member of the vocabulary, and the end.
    fn tokens(&self) -> Vec<TokenId> {
        let vocab = self.vocab();
        (0..vocab.row_len())
            .map(|position| vocab.token_at(position))
            .filter(|token| token.is_eos() || vocab.is_member(*token))
            .collect()
    }

    fn open(&self, n: usize) -> Box<dyn Cursor> {
        self.potential
            .open(n, &self.run)
            .unwrap_or_else(|error| self.fail(&[], format_args!("open fails: {error}")))
    }

    /// A fresh cursor whose row i has read `contexts[i]` as one span.
    fn at(&self, contexts: &[Vec<TokenId>]) -> Box<dyn Cursor> {
        let mut cursor = self.open(contexts.len());
        let rows: Vec<usize> = (0..contexts.len()).collect();
        let spans: Vec<&[TokenId]> = contexts.iter().map(Vec::as_slice).collect();
        let _ = cursor.advance(&rows, &spans);
        cursor
    }

    /// `prefix` of each context, `complete` of one that ends with EOS.
    fn scores(&self, contexts: &[Vec<TokenId>]) -> Vec<f64> {
        let rows: Vec<usize> = (0..contexts.len()).collect();
        let scores = self.at(contexts).score(&rows);
        contexts.iter().zip(scores).map(|(context, score)| self.value(context, "score", score)).collect()
    }

    fn score(&self, context: &[TokenId]) -> f64 {
        self.scores(&[context.to_vec()]).remove(0)
    }

    /// A value that may be: it is there, and neither `+inf` nor NaN.
    fn value(&self, context: &[TokenId], name: &str, value: RowResult<f64>) -> f64 {
        match value {
            Ok(value) if value < f64::INFINITY => value,
            Ok(value) => self.fail(context, format_args!("{name} is {value}, which no weight may be")),
            Err(error) => self.fail(context, format_args!("{name} fails: {error}")),
        }
    }

    fn row(&self, context: &[TokenId], row: RowResult<Row>) -> Row {
        row.unwrap_or_else(|error| self.fail(context, format_args!("logw_next fails: {error}")))
    }

    /// The log-weight of `token` in a row; `-inf` for what is no member of the vocabulary.
    fn entry(&self, row: &Row, token: TokenId) -> f64 {
        let known = token.is_eos() || self.vocab().is_member(token);
        if known { row.at(self.vocab().position_of(token)) } else { f64::NEG_INFINITY }
    }

    fn fail(&self, context: &[TokenId], what: impl Display) -> ! {
        panic!("{} is violated after {}: {what}", self.law, show(self.vocab(), context))
    }
}

/// A sequence for people: its tokens' texts.
fn show(vocab: &Vocabulary, context: &[TokenId]) -> String {
    let token = |token: &TokenId| {
        if token.is_eos() { "EOS".to_owned() } else { format!("{:?}", vocab.display(*token)) }
    };
    format!("[{}]", context.iter().map(token).collect::<Vec<_>>().join(", "))
}
