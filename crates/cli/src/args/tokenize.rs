//! The flags of `lockstep tokenize`.

use clap::Args;

use super::ModelName;

/// Show the tokens of a text
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelName,

    /// The text; `-` reads it from standard input
    pub(crate) text: String,

    /// Read the names of special tokens as those tokens
    #[arg(long)]
    pub(crate) special: bool,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
