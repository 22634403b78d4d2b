//! The command line as it is typed, a file for each command. What it means is checked where it is used.

mod bench;
mod explain;
mod generate;
mod run;
mod tokenize;

use std::num::NonZero;

use clap::{Args, Parser, Subcommand};

pub(crate) use bench::{
    BenchCacheArgs, BenchCommand, BenchDrawArgs, BenchEngineArgs, BenchInferenceArgs, BenchMaskArgs,
    BenchSmcArgs, BenchStepArgs, BlockSize, DrawPart,
};
pub(crate) use explain::ExplainArgs;
pub(crate) use generate::{GenerateArgs, SettingsArgs};
pub(crate) use run::{AwrsArgs, CohortArgs, RunArgs, SamplerName};
pub(crate) use tokenize::TokenizeArgs;

/// Generates text with language models, and controls it.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Draw weighted samples from a model under constraints and critics
    Run(Box<RunArgs>),
    /// Continue one text or many, each with settings of its own
    Generate(Box<GenerateArgs>),
    /// Show what a constraint accepts, and where it refuses a text; needs no model
    Explain(ExplainArgs),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Measure this machine
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ModelName {
    /// Name of a known model, or path of a GGUF file
    #[arg(long, value_name = "NAME|PATH", default_value = lockstep::model::DEFAULT, env = "LOCKSTEP_MODEL")]
    pub(crate) model: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(flatten)]
    name: ModelName,

    /// Threads that compute [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}

impl ModelArgs {
    /// The model's name or path.
    pub(crate) fn name(&self) -> &str {
        &self.name.model
    }
}

/// A constraint on texts.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConstraintArgs {
    /// The text must match this regular expression in full; given several times, all of them
    #[arg(long, value_name = "PATTERN")]
    pub(crate) regex: Vec<String>,

    /// The text must be this, or another text given in the same way
    #[arg(long, value_name = "TEXT")]
    pub(crate) choice: Vec<String>,
}
