//! Models by name or path: where they lie, and how to bring one up.

use std::fmt;
use std::path::{Path, PathBuf};

use lockstep_engine::text::{ChatTemplate, Message, TextError, Tokenizer};
use lockstep_engine::{Engine, EngineConfig, StragglerWait, TokenId};
use lockstep_native::gguf::{Gguf, GgufError, chat_template, tokenizer_spec};
use lockstep_native::{LoadError, NativeModel, NativeOptions};

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2-135m";

/// A model that is known by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// How to get it.
    pub get: &'static str,
}

/// The models known by name.
pub const CATALOGUE: [Entry; 1] = [Entry {
    name: DEFAULT,
    about: "SmolLM2-135M-Instruct, Q4_1, 98 MB",
    get: "run `make model` in Lockstep's source folder",
}];

/// How to bring a model up.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Threads that compute; `None` is as many as the machine runs at once.
    pub threads: Option<std::num::NonZero<usize>>,
    /// Settings of the engine.
    pub engine: EngineConfig,
}

impl LoadOptions {
    /// For SMC runs without code that may hang: forwards wait for every party however slow the machine
    /// is, so that their number depends on nobody's timing.
    #[must_use]
    pub fn in_step(threads: Option<std::num::NonZero<usize>>) -> Self {
        let engine = EngineConfig { straggler_wait: StragglerWait::Unlimited, ..EngineConfig::default() };
        Self { threads, engine }
    }
}

/// A model that is ready to generate.
#[derive(Debug)]
pub struct Loaded {
    /// The name or path it was asked for by.
    pub name: String,
    /// Its engine.
    pub engine: Engine,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template, as the file has it.
    template: Option<ChatTemplate>,
    /// Threads that compute.
    pub threads: usize,
    /// Multiply-adds of the matrix products of one token.
    pub multiply_adds_per_token: usize,
}

impl Loaded {
    /// Its chat template.
    ///
    /// # Errors
    /// If it has none.
    pub fn chat_template(&self) -> Result<&ChatTemplate, ModelError> {
        self.template
            .as_ref()
            .ok_or_else(|| ModelError(format!("{}: the model has no chat template", self.name)))
    }

    /// The tokens of a plain prompt: it is text and nothing else, whatever it says.
    ///
    /// # Errors
    /// If the tokenizer cannot read it.
    pub fn prompt_tokens(&self, prompt: &str) -> Result<Vec<TokenId>, ModelError> {
        Ok(self.with_bos(self.tokenizer.encode(prompt, false)?))
    }

    /// The tokens of a chat, up to where the model is to speak.
    ///
    /// # Errors
    /// If there is no chat template, or it refuses the messages.
    pub fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<TokenId>, ModelError> {
        let text = self.chat_template()?.render(messages, true)?;
        // A template writes special tokens by name.
        Ok(self.with_bos(self.tokenizer.encode(&text, true)?))
    }

    /// The beginning of a sequence comes first if the model wants it, and once.
    fn with_bos(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        let bos = self.tokenizer.bos().filter(|_| self.tokenizer.add_bos());
        if let Some(bos) = bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        tokens
    }
}

/// Why a model cannot be brought up, in one line.
#[derive(Debug)]
pub struct ModelError(String);

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ModelError {}

impl From<GgufError> for ModelError {
    fn from(error: GgufError) -> Self {
        Self(error.to_string())
    }
}

impl From<LoadError> for ModelError {
    fn from(error: LoadError) -> Self {
        Self(error.to_string())
    }
}

impl From<TextError> for ModelError {
    fn from(error: TextError) -> Self {
        Self(error.to_string())
    }
}

/// The folder that named models lie in.
///
/// # Errors
/// If the user has no home folder.
pub fn folder() -> Result<PathBuf, ModelError> {
    use etcetera::BaseStrategy;
    let base = etcetera::choose_base_strategy()
        .map_err(|error| ModelError(format!("the cache folder cannot be found: {error}")))?;
    Ok(base.cache_dir().join("lockstep").join("models"))
}

/// The file of `model`: a path to a GGUF file, or a name from the [`CATALOGUE`].
///
/// # Errors
/// If there is no such file; the message says how to get it.
pub fn locate(model: &str) -> Result<PathBuf, ModelError> {
    if let Some(entry) = CATALOGUE.iter().find(|entry| entry.name == model) {
        let path = folder()?.join(format!("{}.gguf", entry.name));
        if !path.is_file() {
            return Err(ModelError(format!("model `{model}` is not at {}: {}", path.display(), entry.get)));
        }
        return Ok(path);
    }
    let path = Path::new(model);
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let names: Vec<&str> = CATALOGUE.iter().map(|entry| entry.name).collect();
    Err(ModelError(format!(
        "no model `{model}`: give the path of a GGUF file, or one of these names: {}",
        names.join(", ")
    )))
}

/// Brings up `model` (see [`locate`]) on an engine of its own.
///
/// # Errors
/// If there is no such file, or it cannot be used; one line that says what to do.
pub fn load(model: &str, options: &LoadOptions) -> Result<Loaded, ModelError> {
    let gguf = Gguf::open(&locate(model)?)?;
    let tokenizer = Tokenizer::new(tokenizer_spec(&gguf)?)?;
    let text_of = |id: Option<TokenId>| match id {
        Some(id) => tokenizer.vocabulary().display(id).into_owned(),
        None => String::new(),
    };
    let eos = tokenizer.vocabulary().eos().lowest().map(TokenId);
    let template = match chat_template(&gguf)? {
        Some(source) => Some(ChatTemplate::new(source, &text_of(tokenizer.bos()), &text_of(eos))?),
        None => None,
    };
    let mut native = NativeOptions::default();
    if let Some(threads) = options.threads {
        native = native.threads(threads.get());
    }
    let network = NativeModel::load(&gguf, native)?;
    let (threads, multiply_adds_per_token) = (network.threads(), network.multiply_adds_per_token());
    let engine =
        EngineConfig { threads: options.threads.or(options.engine.threads), ..options.engine.clone() };
    Ok(Loaded {
        name: model.to_owned(),
        engine: Engine::start(network, engine),
        tokenizer,
        template,
        threads,
        multiply_adds_per_token,
    })
}
