//! Model architectures: hyperparameters, tensors and the forward pass of each.

mod activations;
pub(crate) mod llama;

pub(crate) use activations::Activations;
