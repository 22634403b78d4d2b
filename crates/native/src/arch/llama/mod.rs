//! The Llama architecture: `general.architecture = llama`.
//!
//! Root-mean-square norms, grouped-query attention with rotary positions, a gated feed-forward
//! layer, no biases. Rotary pairs are neighbours (2i, 2i + 1), as the format lays the query and key
//! rows out for this architecture.

mod forward;
mod hyper;

use std::collections::BTreeMap;

use crate::error::Problem;
use crate::gguf::{Tensor, TensorType};
use crate::kernels::F32x16;
use crate::quant::Packed;

pub(crate) use forward::{Row, Workspace};
pub(crate) use hyper::Hyper;

/// A loaded network.
#[derive(Debug)]
pub(crate) struct Llama {
    pub(crate) hyper: Hyper,
    /// The embedding, and the output too if the file has none of its own.
    embedding: Packed,
    layers: Vec<Layer>,
    output_norm: Vec<F32x16>,
    output: Option<Packed>,
}

/// The weights of one block.
#[derive(Debug)]
struct Layer {
    attention_norm: Vec<F32x16>,
    /// Queries, keys, values.
    qkv: [Packed; 3],
    attention_output: Packed,
    feed_forward_norm: Vec<F32x16>,
    gate_up: [Packed; 2],
    down: Packed,
}

/// The tensors of a file that are not loaded yet, by name.
pub(crate) type Tensors<'a> = BTreeMap<String, Tensor<'a>>;

impl Llama {
    /// Packs the tensors. All of them must be known, so that nothing in a file is passed over.
    pub(crate) fn load(hyper: Hyper, mut tensors: Tensors<'_>) -> Result<Self, Problem> {
        let Hyper { embedding: width, feed_forward, .. } = hyper;
        let (q_width, kv_width) = (hyper.heads * hyper.head_dim, hyper.kv_heads * hyper.head_dim);
        let tensors = &mut tensors;
        let embedding = matrix(tensors, "token_embd.weight", width, None)?;
        let vocab = embedding.outputs();
        let mut layers = Vec::new();
        for layer in 0..hyper.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            layers.push(Layer {
                attention_norm: vector(tensors, &name("attn_norm"), width)?,
                qkv: [
                    matrix(tensors, &name("attn_q"), width, Some(q_width))?,
                    matrix(tensors, &name("attn_k"), width, Some(kv_width))?,
                    matrix(tensors, &name("attn_v"), width, Some(kv_width))?,
                ],
                attention_output: matrix(tensors, &name("attn_output"), q_width, Some(width))?,
                feed_forward_norm: vector(tensors, &name("ffn_norm"), width)?,
                gate_up: [
                    matrix(tensors, &name("ffn_gate"), width, Some(feed_forward))?,
                    matrix(tensors, &name("ffn_up"), width, Some(feed_forward))?,
                ],
                down: matrix(tensors, &name("ffn_down"), feed_forward, Some(width))?,
            });
        }
        let output_norm = vector(tensors, "output_norm.weight", width)?;
        let output = if tensors.contains_key("output.weight") {
            Some(matrix(tensors, "output.weight", width, Some(vocab))?)
        } else {
            None
        };
        match tensors.pop_first() {
            Some((name, _)) => Err(Problem::Unknown(name)),
            None => Ok(Self { hyper, embedding, layers, output_norm, output }),
        }
    }

    /// Entries of a logit row.
    pub(crate) fn vocab(&self) -> usize {
        self.embedding.outputs()
    }

    fn output(&self) -> &Packed {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    /// Multiply-adds of the matrix products of one token, logits included and attention left out.
    pub(crate) fn multiply_adds(&self) -> usize {
        let of = |m: &Packed| m.inputs() * m.outputs();
        let layer = |l: &Layer| {
            let parts = l.qkv.iter().chain(&l.gate_up).chain([&l.attention_output, &l.down]);
            parts.map(of).sum::<usize>()
        };
        self.layers.iter().map(layer).sum::<usize>() + of(self.output())
    }
}

/// Takes a matrix `inputs` by `outputs`, or by any number of outputs.
fn matrix(
    tensors: &mut Tensors<'_>,
    name: &str,
    inputs: usize,
    outputs: Option<usize>,
) -> Result<Packed, Problem> {
    let tensor = take(tensors, name)?;
    let fits = match *tensor.shape {
        [k, n] => k == inputs && outputs.is_none_or(|outputs| n == outputs),
        _ => false,
    };
    if !fits {
        return Err(wrong_shape(&tensor, [Some(inputs), outputs].into_iter().flatten().collect()));
    }
    Packed::pack(&tensor).map_err(|error| Problem::pack(name, error))
}

/// Takes a vector of f32.
fn vector(tensors: &mut Tensors<'_>, name: &str, width: usize) -> Result<Vec<F32x16>, Problem> {
    let tensor = take(tensors, name)?;
    if tensor.shape != [width] {
        return Err(wrong_shape(&tensor, vec![width]));
    }
    if tensor.ty != TensorType::F32 {
        return Err(Problem::Type { name: name.to_owned(), ty: tensor.ty, supported: "F32 norms" });
    }
    let values = tensor.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let mut lines = vec![F32x16::ZERO; width / 16];
    lines.iter_mut().flat_map(|line| &mut line.0).zip(values).for_each(|(to, from)| *to = from);
    Ok(lines)
}

fn take<'a>(tensors: &mut Tensors<'a>, name: &str) -> Result<Tensor<'a>, Problem> {
    tensors.remove(name).ok_or_else(|| Problem::Missing(name.to_owned()))
}

fn wrong_shape(tensor: &Tensor<'_>, want: Vec<usize>) -> Problem {
    Problem::Shape { name: tensor.name.to_owned(), shape: tensor.shape.to_vec(), want }
}
