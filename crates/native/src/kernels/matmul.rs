//! Matrix products of activations and packed weights.
//!
//! Activations lie as `[k / 16][rows]` lines of 16 consecutive k; a panel of weights lies as `[k]`
//! lines of 16 outputs; results lie as `[panels][rows]` lines, which is the activation layout of the
//! next product.
//!
//! For many rows the weights of neighbouring panels are unpacked to f32 a piece at a time, into a buffer
//! that stays in the first-level cache, and all rows go through each piece in register tiles. For few
//! rows each weight is multiplied as it is unpacked. Either way an output is the same chain over k.

use std::ops::Range;

use crate::quant::{Octets, Packed, Weights};

use super::{F32x16, Kernel, Simd};

/// Panels that many rows go through at once: a tile of rows is read into the first-level cache once for
/// all of them.
pub(crate) const PANELS: usize = 2;

/// Inputs that are unpacked at once: 24 KiB for all panels, so that a tile of rows fits beside them.
const PIECE: usize = 192;

/// The most rows of a register tile: with 16 lanes in two registers, 12 of 16 accumulate.
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
        match rows {
            1 => {
                // One row has too few chains to hide their latency: two panels take turns.
                let mut panel = first_panel;
                let (pairs, rest) = out.as_chunks_mut::<2>();
                for pair in pairs {
                    direct::<S, 1, 2>(s, x, weights, panel, pair);
                    panel += 2;
                }
                if !rest.is_empty() {
                    direct::<S, 1, 1>(s, x, weights, panel, rest);
                }
            }
            2 => {
                for (index, out) in out.chunks_exact_mut(2).enumerate() {
                    direct::<S, 2, 1>(s, x, weights, first_panel + index, out);
                }
            }
            3 => {
                for (index, out) in out.chunks_exact_mut(3).enumerate() {
                    direct::<S, 3, 1>(s, x, weights, first_panel + index, out);
                }
            }
            _ => {
                let mut buffer = [[F32x16::ZERO; PIECE]; PANELS];
                for (index, out) in out.chunks_mut(PANELS * rows).enumerate() {
                    buffered(s, x, rows, weights, first_panel + PANELS * index, out, &mut buffer);
                }
            }
        }
    }
}

/// `P` neighbouring panels for `R` rows, each weight used as it is unpacked.
#[inline(always)]
fn direct<S: Simd, const R: usize, const P: usize>(
    s: S,
    x: &[F32x16],
    weights: &Packed,
    panel: usize,
    out: &mut [F32x16],
) {
    let mut chains = Chains::<S, R, P> { x, acc: [[s.splat(0.0); R]; P] };
    weights.unpack::<S, P, _>(s, panel, 0, weights.inputs(), &mut chains);
    for p in 0..P {
        for r in 0..R {
            s.store(chains.acc[p][r], &mut out[p * R + r]);
        }
    }
}

/// Accumulators of `R` rows by `P` panels that take weights as they come.
struct Chains<'a, S: Simd, const R: usize, const P: usize> {
    x: &'a [F32x16],
    acc: [[S::F; R]; P],
}

impl<S: Simd, const R: usize, const P: usize> Octets<S> for Chains<'_, S, R, P> {
    #[inline(always)]
    fn take(&mut self, s: S, panel: usize, octet: usize, mut weights: impl Weights<S>) {
        let x: &[F32x16; R] = self.x[octet / 2 * R..].first_chunk().expect("a line for each row");
        for i in 0..8 {
            let w = weights.next(s);
            for (x, acc) in x.iter().zip(&mut self.acc[panel]) {
                *acc = s.fma(s.splat(x.0[octet % 2 * 8 + i]), w, *acc);
            }
        }
    }
}

/// At most [`PANELS`] neighbouring panels for all rows, their weights unpacked a piece at a time.
#[inline(always)]
fn buffered<S: Simd>(
    s: S,
    x: &[F32x16],
    rows: usize,
    weights: &Packed,
    panel: usize,
    out: &mut [F32x16],
    buffer: &mut [[F32x16; PIECE]; PANELS],
) {
    let inputs = weights.inputs();
    let panels = out.len() / rows;
    let mut from = 0;
    while from < inputs {
        let n = PIECE.min(inputs - from);
        let x = &x[from / 16 * rows..(from + n) / 16 * rows];
        let mut pieces: [&[F32x16]; PANELS] = [&[]; PANELS];
        for (p, (piece, buffer)) in pieces.iter_mut().zip(&mut *buffer).enumerate().take(panels) {
            *piece = match weights.plain(panel + p) {
                Some(lines) => &lines[from..from + n],
                None => {
                    weights.unpack::<S, 1, _>(s, panel + p, from, n, &mut Store(&mut buffer[..n]));
                    &buffer[..n]
                }
            };
        }
        for tile in tiles(0, rows) {
            for (piece, out) in pieces.iter().zip(out.chunks_exact_mut(rows)) {
                product_of(s, x, rows, tile.clone(), piece, out, from > 0);
            }
        }
        from += n;
    }
}

/// Unpacked weights of one panel, a line for each k.
pub(crate) struct Store<'a>(pub(crate) &'a mut [F32x16]);

impl<S: Simd> Octets<S> for Store<'_> {
    #[inline(always)]
    fn take(&mut self, s: S, _panel: usize, octet: usize, mut weights: impl Weights<S>) {
        for line in &mut self.0.as_chunks_mut::<8>().0[octet] {
            s.store(weights.next(s), line);
        }
    }
}

/// Adds the products of rows `begin..end` of `x` and the panel `w` to `out` if `go_on`, or
/// starts `out` with them. `x` has `stride` lines for each 16 of k.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) fn product<S: Simd>(
    s: S,
    x: &[F32x16],
    stride: usize,
    begin: usize,
    end: usize,
    w: &[F32x16],
    out: &mut [F32x16],
    go_on: bool,
) {
    for tile in tiles(begin, end) {
        product_of(s, x, stride, tile, w, out, go_on);
    }
}

/// The rows `begin..end` in tiles of nearly equal height: a last tile of one row would wait for its own
/// results.
#[inline(always)]
fn tiles(begin: usize, end: usize) -> impl Iterator<Item = Range<usize>> {
    let rows = end - begin;
    let tiles = rows.div_ceil(TILE_ROWS);
    (0..tiles).scan(begin, move |row, tile| {
        let first = *row;
        *row += rows / tiles + usize::from(tile < rows % tiles);
        Some(first..*row)
    })
}

/// One tile of [`product`].
#[inline(always)]
fn product_of<S: Simd>(
    s: S,
    x: &[F32x16],
    stride: usize,
    tile: Range<usize>,
    w: &[F32x16],
    out: &mut [F32x16],
    go_on: bool,
) {
    match tile.len() {
        1 => product_tile::<S, 1>(s, x, stride, tile.start, w, out, go_on),
        2 => product_tile::<S, 2>(s, x, stride, tile.start, w, out, go_on),
        3 => product_tile::<S, 3>(s, x, stride, tile.start, w, out, go_on),
        4 => product_tile::<S, 4>(s, x, stride, tile.start, w, out, go_on),
        5 => product_tile::<S, 5>(s, x, stride, tile.start, w, out, go_on),
        _ => product_tile::<S, 6>(s, x, stride, tile.start, w, out, go_on),
    }
}

/// `R` rows of [`product`], all accumulators in registers.
#[inline(always)]
fn product_tile<S: Simd, const R: usize>(
    s: S,
    x: &[F32x16],
    stride: usize,
    row: usize,
    w: &[F32x16],
    out: &mut [F32x16],
    go_on: bool,
) {
    let out: &mut [F32x16; R] = out[row..].first_chunk_mut().expect("a line for each row");
    let mut acc = [s.splat(0.0); R];
    if go_on {
        for r in 0..R {
            acc[r] = s.load(&out[r]);
        }
    }
    for (index, w) in w.chunks(16).enumerate() {
        let x: &[F32x16; R] = x[index * stride + row..].first_chunk().expect("rows within the stride");
        for (i, w) in w.iter().enumerate() {
            let w = s.load(w);
            for r in 0..R {
                acc[r] = s.fma(s.splat(x[r].0[i]), w, acc[r]);
            }
        }
    }
    for r in 0..R {
        s.store(acc[r], &mut out[r]);
    }
}
