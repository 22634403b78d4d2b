//! Rows that list what is live, and masks, against whole contexts.

use lockstep_sample::TokenId;

use super::{Oracle, show};
use crate::potential::{Cursor, Potential, Row};

/// Sparse rows: a row that is not dense lists positions of its own in rising order, only what is
/// live, and everything that is. A cursor that tells masks allows what is live, and just that.
///
/// # Panics
/// If the law fails for one of `contexts` (without EOS), or a row fails.
pub fn assert_sparse(potential: &dyn Potential, contexts: &[Vec<TokenId>]) {
    let oracle = Oracle::new("sparseness", potential);
    for context in contexts {
        let mut cursor = oracle.at(std::slice::from_ref(context));
        let row = oracle.row(context, cursor.logw_next(&[0]).remove(0));
        listed(&oracle, context, &row);
        masked(&oracle, context, &row, &mut *cursor);
    }
}

fn listed(oracle: &Oracle<'_>, context: &[TokenId], row: &Row) {
    let (entries, len) = (row.entries(), oracle.vocab().row_len());
    let weights = entries.log_weights().iter().copied().enumerate();
    let entries: Vec<(usize, f64)> = weights.map(|(i, weight)| (entries.position(i), weight)).collect();
    if let Some(two) = entries.windows(2).find(|two| two[0].0 >= two[1].0) {
        oracle.fail(context, format_args!("position {} is listed after {}", two[1].0, two[0].0));
    }
    if entries.last().is_some_and(|(last, _)| *last >= len) {
        oracle.fail(context, format_args!("a position is listed that is none of the row's {len}"));
    }
    if entries.len() == len {
        return; // dense, or as good as that
    }
    for (position, weight) in &entries {
        if *weight == f64::NEG_INFINITY {
            oracle.fail(context, format_args!("position {position} is listed, but dead"));
        }
    }
    if oracle.score(context) == f64::NEG_INFINITY {
        return;
    }
    let is_listed = |token: &TokenId| {
        entries.binary_search_by_key(&oracle.vocab().position_of(*token), |(p, _)| *p).is_ok()
    };
    let missing: Vec<TokenId> = oracle.tokens().into_iter().filter(|token| !is_listed(token)).collect();
    let extended: Vec<Vec<TokenId>> = missing.iter().map(|token| [context, &[*token]].concat()).collect();
    for (token, weight) in missing.iter().zip(oracle.scores(&extended)) {
        if weight > f64::NEG_INFINITY {
            let token = show(oracle.vocab(), &[*token]);
            oracle.fail(context, format_args!("{token} is not listed, but the weight after it is {weight}"));
        }
    }
}

fn masked(oracle: &Oracle<'_>, context: &[TokenId], row: &Row, cursor: &mut dyn Cursor) {
    let Some(mask) = cursor.masks(&[0]).map(|mut masks| masks.remove(0)) else { return };
    let len = oracle.vocab().row_len();
    if mask.len() != len {
        oracle.fail(context, format_args!("the mask has {} positions, the row {len}", mask.len()));
    }
    for position in 0..len {
        let weight = row.at(position);
        if mask.contains(position) != (weight > f64::NEG_INFINITY) {
            oracle.fail(
                context,
                format_args!("the mask has position {position} wrong: its weight is {weight}"),
            );
        }
    }
}
