//! Every order of a few candidates, and an estimator to compare with.

use super::Ratio;

/// Calls `visit` with every order of the candidates `among`, drawn without replacement in
/// proportion to their `weights`, and its probability.
///
/// ```
/// use lockstep_control::testkit::{Ratio, for_each_order};
///
/// let mut second = [Ratio::ZERO; 3];
/// for_each_order(&[1, 2, 3], &[0, 1, 2], &mut |order, p| second[order[1]] = second[order[1]] + p);
/// assert_eq!(second[0], Ratio::new(1, 6) * (Ratio::new(2, 4) + Ratio::new(3, 3)));
/// ```
pub fn for_each_order(weights: &[u32], among: &[usize], visit: &mut dyn FnMut(&[usize], Ratio)) {
    extend(weights, &mut Vec::new(), among, Ratio::ONE, visit);
}

fn extend(
    weights: &[u32],
    order: &mut Vec<usize>,
    left: &[usize],
    probability: Ratio,
    visit: &mut dyn FnMut(&[usize], Ratio),
) {
    if left.is_empty() {
        return visit(order, probability);
    }
    let total: u32 = left.iter().map(|i| weights[*i]).sum();
    for i in left {
        let rest: Vec<usize> = left.iter().copied().filter(|j| j != i).collect();
        order.push(*i);
        let step = Ratio::new(weights[*i].into(), total.into());
        extend(weights, order, &rest, probability * step, visit);
        order.pop();
    }
}

/// The estimator of two loops, the predecessor of those in use: the first accepted candidate and its
/// `s`, or `None` if nothing is accepted.
///
/// The first loop walks the order `first` of all candidates to an acceptance, after `n₁` rejections
/// of mass `m₁`; the second walks `second`, a fresh order of those not rejected, after `n₂`
/// rejections. `s = (1 − m₁) / (n₁ + n₂ + 1)`.
///
/// # Panics
/// If nothing in `second` is accepted.
#[must_use]
pub fn two_loops(
    weights: &[u32],
    first: &[usize],
    second: &[usize],
    accepts: &[bool],
) -> Option<(usize, Ratio)> {
    let rejects = first.iter().position(|i| accepts[*i])?;
    let more = second.iter().position(|i| accepts[*i]).expect("the accepted candidate is put back");
    let mass: u32 = first[rejects..].iter().map(|i| weights[*i]).sum();
    let draws = i128::try_from(rejects + more + 1).expect("few candidates");
    Some((first[rejects], Ratio::new(mass.into(), i128::from(weights.iter().sum::<u32>()) * draws)))
}
