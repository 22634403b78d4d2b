//! Files with a JSON object on each line: what is asked for, and results.

mod fields;
mod output;

pub(crate) use fields::{fields, flag, number, size, text, texts, unknown, whole, wrong};
pub(crate) use output::Output;
