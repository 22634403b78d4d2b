//! The flags of `lockstep generate`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{ConstraintArgs, ModelArgs};

/// Continue one text or many, each with settings of its own
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("asked").required(true).multiple(true).args(["prompt", "prompts"]))]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Memory for the keys and values of all rows, in bytes [default: 8 GiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) kv_bytes: Option<usize>,

    /// The text to continue, shown as it is written; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,

    /// Put the prompt to the model as a user's chat message
    #[arg(long)]
    pub(crate) chat: bool,

    /// Print one JSON object at the end instead of the text as it is written
    #[arg(long, conflicts_with = "prompts")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) settings: SettingsArgs,

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
    pub(crate) out: Option<PathBuf>,

    /// Keep the results that --out has already, and do the rest. An error is a result too: remove its
    /// line from --out to have it tried again
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Texts that are written at once
    #[arg(long, value_name = "N", default_value = "32", requires = "prompts")]
    pub(crate) batch: NonZero<usize>,
}
