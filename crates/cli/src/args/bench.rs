//! The flags of `lockstep bench`.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::{ModelArgs, ModelName};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time a step of plain decoding and of SMC, at several numbers of rows
    Step(BenchStepArgs),
    /// Time a step of several problems at once, beside plain decoding and one after another
    Smc(BenchSmcArgs),
    /// Measure how good the ways of drawing are, whatever their time
    Inference(BenchInferenceArgs),
    /// Time what the engine adds to a forward: draws in one pass beside draws row by row
    Engine(BenchEngineArgs),
    /// Count the prompt tokens that stored prompts save
    Cache(BenchCacheArgs),
    /// Time the token masks of regular expressions
    Mask(BenchMaskArgs),
    /// Time the draw pass, from logits to tokens; needs no model
    Draw(BenchDrawArgs),
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
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) rounds: usize,

    /// Timed steps a round
    #[arg(long, value_name = "N", default_value_t = 4)]
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
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) small_runs: u64,

    /// Runs of each way on the model; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub(crate) runs: u64,

    /// Only the targets with these names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "write")]
    pub(crate) only: Vec<String>,

    /// Write the tables, the plot and the figures as JSON into this folder's inference.md,
    /// inference.svg and inference.json
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Option<PathBuf>,

    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time what the engine adds to a forward: draws in one pass beside draws row by row
#[derive(Debug, Args)]
pub(crate) struct BenchEngineArgs {
    /// Threads of the draw pass [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,

    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) rounds: usize,

    /// Tokens that each row draws
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) tokens: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Count the prompt tokens that stored prompts save
#[derive(Debug, Args)]
pub(crate) struct BenchCacheArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Rounds, each on new engines
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time the token masks of regular expressions, beside llguidance if that is built in
#[derive(Debug, Args)]
pub(crate) struct BenchMaskArgs {
    #[command(flatten)]
    pub(crate) model: ModelName,

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

    /// Time mlx-lm's samplers too, with this Python interpreter, which must have mlx-lm
    #[arg(long, value_name = "PYTHON")]
    pub(crate) mlx: Option<PathBuf>,

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
