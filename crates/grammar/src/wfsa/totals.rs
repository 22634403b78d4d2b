//! Backward weights: the total weight of all completions from each state.
//!
//! `β = final + A β`, solved component by component, those that others lead into first. Within a
//! strongly connected component `(I - A) β = b` is solved by Gaussian elimination on logarithms,
//! so that no weight under- or overflows. For a nonnegative A all pivots of `I - A` are positive,
//! in any order of the states, exactly if the spectral radius of A is below 1, that is if the sum
//! converges (Berman and Plemmons, Nonnegative Matrices, theorem 6.2.3); then elimination adds and
//! multiplies only nonnegative numbers, and needs no exchange of rows to be stable.

use super::arcs::{Arcs, Graph};
use crate::error::RegexError;
use crate::limits::Budget;
use crate::log_sum::{log_add, log_one_minus, log_sum};

/// A pivot below this is rounding error for the most part: the sum cannot be told from a divergent
/// one.
const LEAST_PIVOT: f64 = 1e-12;

/// The logarithm of each state's backward weight, finite.
pub(super) fn totals(graph: &Graph, budget: &mut Budget) -> Result<Vec<f64>, RegexError> {
    let n = graph.finals.len();
    let (order, ends) = components(&graph.arcs, n, budget)?;
    let mut totals = vec![f64::NEG_INFINITY; n];
    // Where a state stands in the component at hand.
    let mut place: Vec<Option<usize>> = vec![None; n];
    let mut begin = 0;
    for end in ends {
        let component = &order[begin..end];
        begin = end;
        for (i, &state) in component.iter().enumerate() {
            place[state as usize] = Some(i);
        }
        let mut system = System::new(component.len(), budget)?;
        for (i, &state) in component.iter().enumerate() {
            system.add_constant(i, graph.finals[state as usize]);
            for arc in graph.arcs.of(state) {
                match place[arc.to as usize] {
                    Some(j) => system.add(i, j, arc.log_weight),
                    None => system.add_constant(i, arc.log_weight + totals[arc.to as usize]),
                }
            }
        }
        let solution = system.solve(budget)?;
        let diverges = |i: usize| RegexError::divergent(graph.names[component[i] as usize]);
        let solution = solution.map_err(diverges)?;
        for (i, (&state, total)) in component.iter().zip(solution).enumerate() {
            if !total.is_finite() {
                return Err(diverges(i));
            }
            totals[state as usize] = total;
            place[state as usize] = None;
        }
    }
    Ok(totals)
}

/// `x = A x + b` in nonnegative numbers, all held as logarithms.
struct System {
    n: usize,
    /// Row-major `[n, n]`.
    matrix: Vec<f64>,
    constants: Vec<f64>,
}

impl System {
    fn new(n: usize, budget: &mut Budget) -> Result<Self, RegexError> {
        let cells = n.saturating_mul(n);
        budget.charge(cells.saturating_mul(size_of::<f64>()))?;
        Ok(Self { n, matrix: vec![f64::NEG_INFINITY; cells], constants: vec![f64::NEG_INFINITY; n] })
    }

    fn add(&mut self, i: usize, j: usize, weight: f64) {
        let cell = &mut self.matrix[i * self.n + j];
        *cell = log_add(*cell, weight);
    }

    fn add_constant(&mut self, i: usize, weight: f64) {
        self.constants[i] = log_add(self.constants[i], weight);
    }

    /// The least solution, or an index at which it is infinite.
    fn solve(mut self, budget: &mut Budget) -> Result<Result<Vec<f64>, usize>, RegexError> {
        let n = self.n;
        let mut log_pivots = vec![0.0; n];
        for k in (0..n).rev() {
            let loops = self.matrix[k * n + k];
            if -loops.exp_m1() <= LEAST_PIVOT {
                return Ok(Err(k));
            }
            log_pivots[k] = log_one_minus(loops);
            // x_k is put into the rows above; those below no longer matter to them.
            let (above, own) = self.matrix.split_at_mut(k * n);
            let own = &own[..k];
            for (i, row) in above.chunks_exact_mut(n).enumerate() {
                budget.step()?;
                let factor = row[k] - log_pivots[k];
                if factor == f64::NEG_INFINITY {
                    continue;
                }
                for (cell, &weight) in row.iter_mut().zip(own) {
                    if weight > f64::NEG_INFINITY {
                        *cell = log_add(*cell, factor + weight);
                    }
                }
                self.constants[i] = log_add(self.constants[i], factor + self.constants[k]);
            }
            budget.check_time()?;
        }
        let mut solution: Vec<f64> = Vec::with_capacity(n);
        for (k, log_pivot) in log_pivots.into_iter().enumerate() {
            let known = self.matrix[k * n..k * n + k].iter().zip(&solution).map(|(weight, x)| weight + x);
            let sum = log_sum(known.chain(std::iter::once(self.constants[k])));
            solution.push(sum - log_pivot);
        }
        budget.release(self.matrix.len() * size_of::<f64>());
        Ok(Ok(solution))
    }
}

/// The strongly connected components (Tarjan, SIAM Journal on Computing 1, 1972), each after all
/// that it leads into: all states in order, and where in it each component ends.
fn components(arcs: &Arcs, n: usize, budget: &mut Budget) -> Result<(Vec<u32>, Vec<usize>), RegexError> {
    const UNSEEN: u32 = 0;
    let (mut numbers, mut low) = (vec![UNSEEN; n], vec![UNSEEN; n]);
    let mut is_open = vec![false; n];
    let (mut open, mut order, mut ends) = (Vec::new(), Vec::with_capacity(n), Vec::new());
    let mut seen = UNSEEN;
    for root in 0..n as u32 {
        // A state, and how many of its arcs have been followed.
        let mut path = if numbers[root as usize] == UNSEEN { vec![(root, 0)] } else { Vec::new() };
        while let Some((state, followed)) = path.last_mut() {
            budget.step()?;
            let own = *state as usize;
            if numbers[own] == UNSEEN {
                seen += 1;
                (numbers[own], low[own], is_open[own]) = (seen, seen, true);
                open.push(*state);
            }
            if let Some(arc) = arcs.of(*state).get(*followed) {
                *followed += 1;
                let to = arc.to as usize;
                if numbers[to] == UNSEEN {
                    path.push((arc.to, 0));
                } else if is_open[to] {
                    low[own] = low[own].min(numbers[to]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                let parent = *parent as usize;
                low[parent] = low[parent].min(low[own]);
            }
            if low[own] == numbers[own] {
                while let Some(member) = open.pop() {
                    is_open[member as usize] = false;
                    order.push(member);
                    if member as usize == own {
                        break;
                    }
                }
                ends.push(order.len());
            }
        }
    }
    Ok((order, ends))
}
