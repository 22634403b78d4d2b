//! Functions of rows, entry by entry. A dead entry stays dead and costs nothing.

use super::Row;

/// The row of `f` of each live log-weight; `len` is the length of the vocabulary's rows.
pub(super) fn map(row: &Row, len: usize, f: impl Fn(f64) -> f64) -> Row {
    let entries = row.entries();
    let live = entries.log_weights().iter().enumerate().filter(|(_, w)| **w > f64::NEG_INFINITY);
    collect(len, live.map(|(i, w)| (entries.position(i), f(*w))))
}

/// The row of `f` of two rows' log-weights, wherever one of them lives.
pub(super) fn combine(a: &Row, b: &Row, len: usize, f: impl Fn(f64, f64) -> f64) -> Row {
    let (a, b) = (a.to_dense(), b.to_dense());
    let at = |row: &[f64], position: usize| row.get(position).copied().unwrap_or(f64::NEG_INFINITY);
    let both = (0..len).map(|position| (position, at(&a, position), at(&b, position)));
    let live = both.filter(|(_, a, b)| a.max(*b) > f64::NEG_INFINITY);
    collect(len, live.map(|(position, a, b)| (position, f(a, b))))
}

/// The row of some positions' log-weights, all others `-inf`, in the form that takes less memory.
/// Positions are distinct and below `len`, in any order.
pub(super) fn collect(len: usize, entries: impl Iterator<Item = (usize, f64)>) -> Row {
    let live = entries.filter(|(_, weight)| *weight > f64::NEG_INFINITY);
    let mut live: Vec<(u32, f64)> =
        live.map(|(position, weight)| (u32::try_from(position).expect("ids have 32 bits"), weight)).collect();
    // A sparse entry has a position beside its weight.
    if live.len() * (size_of::<u32>() + size_of::<f64>()) >= len * size_of::<f64>() {
        let mut weights = vec![f64::NEG_INFINITY; len];
        for (position, weight) in live {
            weights[position as usize] = weight;
        }
        return Row::dense(weights);
    }
    if !live.is_sorted_by_key(|(position, _)| *position) {
        live.sort_unstable_by_key(|(position, _)| *position);
    }
    let (positions, weights): (Vec<u32>, Vec<f64>) = live.into_iter().unzip();
    Row::sparse(positions, weights)
}
