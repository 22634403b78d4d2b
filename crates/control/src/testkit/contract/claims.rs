//! Soundness, and what a potential claims of itself, against enumeration.

use lockstep_sample::TokenId;

use super::{Oracle, Tolerance, words};
use crate::potential::{Cursor, Potential};

/// Soundness: what extends or completes a context of weight zero has weight zero, for all
/// sequences of up to `depth` of the symbols.
///
/// # Panics
/// If the law fails, or a row fails.
pub fn assert_soundness(potential: &dyn Potential, symbols: &[TokenId], depth: usize) {
    let oracle = Oracle::new("soundness", potential);
    for context in words(symbols, depth) {
        if oracle.score(&context) > f64::NEG_INFINITY {
            continue;
        }
        let next = symbols.iter().chain(&[TokenId::EOS]);
        let extended: Vec<Vec<TokenId>> =
            next.map(|token| [context.as_slice(), &[*token]].concat()).collect();
        for (extended, score) in extended.iter().zip(oracle.scores(&extended)) {
            if score > f64::NEG_INFINITY {
                oracle.fail(extended, format_args!("the weight is {score}, but its prefix has weight zero"));
            }
        }
    }
}

/// Tightness: every live sequence of up to `depth` of the symbols has a completion that adds at
/// most `completion` of them.
///
/// # Panics
/// If the law fails, or a row fails.
pub fn assert_tight(potential: &dyn Potential, symbols: &[TokenId], depth: usize, completion: usize) {
    let oracle = Oracle::new("tightness", potential);
    for context in words(symbols, depth) {
        let mut cursor = oracle.at(std::slice::from_ref(&context));
        if oracle.value(&context, "prefix", cursor.score(&[0]).remove(0)) == f64::NEG_INFINITY {
            continue;
        }
        if !completes(&oracle, &mut *cursor, &context, symbols, completion) {
            oracle.fail(
                &context,
                format_args!("it is live, but no completion adds {completion} symbols or fewer"),
            );
        }
    }
}

/// Whether some row of `cursor`, after at most `completion` more symbols, may end.
fn completes(
    oracle: &Oracle<'_>,
    cursor: &mut dyn Cursor,
    context: &[TokenId],
    symbols: &[TokenId],
    completion: usize,
) -> bool {
    for further in 0..=completion {
        let rows: Vec<usize> = (0..cursor.len()).collect();
        for ended in cursor.complete(&rows) {
            if oracle.value(context, "complete of an extension", ended) > f64::NEG_INFINITY {
                return true;
            }
        }
        let probed = cursor.probe(&rows, vec![symbols.to_vec(); rows.len()]);
        let (mut parents, mut steps) = (Vec::new(), Vec::new());
        for (row, probed) in probed.into_iter().enumerate() {
            let probed =
                probed.unwrap_or_else(|error| oracle.fail(context, format_args!("probe fails: {error}")));
            for (symbol, _) in symbols.iter().zip(probed).filter(|(_, logw)| *logw > f64::NEG_INFINITY) {
                parents.push(row);
                steps.push([*symbol]);
            }
        }
        if parents.is_empty() || further == completion {
            break;
        }
        cursor.select(&parents);
        let rows: Vec<usize> = (0..parents.len()).collect();
        let spans: Vec<&[TokenId]> = steps.iter().map(<[TokenId; 1]>::as_slice).collect();
        let _ = cursor.advance(&rows, &spans);
    }
    false
}

/// The potential's [claims](crate::potential::Claims), each for all sequences of up to `depth` of
/// the symbols: *boolean*, *tight* (see [`assert_tight`]), *mass-exact* (over the whole
/// vocabulary), *monotone*, *terminal-only* (special tokens, which no constraint over bytes takes,
/// excepted).
///
/// # Panics
/// If a claim is false, or a row fails.
pub fn assert_claims(
    potential: &dyn Potential,
    symbols: &[TokenId],
    depth: usize,
    completion: usize,
    tolerance: Tolerance,
) {
    let claims = potential.claims();
    if claims.tight {
        assert_tight(potential, symbols, depth, completion);
    }
    let boolean = Oracle::new("the claim boolean", potential);
    let mass_exact = Oracle::new("the claim mass-exact", potential);
    let monotone = Oracle::new("the claim monotone", potential);
    let terminal_only = Oracle::new("the claim terminal-only", potential);
    let is_boolean = |weight: f64| weight == 0.0 || weight == f64::NEG_INFINITY;
    for context in words(symbols, depth) {
        let prefix = boolean.score(&context);
        if claims.boolean {
            let complete = boolean.score(&[context.as_slice(), &[TokenId::EOS]].concat());
            if !(is_boolean(prefix) && is_boolean(complete)) {
                boolean.fail(&context, format_args!("prefix is {prefix}, complete {complete}"));
            }
        }
        if claims.mass_exact && prefix > f64::NEG_INFINITY {
            let mut cursor = mass_exact.at(std::slice::from_ref(&context));
            let total = mass_exact.row(&context, cursor.logw_next(&[0]).remove(0)).log_total();
            if !tolerance.close(total, 0.0) {
                mass_exact.fail(&context, format_args!("the next-token weights sum to exp({total}), not 1"));
            }
        }
        if claims.monotone
            && let Some((_, before)) = context.split_last()
        {
            let before = monotone.score(before);
            if prefix > before && !tolerance.close(prefix, before) {
                monotone.fail(&context, format_args!("prefix rises from {before} to {prefix}"));
            }
        }
        let ordinary = !context.iter().any(|token| potential.vocab().is_special(*token));
        if claims.terminal_only && ordinary && prefix != 0.0 {
            terminal_only.fail(&context, format_args!("prefix is {prefix}, not 0"));
        }
    }
}
