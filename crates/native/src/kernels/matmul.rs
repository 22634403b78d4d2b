//! Matrix products of activations and packed weights.
//!
//! Activations lie as `[k / 16][rows]` lines of 16 consecutive k; a panel of weights lies as `[k]`
//! lines of 16 outputs; results lie as `[panels][rows]` lines, which is the activation layout of the
//! next product. A panel's weights are turned into f32 a piece at a time, in a buffer that stays in
//! the first-level cache, and all rows go through each piece in register tiles.

use crate::quant::Packed;

use super::{F32x16, Kernel, Simd};

/// Lines of the piece buffer: 16 KiB, so that the rows' own lines fit beside it.
const PIECE: usize = 256;

/// The rows of a register tile: with 16 lanes in two registers, 12 of 16 accumulate.
const TILE_ROWS: usize = 6;

/// `out[panel][row] = sum over k of x[row][k] * weights[first_panel + panel][k]`.
pub(crate) struct Matmul<'a> {
    pub(crate) x: &'a [F32x16],
    pub(crate) rows: usize,
    pub(crate) weights: &'a Packed,
    pub(crate) first_panel: usize,
    /// `rows` lines for each panel to compute.
    pub(crate) out: &'a mut [F32x16],
}

impl Kernel for Matmul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, rows, weights, first_panel, out } = self;
        assert_eq!(x.len(), weights.inputs() / 16 * rows, "activations of the weights' inputs");
        assert!(rows > 0 && out.len().is_multiple_of(rows), "whole panels of results");
        let n_panels = out.len() / rows;
        // Few rows leave accumulators free: they take several panels at once, which hides the
        // latency of the chains.
        let width = match rows {
            1 => 4,
            2 | 3 => 2,
            _ => 1,
        };
        let mut buffer = [F32x16::ZERO; PIECE];
        let mut done = 0;
        while done < n_panels {
            let wide = if n_panels - done >= width { width } else { 1 };
            let out = &mut out[done * rows..(done + wide) * rows];
            let panel = first_panel + done;
            match wide {
                4 => panels::<S, 4>(s, x, rows, weights, panel, out, &mut buffer),
                2 => panels::<S, 2>(s, x, rows, weights, panel, out, &mut buffer),
                _ => panels::<S, 1>(s, x, rows, weights, panel, out, &mut buffer),
            }
            done += wide;
        }
    }
}

/// Computes `P` neighbouring panels for all rows.
#[inline(always)]
fn panels<S: Simd, const P: usize>(
    s: S,
    x: &[F32x16],
    rows: usize,
    weights: &Packed,
    panel: usize,
    out: &mut [F32x16],
    buffer: &mut [F32x16; PIECE],
) {
    let inputs = weights.inputs();
    let piece = PIECE / P;
    let mut from = 0;
    while from < inputs {
        let n = piece.min(inputs - from);
        let x = &x[from / 16 * rows..(from + n) / 16 * rows];
        let mut w: [&[F32x16]; P] = [&[]; P];
        if let Some(plain) = weights.plain(panel, P) {
            for (p, w) in w.iter_mut().enumerate() {
                *w = &plain[p * inputs + from..][..n];
            }
        } else {
            let mut rest = &mut buffer[..];
            for (p, w) in w.iter_mut().enumerate() {
                let (mine, others) = rest.split_at_mut(piece);
                weights.dequantise(s, panel + p, from, &mut mine[..n]);
                *w = &mine[..n];
                rest = others;
            }
        }
        product(s, x, rows, 0, rows, &w, out, from > 0);
        from += n;
    }
}

/// Adds the products of rows `begin..end` of `x` and the panels `w` to `out` if `go_on`, or
/// starts `out` with them. `x` and `out` have `stride` lines a panel.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) fn product<S: Simd, const P: usize>(
    s: S,
    x: &[F32x16],
    stride: usize,
    begin: usize,
    end: usize,
    w: &[&[F32x16]; P],
    out: &mut [F32x16],
    go_on: bool,
) {
    let rows = end - begin;
    // Tiles of nearly equal height: a last tile of one row would wait for its own results.
    let tiles = rows.div_ceil((TILE_ROWS / P).max(1));
    let mut row = begin;
    for tile in 0..tiles {
        let height = rows / tiles + usize::from(tile < rows % tiles);
        match height {
            1 => product_tile::<S, 1, P>(s, x, stride, row, w, out, go_on),
            2 => product_tile::<S, 2, P>(s, x, stride, row, w, out, go_on),
            3 => product_tile::<S, 3, P>(s, x, stride, row, w, out, go_on),
            4 => product_tile::<S, 4, P>(s, x, stride, row, w, out, go_on),
            5 => product_tile::<S, 5, P>(s, x, stride, row, w, out, go_on),
            _ => product_tile::<S, 6, P>(s, x, stride, row, w, out, go_on),
        }
        row += height;
    }
}

/// `R` rows by `P` panels, all accumulators in registers.
#[allow(clippy::needless_range_loop)] // indices that the compiler unrolls, over several arrays at once
#[inline(always)]
fn product_tile<S: Simd, const R: usize, const P: usize>(
    s: S,
    x: &[F32x16],
    stride: usize,
    row: usize,
    w: &[&[F32x16]; P],
    out: &mut [F32x16],
    go_on: bool,
) {
    if R * P > TILE_ROWS {
        // Never asked for; without this line it would be compiled all the same.
        return;
    }
    let mut acc = [[s.splat(0.0); P]; R];
    if go_on {
        for r in 0..R {
            for p in 0..P {
                acc[r][p] = s.load(&out[p * stride + row + r]);
            }
        }
    }
    let k = w[0].len();
    let mut from = 0;
    while from < k {
        let n = 16.min(k - from);
        let xs: &[F32x16; R] = x[from / 16 * stride + row..].first_chunk().expect("rows within the stride");
        let mut ws: [&[F32x16]; P] = [&[]; P];
        for p in 0..P {
            ws[p] = &w[p][from..from + n];
        }
        for i in 0..n {
            let mut wi = [s.splat(0.0); P];
            for p in 0..P {
                wi[p] = s.load(&ws[p][i]);
            }
            for r in 0..R {
                let xi = s.splat(xs[r].0[i]);
                for p in 0..P {
                    acc[r][p] = s.fma(xi, wi[p], acc[r][p]);
                }
            }
        }
        from += n;
    }
    for r in 0..R {
        for p in 0..P {
            s.store(acc[r][p], &mut out[p * stride + row + r]);
        }
    }
}
