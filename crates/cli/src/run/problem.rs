//! What a run was asked for, checked.

use std::sync::Arc;

use lockstep::control::potential::{Demands, Words};
use lockstep::control::{
    Awrs, AwrsOptions, BoolFsa, Coerced, Direct, Potential, Product, PromptedLlm, Smc, SmcOptions,
    TokenSampler,
};
use lockstep::engine::TokenId;
use lockstep::engine::text::Message;
use lockstep::model::Loaded;
use lockstep::sample::DrawMethod;

use crate::args::{AwrsArgs, RunArgs, SamplerName};
use crate::constraint::constraint;
use crate::error::CliError;

/// A run that can be made, given a model.
pub(crate) struct Problem {
    prompt: String,
    chat: bool,
    critic_prompt: Option<String>,
    constraint: Option<BoolFsa>,
    words: Vec<(String, f64)>,
    words_cap: Option<usize>,
    sampler: SamplerName,
    awrs: AwrsOptions,
    temperature: f64,
    pub(crate) options: SmcOptions,
}

impl Problem {
    /// What `args` ask for; their prompt is the text itself.
    pub(crate) fn new(args: &RunArgs) -> Result<Self, CliError> {
        let Some(prompt) = args.prompt.clone() else {
            return Err(CliError::usage("--prompt", "is missing"));
        };
        if args.particles == 0 {
            return Err(CliError::usage("--particles", "must be at least 1"));
        }
        if args.max_tokens == 0 {
            return Err(CliError::usage("--max-tokens", "must be at least 1"));
        }
        if !(0.0..=1.0).contains(&args.ess) {
            return Err(CliError::usage("--ess", format!("{} must lie between 0 and 1", args.ess)));
        }
        if !(args.temperature.is_finite() && args.temperature > 0.0) {
            let message = format!("{} must be finite and greater than 0", args.temperature);
            return Err(CliError::usage("--temperature", message));
        }
        let resampling = args.resampling.parse().map_err(|error| CliError::usage("--resampling", error))?;
        let draw_method = draw_method(args)?;
        let constraint = constraint(&args.constraint)?;
        if args.sampler == SamplerName::Awrs && constraint.is_none() {
            let message = "awrs rejects by a constraint: give a regex or a choice";
            return Err(CliError::usage("--sampler", message));
        }
        let words = args.words.iter().map(|word| weighted_word(word)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            prompt,
            chat: args.chat,
            critic_prompt: args.critic_prompt.clone(),
            constraint,
            words,
            words_cap: args.words_cap,
            sampler: args.sampler,
            awrs: awrs(&args.awrs, args.sampler)?,
            temperature: args.temperature,
            options: SmcOptions {
                n_particles: args.particles,
                ess_threshold: args.ess,
                max_tokens: args.max_tokens,
                resampling,
                draw_method,
                seed: args.seed,
                problem: args.problem,
                ..SmcOptions::default()
            },
        })
    }

    /// The sampler and critic on `model`, which has room for the longest sequence.
    pub(crate) fn smc(&self, model: &Loaded) -> Result<Smc, CliError> {
        let vocab = model.tokenizer.vocabulary();
        let prompt = self.tokens(model, &self.prompt, "--prompt")?;
        let llm = PromptedLlm::new(model.engine.clone(), Arc::clone(vocab), &prompt)?;
        let target: Arc<dyn Potential> = Arc::new(llm.clone().with_temperature(self.temperature)?);
        let constraint: Option<Arc<dyn Potential>> = match &self.constraint {
            Some(fsa) => Some(Arc::new(Coerced::new(Arc::new(fsa.clone()), Arc::clone(vocab))?)),
            None => None,
        };
        let sampler: Arc<dyn TokenSampler> = match (self.sampler, constraint) {
            (SamplerName::Awrs, Some(condition)) => {
                Arc::new(Awrs::new(target, condition, self.awrs.clone())?)
            }
            (_, Some(condition)) => Arc::new(Direct::new(Arc::new(Product::new(target, condition)?))),
            (_, None) => Arc::new(Direct::new(target)),
        };
        let mut critics: Vec<Arc<dyn Potential>> = Vec::new();
        if let Some(prompt) = &self.critic_prompt {
            let prompt = self.tokens(model, prompt, "--critic-prompt")?;
            let critic = llm.spawn(&prompt).map_err(|error| CliError::usage("--critic-prompt", error))?;
            critics.push(Arc::new(critic));
        }
        if !self.words.is_empty() {
            let words = Words::new(Arc::clone(vocab), &self.words)?;
            critics.push(Arc::new(match self.words_cap {
                Some(cap) => words.with_cap(cap)?,
                None => words,
            }));
        }
        let critic = match (critics.pop(), critics.pop()) {
            (Some(second), Some(first)) => Some(Arc::new(Product::new(first, second)?) as Arc<dyn Potential>),
            (one, _) => one,
        };
        let mut demands = Demands::default();
        let SmcOptions { n_particles, max_tokens, .. } = self.options;
        sampler.demand(n_particles, max_tokens, &mut demands)?;
        if let Some(critic) = &critic {
            critic.demand(n_particles, max_tokens, &mut demands)?;
        }
        Ok(Smc::new(sampler, critic)?)
    }

    fn tokens(&self, model: &Loaded, prompt: &str, flag: &str) -> Result<Vec<TokenId>, CliError> {
        let tokens = if self.chat {
            model.chat_tokens(&[Message { role: "user".into(), content: prompt.to_owned() }])?
        } else {
            model.prompt_tokens(prompt)?
        };
        if tokens.is_empty() {
            return Err(CliError::usage(flag, "is empty: the model needs some text to start from"));
        }
        Ok(tokens)
    }
}

/// How tokens are drawn; AWRS, which puts candidates to the test in an order of its own, has no such choice.
fn draw_method(args: &RunArgs) -> Result<DrawMethod, CliError> {
    let Some(name) = &args.draw_method else { return Ok(SmcOptions::default().draw_method) };
    if args.sampler != SamplerName::Direct {
        return Err(CliError::usage("--draw-method", "only the sampler direct has it"));
    }
    name.parse().map_err(|error| CliError::usage("--draw-method", error))
}

/// The options of AWRS, which `sampler` must be if there are any.
fn awrs(args: &AwrsArgs, sampler: SamplerName) -> Result<AwrsOptions, CliError> {
    let AwrsArgs { accepts, rejects, estimator } = args;
    let given = [
        ("--awrs-accepts", accepts.is_some()),
        ("--awrs-rejects", rejects.is_some()),
        ("--awrs-estimator", estimator.is_some()),
    ];
    if let Some((flag, _)) = given.iter().find(|(_, given)| *given && sampler != SamplerName::Awrs) {
        return Err(CliError::usage(flag, "only the sampler awrs has it"));
    }
    let mut options = AwrsOptions { max_rejects: *rejects, ..AwrsOptions::default() };
    options.max_accepts = accepts.unwrap_or(options.max_accepts);
    if options.max_accepts < 2 {
        return Err(CliError::usage("--awrs-accepts", "must be at least 2"));
    }
    if rejects.is_some_and(|max| max < 2) {
        return Err(CliError::usage("--awrs-rejects", "must be at least 2"));
    }
    if let Some(name) = estimator {
        options.estimator = name.parse().map_err(|error| CliError::usage("--awrs-estimator", error))?;
    }
    Ok(options)
}

/// `WORD=NATS`; the word may contain `=`.
fn weighted_word(text: &str) -> Result<(String, f64), CliError> {
    let parts = text.rsplit_once('=').and_then(|(word, nats)| Some((word, nats.trim().parse().ok()?)));
    match parts {
        Some((word, nats)) if !word.is_empty() && f64::is_finite(nats) => Ok((word.to_owned(), nats)),
        _ => Err(CliError::usage("--words", format!("`{text}` is not WORD=NATS, such as good=1.5"))),
    }
}
