//! The command line as it is typed. What it means is checked where it is used.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

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

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Name of a known model, or path of a GGUF file
    #[arg(long, value_name = "NAME|PATH", default_value = lockstep::model::DEFAULT, env = "LOCKSTEP_MODEL")]
    pub(crate) model: String,

    /// Threads that compute [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}

/// Draw weighted samples from a model under constraints and critics
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The text to continue; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: String,

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

    /// Fixes all randomness [default: taken from the operating system, and shown]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// A constraint on texts.
#[derive(Debug, Args)]
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
    /// Time the token masks of regular expressions
    Mask(BenchMaskArgs),
    /// Time the draw pass, from logits to tokens; needs no model
    Draw(BenchDrawArgs),
}

/// Time the draw pass, from logits to tokens; needs no model
#[derive(Debug, Args)]
pub(crate) struct BenchDrawArgs {
    /// Numbers of ids
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "151936,32000")]
    pub(crate) sizes: Vec<usize>,

    /// Numbers of rows
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,8,32,128")]
    pub(crate) rows: Vec<usize>,

    /// Blocks on which each way to draw is timed beside reading the block once
    #[arg(long, value_name = "ROWSxIDS,…", value_delimiter = ',', default_value = "32x49152,256x151936")]
    pub(crate) blocks: Vec<BlockSize>,

    /// Threads that draw, one run each [default: 1 and all]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub(crate) threads: Vec<NonZero<usize>>,

    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) rounds: usize,

    /// Only this part
    #[arg(long, value_enum)]
    pub(crate) only: Option<DrawPart>,

    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// The parts of `bench draw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrawPart {
    /// The pass beside other shapes of it, for mixes of settings
    Mixes,
    /// Each way to draw beside reading a block
    Blocks,
}

/// A block of logits, written `ROWSxIDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSize {
    pub(crate) rows: usize,
    pub(crate) ids: usize,
}

impl FromStr for BlockSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = |part: &str| part.parse().ok().filter(|&size: &usize| size > 0);
        let parts = text.split_once('x').and_then(|(rows, ids)| Some((size(rows)?, size(ids)?)));
        let (rows, ids) = parts.ok_or("write rows and ids, such as 32x49152")?;
        Ok(Self { rows, ids })
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.ids)
    }
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
