//! XTC, exclude top choices: if at least two ids exceed a probability, all of them but the least
//! likely are removed.

use super::survivors::Survivors;
use crate::blocks;
use crate::draw::Weights;
use crate::simd::{self, Kernel};
use crate::token::TokenId;

/// Removes each candidate above the least likely one, `special` ids excepted. Candidates are the ids
/// whose share of the survivors' mass exceeds `threshold`.
pub(super) fn exclude_top_choices(
    out: &mut Survivors,
    threshold: f64,
    special: &[TokenId],
    inverse: f64,
    log_weights: &mut Vec<f64>,
    masses: &mut Vec<f64>,
) {
    let shift = f64::from(out.max()) * inverse;
    out.weigh(inverse, shift, log_weights);
    let total = simd::run(Total(Weights::listed(&out.ids, log_weights)));
    out.masses(inverse, shift, masses);
    let bar = threshold * total;
    let (mut candidates, mut least) = (0_usize, f32::INFINITY);
    for (&l, &mass) in out.logits.iter().zip(masses.iter()) {
        if mass > bar {
            candidates += 1;
            least = if l < least { l } else { least };
        }
    }
    if candidates >= 2 {
        let mut masses = masses.iter();
        out.retain(|id, l| {
            let &mass = masses.next().expect("one mass a survivor");
            !(mass > bar && l > least) || special.contains(&TokenId(id))
        });
    }
}

struct Total<'a>(Weights<'a>);

impl Kernel for Total<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        blocks::mass_sum(&self.0, 0.0)
    }
}
