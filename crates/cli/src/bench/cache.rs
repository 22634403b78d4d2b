//! `lockstep bench cache`: prompt tokens that stored prompts save.
//!
//! Two cases, each on an engine with stored prompts and on one without, in turn: a chat of several
//! turns, and requests at once that share a long beginning. Both engines must give the same tokens.

use std::process::ExitCode;
use std::time::Instant;

use lockstep::engine::text::Message;
use lockstep::engine::{EngineConfig, RowSpec, RowStream, TokenId};
use lockstep::model::{self, LoadOptions, Loaded};
use serde_json::json;

use super::figures::Figures;
use crate::args::BenchCacheArgs;
use crate::error::CliError;
use crate::stdout::print;
use crate::table::table;

const TURNS: [&str; 5] = [
    "Which planet is the largest?",
    "And which one has the most moons?",
    "How long does light take from the Sun to it?",
    "Who first saw its rings?",
    "Sum up what we have said in one sentence.",
];
/// Tokens drawn in each turn or for each request.
const DRAWN: usize = 24;
/// Requests that share their beginning.
const REQUESTS: u64 = 16;

pub(crate) fn cache(args: &BenchCacheArgs) -> Result<ExitCode, CliError> {
    if args.rounds == 0 {
        return Err(CliError::usage("--rounds", "must be at least 1"));
    }
    let load = |prompt_cache_bytes| {
        let engine = EngineConfig { prompt_cache_bytes, ..EngineConfig::default() };
        model::load(args.model.name(), &LoadOptions { threads: args.model.threads, engine })
    };
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        // New engines, so that nothing is stored from the round before.
        let engines = [load(None)?, load(Some(0))?];
        for (case, run) in [("chat", chat as Case), ("shared", shared as Case)] {
            let mut taken = [Taken::default(), Taken::default()];
            for turn in 0..2 {
                let which = (turn + round) % 2;
                taken[which] = Taken::by(&engines[which], run)?;
            }
            let [with, without] = taken;
            if with.drawn != without.drawn {
                return Err(CliError::failed(format!("{case}: a stored prompt changed what was drawn")));
            }
            figures.add(format!("{case}.prompt_tokens"), without.fed as f64);
            figures.add(format!("{case}.fed_tokens"), with.fed as f64);
            figures.add(format!("{case}.saved_share"), 1.0 - with.fed as f64 / without.fed as f64);
            figures.add(format!("{case}.time_without_over_with"), without.seconds / with.seconds);
        }
    }
    if args.json {
        print(json!({ "bench": "cache", "rounds": args.rounds, "figures": figures.json() }))?;
    } else {
        print_table(&figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

type Case = fn(&Loaded) -> Result<Vec<Vec<TokenId>>, CliError>;

/// What a case took on one engine.
#[derive(Default)]
struct Taken {
    drawn: Vec<Vec<TokenId>>,
    fed: u64,
    seconds: f64,
}

impl Taken {
    fn by(model: &Loaded, run: Case) -> Result<Self, CliError> {
        let (before, start) = (model.engine.stats(), Instant::now());
        let drawn = run(model)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Self { drawn, fed: (model.engine.stats() - before).prompt_tokens, seconds })
    }
}

fn spec(model: &Loaded, prompt: Vec<TokenId>, seed: u64) -> RowSpec {
    let vocab = std::sync::Arc::clone(model.tokenizer.vocabulary());
    RowSpec { seed: Some(seed), max_tokens: DRAWN, ignore_eos: true, ..RowSpec::new(vocab, prompt) }
}

/// A chat whose every turn sends all that was said, token for token as a client that keeps them does.
fn chat(model: &Loaded) -> Result<Vec<Vec<TokenId>>, CliError> {
    let mut said: Vec<TokenId> = Vec::new();
    let mut drawn = Vec::new();
    for (turn, question) in (0..).zip(TURNS) {
        let message = Message { role: "user".into(), content: question.into() };
        said.extend(model.chat_tokens(&[message])?);
        let mut rows =
            model.engine.submit(vec![spec(model, said.clone(), turn)]).map_err(CliError::failed)?;
        let answer = rows.remove(0).wait().ids();
        said.extend(&answer);
        drawn.push(answer);
    }
    Ok(drawn)
}

/// Requests that come while the first of them is at work.
fn shared(model: &Loaded) -> Result<Vec<Vec<TokenId>>, CliError> {
    let rules =
        "You answer questions about the sky, in one sentence, and say so when you do not know. ".repeat(12);
    let prompt = |which: u64| {
        let question = TURNS[which as usize % TURNS.len()];
        model.prompt_tokens(&format!("{rules}\nQuestion {which}: {question}\nAnswer:"))
    };
    let submit = |which: u64| -> Result<RowStream, CliError> {
        let spec = spec(model, prompt(which)?, which);
        Ok(model.engine.submit(vec![spec]).map_err(CliError::failed)?.remove(0))
    };
    let mut first = submit(0)?;
    // Its first token: the prompt is read.
    let begun = first.next();
    let rest = (1..REQUESTS).map(submit).collect::<Result<Vec<_>, _>>()?;
    let mut drawn = vec![first.wait().ids()];
    if let Some(lockstep::engine::RowEvent::Token(token)) = begun {
        drawn[0].insert(0, token.token);
    }
    drawn.extend(rest.into_iter().map(|row| row.wait().ids()));
    Ok(drawn)
}

fn print_table(figures: &Figures) -> Result<(), CliError> {
    let header = ["case", "prompt tokens", "fed", "saved", "time without / with"];
    let mut table = table(header, 0);
    for case in ["chat", "shared"] {
        let summary = |figure: &str| figures.summary(&format!("{case}.{figure}"));
        let median = |figure: &str| summary(figure).map_or(f64::NAN, |summary| summary.median);
        let time = summary("time_without_over_with");
        table.add_row([
            case.to_owned(),
            format!("{:.0}", median("prompt_tokens")),
            format!("{:.0}", median("fed_tokens")),
            format!("{:.1} %", 100.0 * median("saved_share")),
            time.map_or(String::new(), |s| format!("{:.2} ({:.2} to {:.2})", s.median, s.min, s.max)),
        ]);
    }
    print(table)
}
