//! Resampling schemes: pure functions from weights and uniforms to ancestors.
//!
//! With normalised weights `w` (f64) and their running sum `C`, the index of a uniform `v` is the
//! first `j` with `v < C_j`, where `C` counts as `+inf` from the last positive weight on. So
//! rounding never picks an index of zero weight, and always picks one. Ancestors come out sorted
//! ascending, whatever the scheme: copies of a particle are neighbours, and nothing depends on who
//! looks at them.
//!
//! Every scheme is unbiased: the expected number of copies of `j` is `N·w_j`.
//!
//! ```
//! use lockstep_control::Resampling;
//!
//! let ancestors = Resampling::Systematic.ancestors(&[0.5, 0.3, 0.15, 0.05], &mut |_| 0.5);
//! assert_eq!(ancestors, [0, 0, 1, 2]);
//! ```

use std::fmt;
use std::str::FromStr;

/// The names of the schemes, in the order of [`Resampling`].
pub const RESAMPLING_METHODS: [&str; 4] = ["multinomial", "stratified", "systematic", "residual"];

/// How a population chooses its ancestors. See Douc, Cappé and Moulines (2005) for a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Resampling {
    /// N independent draws; takes N uniforms.
    #[default]
    Multinomial,
    /// `v_i = (u_i + i)/N`; takes N uniforms. Counts may leave the floor and the ceiling of `N·w`
    /// by one.
    Stratified,
    /// `v_i = (u + i)/N`; takes one uniform, at position 0. Index `j` gets `⌊N·w_j⌋` or `⌈N·w_j⌉`
    /// copies.
    Systematic,
    /// `⌊N·w_j⌋` copies of `j`, the other `R = N − Σ⌊N·w_j⌋` drawn independently in proportion to
    /// the fractional parts; takes R uniforms.
    Residual,
}

impl Resampling {
    const ALL: [Self; 4] = [Self::Multinomial, Self::Stratified, Self::Systematic, Self::Residual];

    /// The ancestors of N = `weights.len()` particles, sorted ascending.
    ///
    /// `weights` are on the linear scale: nonnegative, with any positive finite sum.
    /// `uniforms(i)` is the uniform at position `i`, in [0, 1); positions are asked from 0 upwards,
    /// each once.
    ///
    /// # Panics
    /// If there are weights but their sum is not positive and finite.
    #[must_use]
    pub fn ancestors(self, weights: &[f64], uniforms: &mut dyn FnMut(u32) -> f64) -> Vec<usize> {
        if weights.is_empty() {
            return Vec::new();
        }
        match self {
            Self::Multinomial => {
                let mut ancestors = Cumulative::new(weights).picks(weights.len(), uniforms);
                ancestors.sort_unstable();
                ancestors
            }
            Self::Stratified => strata(weights, uniforms),
            Self::Systematic => {
                let u = uniforms(0);
                strata(weights, &mut |_| u)
            }
            Self::Residual => residual(weights, uniforms),
        }
    }
}

impl fmt::Display for Resampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(RESAMPLING_METHODS[*self as usize])
    }
}

impl FromStr for Resampling {
    type Err = UnknownResampling;

    fn from_str(name: &str) -> Result<Self, UnknownResampling> {
        let known = RESAMPLING_METHODS.iter().position(|&method| method == name);
        known.map(|i| Self::ALL[i]).ok_or_else(|| UnknownResampling { name: name.to_owned() })
    }
}

/// No scheme has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resampling_method `{name}` is unknown: use one of {}", RESAMPLING_METHODS.join(", "))]
pub struct UnknownResampling {
    name: String,
}

/// The index of one uniform `v` in [0, 1) under `weights` (linear scale, nonnegative, any positive
/// finite sum): the rule that every scheme shares, and the unit in which a test can enumerate the
/// choices of a multinomial resampling.
///
/// # Panics
/// If the sum of the weights is not positive and finite.
#[must_use]
pub fn categorical(weights: &[f64], v: f64) -> usize {
    Cumulative::new(weights).pick(v)
}

/// The running sum of normalised weights, `+inf` from the last positive one on.
#[derive(Debug)]
pub(crate) struct Cumulative(Vec<f64>);

impl Cumulative {
    /// Panics if the sum of the weights is not positive and finite.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let total = total(weights);
        let mut running = 0.0;
        let mut last = 0;
        let mut sums = Vec::with_capacity(weights.len());
        for (j, weight) in weights.iter().enumerate() {
            let normalized = weight / total;
            if normalized > 0.0 {
                last = j;
            }
            running += normalized;
            sums.push(running);
        }
        sums[last..].fill(f64::INFINITY);
        Self(sums)
    }

    /// The index of the uniform `v`.
    pub(crate) fn pick(&self, v: f64) -> usize {
        self.0.partition_point(|&sum| sum <= v)
    }

    /// The indices of the uniforms at positions 0 to `n` − 1, in that order.
    pub(crate) fn picks(&self, n: usize, uniforms: &mut dyn FnMut(u32) -> f64) -> Vec<usize> {
        (0..n).map(|i| self.pick(uniforms(position(i)))).collect()
    }
}

/// One pick in each of N equal strata of [0, 1); ascending because the strata are.
fn strata(weights: &[f64], uniforms: &mut dyn FnMut(u32) -> f64) -> Vec<usize> {
    let n = weights.len();
    let cumulative = Cumulative::new(weights);
    (0..n).map(|i| cumulative.pick((uniforms(position(i)) + i as f64) / n as f64)).collect()
}

fn residual(weights: &[f64], uniforms: &mut dyn FnMut(u32) -> f64) -> Vec<usize> {
    let (copies, fractions) = copies_and_fractions(weights);
    let mut ancestors: Vec<usize> =
        copies.iter().enumerate().flat_map(|(j, copies)| std::iter::repeat_n(j, *copies)).collect();
    let rest = weights.len().saturating_sub(ancestors.len());
    if rest > 0 {
        ancestors.extend(Cumulative::new(&fractions).picks(rest, uniforms));
        ancestors.sort_unstable();
    }
    ancestors
}

/// `⌊N·w_j⌋` and the fractional part of `N·w_j`, for each j.
pub(crate) fn copies_and_fractions(weights: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let n = weights.len() as f64;
    // Shares of the largest weight make equal weights exactly 1 and their sum exactly N, so that
    // each gets its one copy; N·(1/N), or a sum of N equal fractions, can fall short of it.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let shares: Vec<f64> = weights.iter().map(|weight| weight / largest).collect();
    let total = total(&shares);
    let expected = shares.iter().map(|share| n * share / total);
    expected.map(|copies| (copies as usize, copies.fract())).unzip()
}

/// The sum of the weights, in index order.
fn total(weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    assert!(total > 0.0 && total < f64::INFINITY, "the sum of weights must be positive and finite");
    total
}

/// A particle's number as a position in a draw; particle numbers are 32 bits wide.
fn position(i: usize) -> u32 {
    u32::try_from(i).expect("a population has fewer than 2^32 particles")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_sample::{DrawKey, POPULATION, ProblemKey};

    const TOP: f64 = 1.0 - f64::EPSILON / 2.0;
    const W: [f64; 4] = [0.5, 0.3, 0.15, 0.05];

    fn keyed(scheme: Resampling, weights: &[f64], step: u32) -> Vec<usize> {
        let key = DrawKey::new(ProblemKey::new(7, 0), POPULATION, step, 0);
        scheme.ancestors(weights, &mut |i| key.uniform(i))
    }

    /// The ancestors, and how many uniforms were asked for; they are asked for in order.
    fn given(scheme: Resampling, weights: &[f64], uniforms: &[f64]) -> (Vec<usize>, usize) {
        let mut asked = 0;
        let ancestors = scheme.ancestors(weights, &mut |i| {
            assert_eq!(i as usize, asked);
            asked += 1;
            uniforms[i as usize]
        });
        (ancestors, asked)
    }

    #[test]
    fn smc_14_systematic_and_stratified_at_one_half() {
        assert_eq!(given(Resampling::Systematic, &W, &[0.5]), (vec![0, 0, 1, 2], 1));
        assert_eq!(given(Resampling::Stratified, &W, &[0.5; 4]), (vec![0, 0, 1, 2], 4));
    }

    #[test]
    fn smc_15_stratified_counts_leave_floor_and_ceiling() {
        let (ancestors, asked) =
            given(Resampling::Stratified, &[0.125, 0.25, 0.5, 0.125], &[0.9, 0.1, 0.5, 0.5]);
        assert_eq!(ancestors, [1, 1, 2, 3]);
        assert_eq!(asked, 4);
    }

    #[test]
    fn smc_16_residual_copies_and_one_draw_from_the_fractions() {
        // N·w = (2, 1.2, .6, .2): copies 0, 0, 1, and one draw from (0, .2, .6, .2).
        for (u, drawn) in [(0.0, 1), (0.19, 1), (0.21, 2), (0.79, 2), (0.81, 3), (TOP, 3)] {
            let (ancestors, asked) = given(Resampling::Residual, &W, &[u]);
            let mut expected = vec![0, 0, 1, drawn];
            expected.sort_unstable();
            assert_eq!((ancestors, asked), (expected, 1), "u = {u}");
        }
    }

    #[test]
    fn smc_17_zero_weights_are_never_picked() {
        for scheme in Resampling::ALL {
            for alive in 0..5 {
                let mut weights = [0.0; 5];
                weights[alive] = 0.3;
                for u in [0.0, 0.5, TOP] {
                    assert_eq!(scheme.ancestors(&weights, &mut |_| u), [alive; 5], "{scheme}");
                }
            }
            // .1 added ten times falls short of 1, so the last positive weight must reach to +inf.
            let mut weights = [0.1; 11];
            weights[10] = 0.0;
            let ancestors = scheme.ancestors(&weights, &mut |_| TOP);
            assert_eq!(ancestors.len(), 11);
            assert!(ancestors.iter().all(|&a| a < 10), "{scheme}: {ancestors:?}");
            assert_eq!(ancestors[10], 9, "{scheme}");
        }
        assert_eq!(categorical(&[0.0, 0.1, 0.0], 0.0), 1);
        assert_eq!(categorical(&[0.0, 0.1, 0.0], TOP), 1);
    }

    /// A mean of N·4,000 indicators has a standard deviation of at most .004, so a bound of .02 is
    /// five of them: a false alarm has odds below 1e-5 over all schemes and indices.
    #[test]
    fn smc_17_mean_counts_are_the_weights() {
        for scheme in Resampling::ALL {
            let mut counts = [0_u32; 4];
            for step in 1..=4000 {
                let ancestors = keyed(scheme, &W, step);
                assert!(ancestors.is_sorted());
                assert_eq!(ancestors.len(), 4);
                ancestors.into_iter().for_each(|a| counts[a] += 1);
            }
            for (count, w) in counts.into_iter().zip(W) {
                let mean = f64::from(count) / (4000.0 * 4.0);
                assert!((mean - w).abs() < 0.02, "{scheme}: {mean} for {w}");
            }
        }
    }

    #[test]
    fn smc_17_one_particle_and_the_largest_uniform() {
        for scheme in Resampling::ALL {
            assert_eq!(scheme.ancestors(&[0.2], &mut |_| TOP), [0], "{scheme}");
            assert!(scheme.ancestors(&[], &mut |_| TOP).is_empty(), "{scheme}");
        }
        for scheme in [Resampling::Systematic, Resampling::Stratified] {
            // (3 + TOP)/4 rounds to 1.
            let ancestors = scheme.ancestors(&[0.1, 0.2, 0.7, 0.0], &mut |_| TOP);
            assert_eq!(ancestors[3], 2, "{scheme}");
        }
    }

    #[test]
    fn smc_17_names() {
        for (scheme, name) in Resampling::ALL.into_iter().zip(RESAMPLING_METHODS) {
            assert_eq!(scheme.to_string(), name);
            assert_eq!(name.parse(), Ok(scheme));
        }
        assert_eq!(Resampling::default(), Resampling::Multinomial);
        let message = "Systematic".parse::<Resampling>().unwrap_err().to_string();
        assert!(message.contains("`Systematic`"), "{message}");
        assert!(message.contains("multinomial, stratified, systematic, residual"), "{message}");
    }

    #[test]
    fn multinomial_is_categorical_draws_sorted() {
        let weights = [2.0, 0.0, 5.0, 1.0, 8.0];
        for step in 0..50 {
            let key = DrawKey::new(ProblemKey::new(3, 1), POPULATION, step, 0);
            let mut expected: Vec<_> = (0..5).map(|i| categorical(&weights, key.uniform(i))).collect();
            expected.sort_unstable();
            let ancestors = Resampling::Multinomial.ancestors(&weights, &mut |i| key.uniform(i));
            assert_eq!(ancestors, expected);
        }
    }

    #[test]
    fn counts_stay_at_the_floor_or_the_ceiling() {
        let weights: Vec<f64> = (0..37_u32).map(|j| f64::from(j * j % 11)).collect();
        let total: f64 = weights.iter().sum();
        for step in 0..200 {
            for scheme in [Resampling::Systematic, Resampling::Residual] {
                let ancestors = keyed(scheme, &weights, step);
                for (j, w) in weights.iter().enumerate() {
                    let count = ancestors.iter().filter(|&&a| a == j).count() as f64;
                    let expected = 37.0 * w / total;
                    assert!(count >= expected.floor(), "{scheme}");
                    if scheme == Resampling::Systematic {
                        assert!(count <= expected.ceil(), "{scheme}");
                    }
                }
            }
        }
    }

    #[test]
    fn residual_keeps_a_population_of_equal_weights() {
        for n in 1..300 {
            let ancestors =
                Resampling::Residual.ancestors(&vec![0.37; n], &mut |_| unreachable!("nothing is drawn"));
            assert_eq!(ancestors, (0..n).collect::<Vec<_>>());
        }
    }
}
