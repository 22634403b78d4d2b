//! Attention over pages of keys and values.
//!
//! A page holds 16 positions. A query meets its pages in order and folds each into a running
//! softmax (m the greatest score so far, l the sum of weights, o the weighted values):
//!
//! ```text
//! m' = max(m, max s),  c = exp(m - m'),  w = exp(s - m'),  l <- c l + w,  o <- c o + w V
//! ```
//!
//! Pages begin at fixed positions, so a query's arithmetic is the same whoever shares the page;
//! queries that do are taken through it together, and it is read once.

use crate::kv::{KvStore, PAGE, PageId};

use super::elementwise::exp;
use super::matmul::product;
use super::{F32x16, Kernel, Simd};

/// A token that attends: to its sequence's positions up to its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// The pages of its sequence, first positions first.
    pub(crate) pages: &'a [PageId],
    /// The positions it sees: its own and those before.
    pub(crate) sees: usize,
}

impl Query<'_> {
    /// The `index`-th page and how many of its positions are seen, if any.
    #[inline(always)]
    fn page(&self, index: usize) -> Option<(PageId, usize)> {
        let seen = self.sees.checked_sub(index * PAGE)?.min(PAGE);
        if seen == 0 { None } else { Some((self.pages[index], seen)) }
    }
}

/// Attention of some queries with the query heads that share one key and value head.
///
/// Vector `v = query * group + member` is one query head of one token; `q` and `out` are
/// `[head_dim / 16][vectors]` lines, `q` already divided by the root of `head_dim`.
pub(crate) struct Attend<'a> {
    pub(crate) kv: &'a KvStore,
    pub(crate) layer: usize,
    pub(crate) kv_head: usize,
    /// Query heads that share the head.
    pub(crate) group: usize,
    /// Neighbours that share pages share the reading.
    pub(crate) queries: &'a [Query<'a>],
    pub(crate) q: &'a [F32x16],
    pub(crate) out: &'a mut [F32x16],
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { kv, layer, kv_head, group, queries, q, out } = self;
        let n = queries.len() * group;
        let mut state = State {
            weights: vec![F32x16::ZERO; n],
            sums: vec![F32x16::ZERO; n],
            greatest: vec![f32::NEG_INFINITY; n],
        };
        out.fill(F32x16::ZERO);
        let n_pages = queries.iter().map(|q| q.sees.div_ceil(PAGE)).max().unwrap_or(0);
        for index in 0..n_pages {
            let mut begin = 0;
            while begin < queries.len() {
                let this = queries[begin].page(index);
                let mut end = begin + 1;
                while end < queries.len() && queries[end].page(index) == this {
                    end += 1;
                }
                if let Some((page, seen)) = this {
                    let (keys, values) = kv.head(page, layer, kv_head);
                    fold(s, q, out, &mut state, begin * group, end * group, keys, values, seen);
                }
                begin = end;
            }
        }
        for v in 0..n {
            let sum = s.splat(state.sums[v].sum());
            for line in out[v..].iter_mut().step_by(n) {
                s.store(s.div(s.load(line), sum), line);
            }
        }
    }
}

/// The running softmax of every vector, less its weighted values.
struct State {
    /// The weights of the page at hand.
    weights: Vec<F32x16>,
    /// Sums of weights, a lane for each place in a page.
    sums: Vec<F32x16>,
    /// The greatest scores.
    greatest: Vec<f32>,
}

/// Folds the first `seen` positions of one page into the vectors `begin..end`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn fold<S: Simd>(
    s: S,
    q: &[F32x16],
    out: &mut [F32x16],
    state: &mut State,
    begin: usize,
    end: usize,
    keys: &[F32x16],
    values: &[F32x16],
    seen: usize,
) {
    let n = state.weights.len();
    product(s, q, n, begin, end, keys, &mut state.weights, false);
    for v in begin..end {
        let line = &mut state.weights[v];
        // What lies past the seen positions is not this query's business, not even if it is NaN.
        line.0[seen..].fill(f32::NEG_INFINITY);
        let before = state.greatest[v];
        let greatest = line.0.iter().fold(before, |m, &x| if m > x { m } else { x });
        state.greatest[v] = greatest;
        s.store(exp(s, s.sub(s.load(line), s.splat(greatest))), line);
        line.0[seen..].fill(0.0);
        let sum = &mut state.sums[v];
        if greatest.to_bits() == before.to_bits() {
            s.store(s.add(s.load(sum), s.load(line)), sum);
        } else {
            let decay = exp(s, s.splat(before - greatest));
            s.store(s.fma(s.load(sum), decay, s.load(line)), sum);
            for o in out[v..].iter_mut().step_by(n) {
                s.store(s.mul(s.load(o), decay), o);
            }
        }
    }
    for (values, out) in values.chunks_exact(PAGE).zip(out.chunks_exact_mut(n)) {
        product(s, &state.weights, n, begin, end, &values[..seen], out, true);
    }
}
