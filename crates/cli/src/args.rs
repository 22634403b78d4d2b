//! The command line as it is typed. What it means is checked where it is used.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    Run(RunArgs),
    /// Show what a constraint accepts, and where it refuses a text; needs no model
    Explain(ExplainArgs),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Measure this machine
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    /// Name of a known model, or path of a GGUF file
    #[arg(long, value_name = "NAME|PATH", default_value = lockstep::model::DEFAULT, env = "LOCKSTEP_MODEL")]
    pub(crate) model: String,

    /// Threads that compute [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}

/// Draw weighted samples from a model under constraints and critics
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The text to continue; `-` reads it from standard input
    #[arg(long, value_name = "TEXT", required_unless_present = "problems")]
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
    pub(crate) cohort: CohortArgs,
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

    /// Leave out the problems whose results are in --out already
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// The most problems at once [default: what memory holds, up to 64]
    #[arg(long, value_name = "N", requires = "problems")]
    pub(crate) concurrent: Option<NonZero<usize>>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplerName {
    Direct,
    Awrs,
}

/// Show the tokens of a text
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The text; `-` reads it from standard input
    pub(crate) text: String,

    /// Read the names of special tokens as those tokens
    #[arg(long)]
    pub(crate) special: bool,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time a step of plain decoding and of SMC, at several numbers of rows
    Step(BenchStepArgs),
    /// Time a step of several problems at once, beside plain decoding and one after another
    Smc(BenchSmcArgs),
    /// Measure how good the ways of drawing are, whatever their time
    Inference(BenchInferenceArgs),
    /// Time the token masks of regular expressions
    Mask(BenchMaskArgs),
}

/// Time the token masks of regular expressions, beside llguidance if that is built in
#[derive(Debug, Args)]
pub(crate) struct BenchMaskArgs {
    /// Name of a known model, or path of a GGUF file; only its vocabulary is used
    #[arg(long, value_name = "NAME|PATH", default_value = lockstep::model::DEFAULT, env = "LOCKSTEP_MODEL")]
    pub(crate) model: String,

    /// Only the patterns whose name contains this
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,

    /// Rounds, each with new texts
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,

    /// Texts a round
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) texts: usize,

    /// Longest text in tokens
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) tokens: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time a step of plain decoding and of SMC, at several numbers of rows
#[derive(Debug, Args)]
pub(crate) struct BenchStepArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Numbers of rows
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,8,32,64")]
    pub(crate) rows: Vec<usize>,

    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) rounds: usize,

    /// Timed steps a round
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) steps: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time a step of several problems at once, beside plain decoding and one after another
#[derive(Debug, Args)]
pub(crate) struct BenchSmcArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Problems, at most 8
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) problems: usize,

    /// Particles of each problem
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) particles: usize,

    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub(crate) rounds: usize,

    /// Timed steps a round
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) steps: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure how good the ways of drawing are, whatever their time
#[derive(Debug, Args)]
pub(crate) struct BenchInferenceArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Runs of each way on the small models whose mass is known
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) small_runs: u64,

    /// Runs of each way on the model; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) runs: u64,

    /// Write the tables, the plot and the figures as JSON into this folder's inference.md,
    /// inference.svg and inference.json
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Option<PathBuf>,

    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}
