//! Every instantiation against the definitions, bit for bit where there is one right answer.

use super::elementwise::exp;
use super::*;
use crate::gguf::{Tensor, TensorType};
use crate::kv::{KvShape, KvStore, PAGE, Sequence};
use crate::quant::Packed;

/// The instruction sets of this machine, the portable one first.
fn isas() -> Vec<Isa> {
    let mut isas = vec![Isa::Portable(Portable)];
    #[cfg(target_arch = "x86_64")]
    isas.extend(Avx2::detect().map(Isa::Avx2));
    isas
}

/// Numbers that look random, the same on every run.
fn noise(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed.wrapping_mul(0x9e37_79b9) | 1), |x| {
        let x = x ^ (x << 13);
        let x = x ^ (x >> 17);
        Some(x ^ (x << 5))
    })
    .skip(1)
}

/// Random f32 in -1 .. 1.
fn floats(seed: u32, n: usize) -> Vec<f32> {
    noise(seed).map(|x| x.cast_signed() as f32 / 2.0_f32.powi(31)).take(n).collect()
}

fn lines(values: &[f32]) -> Vec<F32x16> {
    values.as_chunks::<16>().0.iter().map(|&lanes| F32x16(lanes)).collect()
}

fn bits(lines: &[F32x16]) -> Vec<u32> {
    lines.iter().flat_map(|line| line.0.map(f32::to_bits)).collect()
}

/// Random data of a type whose scales are finite and of ordinary size.
fn tensor_data(ty: TensorType, values: usize) -> Vec<u8> {
    let mut bytes = noise(7).map(|x| (x >> 16) as u8);
    let mut take = |n: usize| bytes.by_ref().take(n).collect::<Vec<u8>>();
    match ty {
        TensorType::F32 => floats(3, values).into_iter().flat_map(f32::to_le_bytes).collect(),
        TensorType::Q4_1 => (0..values / 32)
            .flat_map(|_| {
                let scales = take(4);
                // Exponents near that of 1/16, signs as they fall.
                let scales = [scales[0], scales[1] & 0x83 | 0x2c, scales[2], scales[3] & 0x83 | 0x2c];
                [&scales[..], &take(16)].concat()
            })
            .collect(),
        _ => (0..values / 32)
            .flat_map(|_| {
                let scale = take(2);
                [&[scale[0], scale[1] & 0x83 | 0x20][..], &take(32)].concat()
            })
            .collect(),
    }
}

/// A half as f32, by the definition.
fn half(bytes: [u8; 2]) -> f32 {
    let h = u16::from_le_bytes(bytes);
    let (exponent, mantissa) = (i32::from(h >> 10 & 31), f32::from(h & 1023));
    let magnitude = match exponent {
        0 => mantissa * 2.0_f32.powi(-24),
        _ => (1024.0 + mantissa) * 2.0_f32.powi(exponent - 25),
    };
    if h >> 15 == 1 { -magnitude } else { magnitude }
}

/// Weight `k` of a row of data, by the format's definition.
fn weight(ty: TensorType, row: &[u8], k: usize) -> f32 {
    match ty {
        TensorType::F32 => f32::from_le_bytes(row.as_chunks::<4>().0[k]),
        TensorType::Q4_1 => {
            let block = &row[k / 32 * 20..][..20];
            let byte = block[4 + k % 16];
            let q = if k % 32 < 16 { byte & 15 } else { byte >> 4 };
            f32::from(q).mul_add(half([block[0], block[1]]), half([block[2], block[3]]))
        }
        _ => {
            let block = &row[k / 32 * 34..][..34];
            f32::from(block[2 + k % 32].cast_signed()) * half([block[0], block[1]])
        }
    }
}

#[test]
fn products_are_one_chain_of_fused_multiply_adds_in_every_instantiation() {
    // More than one piece, an odd number of blocks, and a padded last panel.
    let (inputs, outputs) = (608, 16 * 6 + 5);
    for ty in [TensorType::F32, TensorType::Q4_1, TensorType::Q8_0] {
        let data = tensor_data(ty, inputs * outputs);
        let row_bytes = data.len() / outputs;
        let tensor = Tensor { name: "w", shape: &[inputs, outputs], ty, data: &data };
        let packed = Packed::pack(&tensor).unwrap();
        let weights: Vec<Vec<f32>> = data
            .chunks_exact(row_bytes)
            .map(|row| (0..inputs).map(|k| weight(ty, row, k)).collect())
            .collect();
        for rows in (1..=13).chain([32]) {
            let x = lines(&floats(rows as u32, inputs * rows));
            let x_at = |row: usize, k: usize| x[k / 16 * rows + row].0[k % 16];
            for isa in isas() {
                let mut out = vec![F32x16([f32::NAN; 16]); packed.panels() * rows];
                isa.run(Matmul { x: &x, rows, weights: &packed, first_panel: 0, out: &mut out });
                for (row, output) in (0..rows).flat_map(|row| (0..outputs).map(move |o| (row, o))) {
                    let w = &weights[output];
                    let chain = (0..inputs).fold(0.0_f32, |acc, k| x_at(row, k).mul_add(w[k], acc));
                    let ours = out[output / 16 * rows + row].0[output % 16];
                    assert_eq!(ours.to_bits(), chain.to_bits(), "{ty} {isa:?} {rows} rows: {row}, {output}");
                }
            }
        }
        // A run of panels that does not begin at the first.
        let x = lines(&floats(1, inputs * 2));
        let mut all = vec![F32x16::ZERO; packed.panels() * 2];
        Isa::detect().run(Matmul { x: &x, rows: 2, weights: &packed, first_panel: 0, out: &mut all });
        let mut some = vec![F32x16::ZERO; 3 * 2];
        Isa::detect().run(Matmul { x: &x, rows: 2, weights: &packed, first_panel: 3, out: &mut some });
        assert_eq!(bits(&some), bits(&all[6..12]), "{ty}");
    }
}

#[test]
fn rows_of_weights_are_the_formats_values() {
    for ty in [TensorType::F32, TensorType::Q4_1, TensorType::Q8_0] {
        let (inputs, outputs) = (96, 20);
        let data = tensor_data(ty, inputs * outputs);
        let tensor = Tensor { name: "w", shape: &[inputs, outputs], ty, data: &data };
        let packed = Packed::pack(&tensor).unwrap();
        for isa in isas() {
            for (output, row) in data.chunks_exact(data.len() / outputs).enumerate() {
                let ours: Vec<f32> = packed.row(isa, output, &mut Vec::new()).collect();
                let theirs: Vec<f32> = (0..inputs).map(|k| weight(ty, row, k)).collect();
                assert_eq!(ours, theirs, "{ty} {isa:?} {output}");
            }
        }
    }
}

#[test]
fn every_finite_half_is_exact() {
    // One Q8_0 block a half, with q = 1 throughout.
    let halves: Vec<u16> = (0..=u16::MAX).filter(|h| h >> 10 & 31 != 31).collect();
    let data: Vec<u8> = halves.iter().flat_map(|h| [&h.to_le_bytes()[..], &[1; 32]].concat()).collect();
    let tensor = Tensor { name: "w", shape: &[32, halves.len()], ty: TensorType::Q8_0, data: &data };
    let packed = Packed::pack(&tensor).unwrap();
    for isa in isas() {
        for (output, h) in halves.iter().enumerate() {
            let ours = packed.row(isa, output, &mut Vec::new()).next().unwrap();
            assert_eq!(ours.to_bits(), half(h.to_le_bytes()).to_bits(), "{isa:?} {h:#06x}");
        }
    }
    for bad in [0x7c00_u16, 0xfc00, 0x7e01] {
        let data = [&bad.to_le_bytes()[..], &[1; 32]].concat();
        let tensor = Tensor { name: "w", shape: &[32, 1], ty: TensorType::Q8_0, data: &data };
        assert!(Packed::pack(&tensor).is_err(), "{bad:#06x}");
    }
}

/// The exponential of 16 values.
struct Exp(F32x16);

impl Kernel for Exp {
    type Output = F32x16;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> F32x16 {
        let mut out = F32x16::ZERO;
        s.store(exp(s, s.load(&self.0)), &mut out);
        out
    }
}

#[test]
fn the_exponential_is_right_to_two_units_in_the_last_place() {
    let mut values: Vec<f32> = (-8700..=8800).map(|i| i as f32 / 100.0).collect();
    values.extend(floats(5, 4999));
    values.resize(values.len().next_multiple_of(16), 0.0);
    for x in lines(&values) {
        let ours = Isa::Portable(Portable).run(Exp(x));
        for isa in isas() {
            assert_eq!(bits(&[isa.run(Exp(x))]), bits(&[ours]), "{isa:?}");
        }
        for (x, ours) in x.0.into_iter().zip(ours.0) {
            let exact = f64::from(x).exp();
            let error = (f64::from(ours) - exact).abs() / exact;
            assert!(error < 2.0 * 2.0_f64.powi(-24) * 2.0, "exp({x}) = {ours}: off by {error:e}");
        }
    }
    for isa in isas() {
        let edges = [0.0, -0.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1e30, 1e30, 88.0];
        let mut x = F32x16::ZERO;
        x.0[..8].copy_from_slice(&edges);
        let y = isa.run(Exp(x)).0;
        assert_eq!((y[0], y[1]), (1.0, 1.0));
        assert!(y[2] > 0.0 && y[2] < 2e-38 && y[5] == y[2], "{y:?}");
        assert!(y[3].is_finite() && y[3] == y[7] && y[6] == y[7], "{y:?}");
        assert!(y[4].is_nan());
    }
}

#[test]
fn norms_and_gates_follow_their_formulas_in_every_instantiation() {
    let (rows, panels) = (5, 3);
    let (x, up) = (floats(1, rows * panels * 16), floats(2, rows * panels * 16));
    let mut first: Option<[Vec<u32>; 3]> = None;
    for isa in isas() {
        let (x_lines, up_lines) = (lines(&x), lines(&up));
        let mut squares = vec![F32x16::ZERO; rows];
        isa.run(NormSquares { x: &x_lines, squares: &mut squares });
        for (row, sum) in squares.iter().enumerate() {
            let exact: f64 = (0..panels)
                .flat_map(|panel| x_lines[panel * rows + row].0)
                .map(|x| f64::from(x) * f64::from(x))
                .sum();
            assert!((f64::from(sum.sum()) - exact).abs() < 1e-5, "{isa:?} row {row}");
        }
        let weight = F32x16(std::array::from_fn(|i| i as f32));
        let scales: Vec<f32> = (0..rows).map(|row| row as f32 - 1.5).collect();
        let mut scaled = vec![F32x16::ZERO; rows];
        isa.run(NormScale { x: &x_lines[..rows], scales: &scales, weight: &weight, out: &mut scaled });
        for (row, line) in scaled.iter().enumerate() {
            for (i, &out) in line.0.iter().enumerate() {
                assert_eq!(out, x_lines[row].0[i] * scales[row] * i as f32);
            }
        }
        let mut gate = x_lines.clone();
        isa.run(SiluMul { gate: &mut gate, up: &up_lines });
        for ((out, x), up) in gate.iter().flat_map(|line| line.0).zip(&x).zip(&up) {
            let x = f64::from(*x);
            let exact = x / (1.0 + (-x).exp()) * f64::from(*up);
            assert!((f64::from(out) - exact).abs() < 1e-6, "{isa:?}: {out} {exact}");
        }
        let mut sum = x_lines.clone();
        isa.run(AddInto { x: &mut sum, y: &up_lines });
        assert!(sum.iter().flat_map(|line| line.0).zip(x.iter().zip(&up)).all(|(s, (x, y))| s == x + y));

        let these = [bits(&squares), bits(&scaled), bits(&gate)];
        assert_eq!(first.get_or_insert_with(|| these.clone()), &these, "{isa:?}");
    }
}

const HEAD: usize = 32;

/// A store with one sequence of `len` positions, its keys and values.
fn filled(len: usize) -> (KvStore, Sequence, Vec<f32>, Vec<f32>) {
    let mut kv = KvStore::new(KvShape { layers: 2, kv_heads: 2, head_dim: HEAD });
    let mut sequence = Sequence::EMPTY;
    kv.extend(&mut sequence, len);
    let (keys, values) = (floats(11, len * HEAD), floats(12, len * HEAD));
    let mut pages = Vec::new();
    kv.list(&sequence, &mut pages);
    kv.write(1, pages.iter().copied(), |page, head, k, v| {
        for place in (0..PAGE).filter(|_| head == 1) {
            let position = page * PAGE + place;
            for d in 0..HEAD {
                // Places past the end hold what must never be looked at.
                let at = |values: &[f32]| values.get(position * HEAD + d).copied().unwrap_or(f32::NAN);
                k[d].0[place] = at(&keys);
                v[d / 16 * PAGE + place].0[d % 16] = at(&values);
            }
        }
    });
    (kv, sequence, keys, values)
}

/// `[HEAD / 16][vectors]` lines of vectors.
fn vectors(values: &[f32], n: usize) -> Vec<F32x16> {
    let mut out = vec![F32x16::ZERO; HEAD / 16 * n];
    for (i, value) in values.iter().enumerate() {
        let (v, d) = (i / HEAD, i % HEAD);
        out[d / 16 * n + v].0[d % 16] = *value;
    }
    out
}

#[test]
fn attention_is_the_softmax_average_of_what_is_seen() {
    let len = 75;
    let (kv, sequence, keys, values) = filled(len);
    let mut pages = Vec::new();
    kv.list(&sequence, &mut pages);
    let group = 3;
    let sees = [1, 15, 16, 17, 40, 64, 75];
    let queries: Vec<Query<'_>> = sees.iter().map(|&sees| Query { pages: &pages, sees }).collect();
    let n = queries.len() * group;
    let q: Vec<f32> = floats(13, n * HEAD).iter().map(|x| 2.0 * x).collect();
    for isa in isas() {
        let attend = |queries: &[Query<'_>], q: &[f32]| {
            let n = queries.len() * group;
            let mut out = vec![F32x16([f32::NAN; 16]); HEAD / 16 * n];
            let q = vectors(q, n);
            isa.run(Attend { kv: &kv, layer: 1, kv_head: 1, group, queries, q: &q, out: &mut out });
            out
        };
        let out = attend(&queries, &q);
        for v in 0..n {
            let q = &q[v * HEAD..(v + 1) * HEAD];
            let dot = |k: &[f32]| k.iter().zip(q).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum::<f64>();
            let sees = sees[v / group];
            let w: Vec<f64> = keys.chunks(HEAD).take(sees).map(|k| dot(k).exp()).collect();
            for d in 0..HEAD {
                let sum: f64 = w.iter().zip(values.chunks(HEAD)).map(|(w, v)| w * f64::from(v[d])).sum();
                let exact = sum / w.iter().sum::<f64>();
                let ours = f64::from(out[d / 16 * n + v].0[d % 16]);
                assert!((ours - exact).abs() < 2e-6, "{isa:?} vector {v}, {d}: {ours} {exact}");
            }
        }
        // Alone, each query gets the same bits.
        for (i, query) in queries.iter().enumerate() {
            let alone = attend(&[*query], &q[i * group * HEAD..(i + 1) * group * HEAD]);
            let mut together = Vec::new();
            for panel in 0..HEAD / 16 {
                together.extend_from_slice(&out[panel * n + i * group..][..group]);
            }
            assert_eq!(bits(&alone), bits(&together), "{isa:?} query {i}");
        }
        let portable = {
            let mut portable = vec![F32x16::ZERO; HEAD / 16 * n];
            let (q, out) = (vectors(&q, n), &mut portable);
            let kernel = Attend { kv: &kv, layer: 1, kv_head: 1, group, queries: &queries, q: &q, out };
            Isa::Portable(Portable).run(kernel);
            portable
        };
        assert_eq!(bits(&out), bits(&portable), "{isa:?}");
    }
}

#[test]
fn columns_leave_out_the_padding_and_refuse_a_panel_twice() {
    let lines = |values: [f32; 4]| values.map(|value| F32x16([value; 16]));
    let mut data = vec![-1.0; 2 * 52];
    let columns = ColumnsMut::new(&mut data, 52);
    columns.write_panels(2, &lines([1.0, 2.0, 3.0, 4.0]));
    let twice = std::panic::AssertUnwindSafe(|| columns.write_panels(1, &lines([0.0; 4])));
    assert!(std::panic::catch_unwind(twice).is_err());
    columns.write_panels(0, &lines([5.0, 6.0, 7.0, 8.0])[..2]);
    drop(columns);
    let row = |panels: [f32; 4]| -> Vec<f32> {
        panels.into_iter().zip([16, 16, 16, 4]).flat_map(|(value, n)| vec![value; n]).collect()
    };
    assert_eq!(data, [row([5.0, -1.0, 1.0, 3.0]), row([6.0, -1.0, 2.0, 4.0])].concat());
}
