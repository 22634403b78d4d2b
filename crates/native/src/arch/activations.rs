//! Activations of many rows, and the products and norms that run over them in parallel.

use rayon::prelude::*;

use crate::kernels::{ColumnsMut, F32x16, Isa, Matmul, NormScale, NormSquares, PANELS};
use crate::quant::Packed;

/// A matrix of `rows` by `width` (a multiple of 16) as `[width / 16][rows]` lines.
#[derive(Debug, Default)]
pub(crate) struct Activations {
    rows: usize,
    lines: Vec<F32x16>,
}

/// Below this many lines a pass over them costs less than telling other threads about it.
const PARALLEL_LINES: usize = 4096;

impl Activations {
    /// Takes the shape `rows` by `width`; the contents are unspecified.
    pub(crate) fn reshape(&mut self, rows: usize, width: usize) {
        self.rows = rows;
        self.lines.resize(width / 16 * rows, F32x16::ZERO);
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn lines(&self) -> &[F32x16] {
        &self.lines
    }

    /// The 16 values of `row` in `panel`.
    pub(crate) fn line(&self, panel: usize, row: usize) -> &F32x16 {
        &self.lines[panel * self.rows + row]
    }

    /// The same to write to.
    pub(crate) fn line_mut(&mut self, panel: usize, row: usize) -> &mut F32x16 {
        &mut self.lines[panel * self.rows + row]
    }

    /// Two halves of the panels, to write to.
    pub(crate) fn split_mut(&mut self, panels: usize) -> (&mut [F32x16], &mut [F32x16]) {
        self.lines.split_at_mut(panels * self.rows)
    }

    /// Copies the rows `kept` of `from`, in that order.
    pub(crate) fn gather(&mut self, from: &Self, kept: impl ExactSizeIterator<Item = usize> + Clone) {
        self.rows = kept.len();
        self.lines.clear();
        for panel in from.lines.chunks_exact(from.rows) {
            self.lines.extend(kept.clone().map(|row| panel[row]));
        }
    }

    /// Runs `pass(panel, lines of the panel)` for every panel.
    pub(crate) fn each_panel(&mut self, pass: impl Fn(usize, &mut [F32x16]) + Sync) {
        each_panel(&mut self.lines, self.rows, pass);
    }

    /// Becomes the root-mean-square norm of `x`: `x / sqrt(mean(x^2) + eps) * weight`.
    pub(crate) fn norm(&mut self, isa: Isa, x: &Self, weight: &[F32x16], eps: f32) {
        self.reshape(x.rows, weight.len() * 16);
        let mut squares = vec![F32x16::ZERO; x.rows];
        isa.run(NormSquares { x: &x.lines, squares: &mut squares });
        let width = (weight.len() * 16) as f32;
        let scales: Vec<f32> = squares.iter().map(|sum| 1.0 / (sum.sum() / width + eps).sqrt()).collect();
        self.each_panel(|panel, out| {
            let x = &x.lines[panel * x.rows..(panel + 1) * x.rows];
            isa.run(NormScale { x, scales: &scales, weight: &weight[panel], out });
        });
    }

    /// Becomes the products of `x` with each of `weights`, one after the other, each padded to
    /// whole panels.
    pub(crate) fn product(&mut self, isa: Isa, x: &Self, weights: &[&Packed]) {
        let panels: usize = weights.iter().map(|w| w.panels()).sum();
        self.reshape(x.rows, panels * 16);
        let (rows, grain) = (x.rows, grain(panels, x.rows, TASK_LINES));
        self.lines.par_chunks_mut(grain * rows).enumerate().for_each(|(task, mut out)| {
            let mut panel = task * grain;
            for weights in weights {
                let n = weights.panels().saturating_sub(panel).min(out.len() / rows);
                let (mine, rest) = out.split_at_mut(n * rows);
                if n > 0 {
                    isa.run(Matmul { x: &x.lines, rows, weights, first_panel: panel, out: mine });
                }
                panel = (panel + n).saturating_sub(weights.panels());
                out = rest;
            }
        });
    }

    /// Writes the products of all rows with `weights` to `out`, row-major `[rows, outputs]`.
    pub(crate) fn product_rows(&self, isa: Isa, weights: &Packed, out: &mut [f32]) {
        assert_eq!(out.len(), self.rows * weights.outputs(), "a row of outputs for each row");
        let (rows, grain) = (self.rows, grain(weights.panels(), self.rows, OUT_LINES).min(16));
        let columns = ColumnsMut::new(out, weights.outputs());
        let tasks = weights.panels().div_ceil(grain);
        (0..tasks).into_par_iter().for_each_init(Vec::new, |lines: &mut Vec<F32x16>, task| {
            let first_panel = task * grain;
            let n = grain.min(weights.panels() - first_panel);
            lines.resize(n * rows, F32x16::ZERO);
            isa.run(Matmul { x: &self.lines, rows, weights, first_panel, out: lines });
            columns.write_panels(first_panel, lines);
        });
    }
}

/// The most lines of results of a task: more are worth handing over as two.
const TASK_LINES: usize = 512;

/// The same of a task that writes row-major results: they are computed into the second-level cache, then
/// written up to 16 panels, 1 KiB, of a row at a time.
const OUT_LINES: usize = 2048;

/// Panels of one task for so many rows, at most `lines` lines: coarse enough to be worth handing over, fine
/// enough to share out evenly, and a multiple of what the kernel takes at once.
fn grain(panels: usize, rows: usize, lines: usize) -> usize {
    let threads = rayon::current_num_threads();
    match rows {
        0..4 => panels.div_ceil(threads * 4).next_multiple_of(4),
        _ => panels.div_ceil(threads * 16).min(lines / rows).max(1).next_multiple_of(PANELS),
    }
}

/// Runs `pass(panel, lines of the panel)` over `[panels][rows]` lines.
pub(crate) fn each_panel(lines: &mut [F32x16], rows: usize, pass: impl Fn(usize, &mut [F32x16]) + Sync) {
    if lines.len() < PARALLEL_LINES {
        lines.chunks_exact_mut(rows).enumerate().for_each(|(panel, lines)| pass(panel, lines));
    } else {
        lines.par_chunks_exact_mut(rows).enumerate().for_each(|(panel, lines)| pass(panel, lines));
    }
}
