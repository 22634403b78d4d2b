//! The command line as it is typed. What it means is checked where it is used.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
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

    #[command(flatten)]
    pub(crate) awrs: AwrsArgs,

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

    /// Leave out the problems whose results are in --out already
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// The most problems at once [default: what memory holds, up to 64]
    #[arg(long, value_name = "N", requires = "problems")]
    pub(crate) concurrent: Option<NonZero<usize>>,
}

/// Continue one text or many, each with settings of its own
#[derive(Clone, Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The text to continue, shown as it is written; `-` reads it from standard input
    #[arg(long, value_name = "TEXT", required_unless_present = "prompts")]
    pub(crate) prompt: Option<String>,

    /// Put the prompt to the model as a user's chat message
    #[arg(long)]
    pub(crate) chat: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

    /// Print one JSON object at the end instead of the text as it is written
    #[arg(long, conflicts_with = "prompts")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) many: PromptsArgs,
}

/// How a text is continued.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(crate) constraint: ConstraintArgs,

    /// Divides the log-probabilities; 0 takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    pub(crate) temperature: f64,

    /// Apply the temperature before the filters instead of after them
    #[arg(long)]
    pub(crate) temperature_first: bool,

    /// Keep the likeliest tokens up to this mass; in (0, 1]
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f64,

    /// Keep so many of the likeliest tokens; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) top_k: i64,

    /// Keep tokens with at least this share of the largest probability
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) min_p: f64,

    /// Tokens that --min-p leaves at least
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) min_tokens_to_keep: i64,

    /// The probability that a step drops its likely tokens but the least likely of them (XTC)
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) xtc_probability: f64,

    /// The probability that makes a token likely for XTC; in [0, 0.5]
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    pub(crate) xtc_threshold: f64,

    /// How tokens are drawn: gumbel_max, inverse_cdf or multinomial
    #[arg(long, value_name = "METHOD", default_value = "gumbel_max")]
    pub(crate) draw_method: String,

    /// Add to the logits of token ids
    #[arg(long, value_name = "ID=BIAS,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) logit_bias: Vec<String>,

    /// Divide the logits of tokens that came before, if positive, or multiply them; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) repetition_penalty: f64,

    /// Tokens back that it looks; 0 is all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) repetition_context_size: i64,

    /// Subtract from the logits of tokens that came before, once; in [-2, 2]
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) presence_penalty: f64,

    /// Tokens back that it looks; 0 is all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) presence_context_size: i64,

    /// Subtract from the logits of tokens that came before, once an occurrence; in [-2, 2]
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) frequency_penalty: f64,

    /// Tokens back that it looks; 0 is all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) frequency_context_size: i64,

    /// Fixes all randomness [default: taken from the operating system, and told]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// The most tokens to draw, the end included
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) max_tokens: usize,

    /// Tokens before which nothing stops
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) min_tokens: usize,

    /// Go on past the model's end of sequence
    #[arg(long)]
    pub(crate) ignore_eos: bool,

    /// Stop where this text would come, or another one given in the same way
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,

    /// Stop at these token ids
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub(crate) stop_token_ids: Vec<u32>,

    /// Keep the text that stopped it
    #[arg(long)]
    pub(crate) include_stop_str_in_output: bool,

    /// Give the log-probability of each token, and of so many alternatives (in JSON)
    #[arg(long, value_name = "N")]
    pub(crate) logprobs: Option<usize>,

    /// Of which distribution: raw, processed or final
    #[arg(long, value_name = "MODE", default_value = "raw")]
    pub(crate) logprobs_mode: String,
}

/// Many texts.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prompts files")]
pub(crate) struct PromptsArgs {
    /// Continue the prompts of this file, a JSON object on each line with `prompt` (or `messages`) and
    /// the sampling options as its fields (`top_p` for --top-p); what is given here holds for lines
    /// that do not say. `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<String>,

    /// Write the results here, one JSON object a line, in the order of the prompts [default:
    /// standard output]
    #[arg(long, value_name = "FILE", requires = "prompts")]
    pub(crate) out: Option<std::path::PathBuf>,

    /// Keep the results that --out has already, and do the rest
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Texts that are written at once
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) batch: NonZero<usize>,
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
    /// Time what the engine adds to a forward: draws in one pass beside draws row by row
    Engine(BenchEngineArgs),
    /// Count the prompt tokens that stored prompts save
    Cache(BenchCacheArgs),
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
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) small_runs: u64,

    /// Runs of each way on the model; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 6)]
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
