//! The flags of `lockstep explain`.

use clap::Args;

use super::ConstraintArgs;

/// Show what a constraint accepts, and where it refuses a text; needs no model
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) constraint: ConstraintArgs,

    /// Say whether this text is accepted, and if not where it fails; `-` reads it from standard
    /// input
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,

    /// Sample texts to show
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) samples: usize,

    /// Fixes the sample texts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Print one JSON object instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}
