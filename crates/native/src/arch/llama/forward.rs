//! The forward pass of many rows at once.

use rayon::prelude::*;

use lockstep_engine::TokenId;

use crate::arch::Activations;
use crate::kernels::{AddInto, Attend, F32x16, Isa, Query, SiluMul};
use crate::kv::{KvStore, PAGE, PageId};

use super::{Layer, Llama};

/// A token of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) token: TokenId,
    /// Its place in its sequence.
    pub(crate) position: usize,
    /// The pages of its sequence; the one of its position may be written.
    pub(crate) pages: &'a [PageId],
    /// Whether its final activations are wanted.
    pub(crate) wanted: bool,
}

/// Memory that one forward leaves to the next.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The residual stream: after a forward, of the wanted rows only.
    x: Activations,
    normed: Activations,
    wide: Activations,
    product: Activations,
    /// What attention tasks write, task by task.
    tasks: Vec<F32x16>,
}

/// Tokens of an attention task.
const TASK_ROWS: usize = 16;

/// A token whose attention is asked for.
#[derive(Clone, Copy)]
struct Attending<'a> {
    query: Query<'a>,
    /// Its row among the queries, and among the results.
    from: usize,
    to: usize,
}

/// Where a row's keys and values go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    page: PageId,
    place: usize,
    row: usize,
}

/// What `rows` write, page by page.
fn writes(rows: &[Row<'_>]) -> Vec<Write> {
    let write = |(index, row): (usize, &Row<'_>)| Write {
        page: row.pages[row.position / PAGE],
        place: row.position % PAGE,
        row: index,
    };
    let mut writes: Vec<Write> = rows.iter().enumerate().map(write).collect();
    writes.sort_unstable();
    writes
}

impl Llama {
    /// Runs `rows` through all blocks, keeps their keys and values, and leaves the residual
    /// stream of the wanted rows, in order, in `work`.
    ///
    /// `order` lists the rows so that those whose sequences share pages are neighbours.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        kv: &mut KvStore,
        rows: &[Row<'_>],
        order: &[usize],
        work: &mut Workspace,
    ) {
        self.embed(isa, rows, &mut work.x);
        let turns = self.turns(rows);
        let mut attending: Vec<Attending<'_>> = order
            .iter()
            .map(|&row| {
                let query = Query { pages: rows[row].pages, sees: rows[row].position + 1 };
                Attending { query, from: row, to: row }
            })
            .collect();
        let writes = writes(rows);
        let writes: Vec<&[Write]> = writes.chunk_by(|a, b| a.page == b.page).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            work.normed.norm(isa, &work.x, &layer.attention_norm, self.hyper.norm_eps);
            let [q, k, v] = &layer.qkv;
            work.wide.product(isa, &work.normed, &[q, k, v]);
            self.keep(kv, index, &writes, &turns, &work.wide);
            if index + 1 == self.layers.len() {
                drop_unwanted(rows, &mut attending, work);
                if attending.is_empty() {
                    return;
                }
            }
            self.attend(isa, kv, index, &attending, &turns, work);
            work.product.product(isa, &work.normed, &[&layer.attention_output]);
            add(isa, &mut work.x, &work.product);
            self.feed_forward(isa, layer, work);
        }
    }

    /// Writes the logits of the residual rows `begin..begin + rows` of `work` to `out`, row-major.
    pub(crate) fn logits(&self, isa: Isa, work: &mut Workspace, begin: usize, rows: usize, out: &mut [f32]) {
        work.product.gather(&work.x, begin..begin + rows);
        work.normed.norm(isa, &work.product, &self.output_norm, self.hyper.norm_eps);
        work.normed.product_rows(isa, self.output(), out);
    }

    fn embed(&self, isa: Isa, rows: &[Row<'_>], x: &mut Activations) {
        x.reshape(rows.len(), self.hyper.embedding);
        let mut panel = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            for (i, value) in self.embedding.row(isa, row.token.index(), &mut panel).enumerate() {
                x.line_mut(i / 16, index).0[i % 16] = value;
            }
        }
    }

    /// Cosine and sine of every row's angles, `head_dim / 2` a row.
    fn turns(&self, rows: &[Row<'_>]) -> Vec<(f32, f32)> {
        let dim = self.hyper.head_dim;
        let base = f64::from(self.hyper.rope_base);
        let frequencies: Vec<f64> =
            (0..dim / 2).map(|pair| base.powf(-2.0 * pair as f64 / dim as f64)).collect();
        let turn = |(row, frequency): (&Row<'_>, &f64)| {
            let (sin, cos) = (row.position as f64 * frequency).sin_cos();
            (cos as f32, sin as f32)
        };
        rows.iter().flat_map(|row| frequencies.iter().map(move |f| (row, f))).map(turn).collect()
    }

    /// Turns the keys of rows and writes them and the values to their pages.
    fn keep(
        &self,
        kv: &mut KvStore,
        layer: usize,
        writes: &[&[Write]],
        turns: &[(f32, f32)],
        qkv: &Activations,
    ) {
        let dim = self.hyper.head_dim;
        let (panels, q_panels) = (dim / 16, self.hyper.heads * dim / 16);
        let kv_panels = self.hyper.kv_heads * panels;
        let pages = writes.iter().map(|page| page[0].page);
        kv.write(layer, pages, |i, head, keys, values| {
            for &Write { place, row, .. } in writes[i] {
                let turns = &turns[row * dim / 2..];
                for panel in 0..panels {
                    let at = q_panels + head * panels + panel;
                    let key = turn(qkv.line(at, row), &turns[panel * 8..], 1.0);
                    for (line, value) in keys[panel * 16..].iter_mut().zip(key.0) {
                        line.0[place] = value;
                    }
                    values[panel * PAGE + place] = *qkv.line(at + kv_panels, row);
                }
            }
        });
    }

    /// Leaves the attention of `attending` in `work.normed`, from the queries in `work.wide`.
    fn attend(
        &self,
        isa: Isa,
        kv: &KvStore,
        layer: usize,
        attending: &[Attending<'_>],
        turns: &[(f32, f32)],
        work: &mut Workspace,
    ) {
        let (dim, group) = (self.hyper.head_dim, self.hyper.heads / self.hyper.kv_heads);
        let (panels, scale) = (dim / 16, 1.0 / (dim as f32).sqrt());
        let chunks = attending.len().div_ceil(TASK_ROWS);
        let task_rows = attending.len().div_ceil(chunks);
        let task_lines = task_rows * group * panels;
        let qkv = &work.wide;
        work.tasks.resize(self.hyper.kv_heads * chunks * task_lines, F32x16::ZERO);
        work.tasks.par_chunks_mut(task_lines).enumerate().for_each(|(task, out)| {
            let kv_head = task / chunks;
            let begin = task % chunks * task_rows;
            let Some(mine) = attending.get(begin..attending.len().min(begin + task_rows)) else { return };
            let mut q = Vec::with_capacity(task_lines);
            for panel in 0..panels {
                for row in mine {
                    let turns = &turns[row.from * dim / 2..][panel * 8..][..8];
                    q.extend((0..group).map(|member| {
                        turn(qkv.line((kv_head * group + member) * panels + panel, row.from), turns, scale)
                    }));
                }
            }
            let queries: Vec<Query<'_>> = mine.iter().map(|row| row.query).collect();
            let out = &mut out[..mine.len() * group * panels];
            isa.run(Attend { kv, layer, kv_head, group, queries: &queries, q: &q, out });
        });
        work.normed.reshape(attending.len(), self.hyper.heads * dim);
        let tasks = &work.tasks;
        work.normed.each_panel(|at, lines| {
            let (head, panel) = (at / panels, at % panels);
            let (kv_head, member) = (head / group, head % group);
            for (chunk, mine) in attending.chunks(task_rows).enumerate() {
                let from = &tasks[(kv_head * chunks + chunk) * task_lines..];
                for (i, row) in mine.iter().enumerate() {
                    lines[row.to] = from[(panel * mine.len() + i) * group + member];
                }
            }
        });
    }

    fn feed_forward(&self, isa: Isa, layer: &Layer, work: &mut Workspace) {
        work.normed.norm(isa, &work.x, &layer.feed_forward_norm, self.hyper.norm_eps);
        let [gate, up] = &layer.gate_up;
        work.wide.product(isa, &work.normed, &[gate, up]);
        let rows = work.wide.rows();
        let (gate, up) = work.wide.split_mut(gate.panels());
        let up = &*up;
        super::super::activations::each_panel(gate, rows, |panel, gate| {
            isa.run(SiluMul { gate, up: &up[panel * rows..(panel + 1) * rows] });
        });
        work.wide.reshape(rows, self.hyper.feed_forward);
        work.product.product(isa, &work.wide, &[&layer.down]);
        add(isa, &mut work.x, &work.product);
    }
}

/// `x += y`.
fn add(isa: Isa, x: &mut Activations, y: &Activations) {
    let rows = x.rows();
    x.each_panel(|panel, x| {
        isa.run(AddInto { x, y: &y.lines()[panel * rows..(panel + 1) * rows] });
    });
}

/// Keeps only what the wanted rows still need: in the last block, nobody reads the others again.
fn drop_unwanted(rows: &[Row<'_>], attending: &mut Vec<Attending<'_>>, work: &mut Workspace) {
    let kept: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].wanted).collect();
    if kept.len() == rows.len() {
        return;
    }
    work.product.gather(&work.x, kept.iter().copied());
    std::mem::swap(&mut work.x, &mut work.product);
    attending.retain_mut(|row| match kept.binary_search(&row.from) {
        Ok(to) => {
            row.to = to;
            true
        }
        Err(_) => false,
    });
}

/// A line of a head turned by its 8 pairs' angles and scaled.
fn turn(line: &F32x16, turns: &[(f32, f32)], scale: f32) -> F32x16 {
    let mut out = F32x16::ZERO;
    let pairs = line.0.as_chunks::<2>().0.iter().zip(turns);
    for (([a, b], (cos, sin)), to) in pairs.zip(out.0.as_chunks_mut::<2>().0) {
        *to = [(a * cos - b * sin) * scale, (a * sin + b * cos) * scale];
    }
    out
}
