//! The flags of `lockstep run`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::{ConstraintArgs, ModelArgs};

/// Draw weighted samples from a model under constraints and critics
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("asked").required(true).multiple(true).args(["prompt", "problems"]))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Memory for the keys and values of all rows, in bytes [default: 8 GiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) kv_bytes: Option<usize>,

    /// The text to continue; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,

    /// Put the prompt to the model as a user's chat message
    #[arg(long)]
    pub(crate) chat: bool,

    #[command(flatten)]
    pub(crate) constraint: ConstraintArgs,

    /// Prefer continuations with these words: nats for each occurrence, in either case
    #[arg(long, value_name = "WORD=NATS,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,

    /// No continuation gets more nats than this many occurrences of the best word would give
    #[arg(long, value_name = "N", requires = "words")]
    pub(crate) words_cap: Option<usize>,

    /// Prefer continuations that the model finds likely after this prompt too
    #[arg(long, value_name = "TEXT")]
    pub(crate) critic_prompt: Option<String>,

    /// Particles
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) particles: usize,

    /// Resample when the effective sample size falls below this share of the particles; 0 never
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub(crate) ess: f64,

    /// Longest continuation in tokens, its end included
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) max_tokens: usize,

    /// Temperature of the model; greater than 0
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    pub(crate) temperature: f64,

    /// How tokens are sampled: from the masked row, or by rejection (needs a constraint)
    #[arg(long, value_enum, default_value_t = SamplerName::Direct)]
    pub(crate) sampler: SamplerName,

    /// How --sampler direct draws tokens: gumbel_max, inverse_cdf or multinomial [default: gumbel_max]
    #[arg(long, value_name = "METHOD")]
    pub(crate) draw_method: Option<String>,

    /// How ancestors are chosen: multinomial, stratified, systematic or residual
    #[arg(long, value_name = "SCHEME", default_value = "multinomial")]
    pub(crate) resampling: String,

    /// Write what every particle did in every step to this file, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "problems")]
    pub(crate) record: Option<PathBuf>,

    /// Fixes all randomness [default: taken from the operating system, and shown]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Tells replicates of one seed apart
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) problem: u64,

    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "problems")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) awrs: AwrsArgs,

    #[command(flatten)]
    pub(crate) cohort: CohortArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplerName {
    Direct,
    Awrs,
}

/// How `--sampler awrs` rejects and weighs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Rejection")]
pub(crate) struct AwrsArgs {
    /// Accepted candidates looked for, at least 2: more of them steady the weight [default: 2]
    #[arg(long = "awrs-accepts", value_name = "N")]
    pub(crate) accepts: Option<u32>,

    /// Rejected candidates after which a row gives up, at least 2 [default: no limit]
    #[arg(long = "awrs-rejects", value_name = "N")]
    pub(crate) rejects: Option<u64>,

    /// Where weights come from: recursive, geometric or auto [default: recursive]
    #[arg(long = "awrs-estimator", value_name = "NAME")]
    pub(crate) estimator: Option<String>,
}

/// Many problems that step together.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Problems files")]
pub(crate) struct CohortArgs {
    /// Solve the problems of this file, a JSON object on each line with the other options as its
    /// fields (`max_tokens` for --max-tokens); what is given here holds for lines that do not say.
    /// `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) problems: Option<String>,

    /// Write the results here, one JSON object a line [default: standard output]
    #[arg(long, value_name = "FILE", requires = "problems")]
    pub(crate) out: Option<PathBuf>,

    /// Leave out the problems whose results are in --out already. An error is a result too: remove its
    /// line from --out to have it tried again
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// The most problems at once [default: what memory holds, up to 64]
    #[arg(long, value_name = "N", requires = "problems")]
    pub(crate) concurrent: Option<NonZero<usize>>,
}
