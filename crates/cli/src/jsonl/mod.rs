//! Files with a JSON object on each line: what is asked for, and results.

mod fields;
mod lines;
mod output;

pub(crate) use fields::{flag, number, size, some_texts, text, texts, unknown, whole, wrong};
pub(crate) use lines::{Line, failure, lines};
pub(crate) use output::Output;
