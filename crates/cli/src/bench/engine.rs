//! `lockstep bench engine`: what the engine adds to a forward.
//!
//! A tiny model with random weights, whose forward costs next to nothing, decodes rows of one prompt
//! with settings that all differ. *Vectorised* is the engine's one pass; *per row* is the same
//! settings as sampler objects that must be called row by row. Both draw the same tokens, which is
//! checked. Beside them parties step rows with and without ready masks, as SMC does: a mask of few
//! ids, as constraints mostly have, and one of every other id, which no draw can take in runs.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockstep::engine::row::{Reply, RowRequest, Wish};
use lockstep::engine::vocab::{TokenEntry, Vocabulary};
use lockstep::engine::{Engine, EngineConfig, RowEvent, RowLimits, RowSpec, Sequence, TokenId};
use lockstep::native::testkit::{TinyOptions, tiny_model};
use lockstep::sample::{
    Bitset, DrawKey, DrawMethod, EosSet, LogprobRows, ProblemKey, RowNoise, RowSampler, SampleError,
    SamplingParams, SharedSampler, make_sampler,
};
use serde_json::json;

use super::figures::Figures;
use super::rotation::place;
use crate::args::BenchEngineArgs;
use crate::error::CliError;
use crate::stdout::print;
use crate::table::table;

/// Ids of the tiny model.
const IDS: usize = 32_000;
const ROWS: [usize; 2] = [8, 32];
const PROMPTS: [usize; 2] = [128, 4096];
/// A mask of few ids has one in so many.
const FEW: u32 = 100;
/// The most that rows with ready masks may take, as a share of plain rows' time.
const MASKED: f64 = 1.05;
/// The larger of them and what is drawn after it.
const CONTEXT: usize = 8192;

pub(crate) fn engine(args: &BenchEngineArgs) -> Result<ExitCode, CliError> {
    if args.rounds == 0 || args.tokens < 2 || args.tokens > CONTEXT - PROMPTS[1] {
        let message = format!("rounds must be at least 1, tokens from 2 to {}", CONTEXT - PROMPTS[1]);
        return Err(CliError::usage("--rounds, --tokens", message));
    }
    let bench = Bench::new(args)?;
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for prompt in PROMPTS {
            for rows in ROWS {
                bench.measure(rows, prompt, round, &mut figures)?;
            }
        }
    }
    if args.json {
        let figures = figures.json();
        let object =
            json!({ "bench": "engine", "rounds": args.rounds, "tokens": args.tokens, "figures": figures });
        print(object)?;
    } else {
        print_table(&figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Bench {
    engine: Engine,
    vocab: Arc<Vocabulary>,
    tokens: usize,
}

/// Ways to generate.
const GENERATING: [&str; 2] = ["vectorised", "per_row"];
/// What the rows of parties may draw: anything, or what a mask of one id in so many allows.
const STEPPING: [(&str, Option<u32>); 3] = [("plain", None), ("few", Some(FEW)), ("half", Some(2))];

impl Bench {
    fn new(args: &BenchEngineArgs) -> Result<Self, CliError> {
        let options = TinyOptions { vocab: IDS, context: CONTEXT, ..TinyOptions::default() };
        let config = EngineConfig {
            threads: args.threads,
            limits: RowLimits::new(ROWS[1], 8).map_err(CliError::failed)?,
            prompt_cache_bytes: Some(0),
            ..EngineConfig::default()
        };
        let entry = |id: usize| TokenEntry { bytes: id.to_string().into_bytes(), special: false };
        let vocab =
            Vocabulary::new((0..IDS).map(entry).collect(), EosSet::new([])).map_err(CliError::failed)?;
        Ok(Self { engine: Engine::start(tiny_model(7, options), config), vocab, tokens: args.tokens })
    }

    /// One round at one size; the order of the ways rotates.
    fn measure(
        &self,
        rows: usize,
        prompt: usize,
        round: usize,
        figures: &mut Figures,
    ) -> Result<(), CliError> {
        let tokens: Vec<TokenId> = (0..prompt).map(|i| TokenId((i * 31 % IDS) as u32)).collect();
        let mut ms = [0.0; GENERATING.len()];
        let mut drawn = [Vec::new(), Vec::new()];
        for turn in 0..ms.len() {
            let way = (turn + round) % ms.len();
            (ms[way], drawn[way]) = self.generate(rows, &tokens, way == 1)?;
        }
        if drawn[0] != drawn[1] {
            return Err(CliError::failed("the same settings drew other tokens row by row"));
        }
        let [vectorised, per_row] = ms;
        let [plain, few, half] = self.step(rows, &tokens, round)?;
        let name = format!("prompt.{prompt}.rows.{rows}");
        let names = GENERATING.into_iter().chain(STEPPING.map(|(way, _)| way));
        for (way, ms) in names.zip([vectorised, per_row, plain, few, half]) {
            figures.add(format!("{name}.{way}_ms_per_step"), ms);
        }
        // Tokens a second, as ratios: steps are of as many tokens.
        figures.add(format!("{name}.vectorised_over_per_row"), per_row / vectorised);
        figures.add(format!("{name}.few_over_plain_time"), few / plain);
        figures.add(format!("{name}.half_over_plain_time"), half / plain);
        Ok(())
    }

    /// Milliseconds a step of rows that generate, and their tokens.
    fn generate(
        &self,
        rows: usize,
        prompt: &[TokenId],
        per_row: bool,
    ) -> Result<(f64, Vec<Vec<TokenId>>), CliError> {
        let spec = |row: usize| {
            let params = settings(row);
            let sampler = per_row.then(|| one_by_one(&params)).transpose()?;
            Ok(RowSpec {
                params,
                sampler,
                seed: Some(5),
                choice: row as u32,
                max_tokens: self.tokens,
                ..RowSpec::new(Arc::clone(&self.vocab), prompt.to_vec())
            })
        };
        let specs = (0..rows).map(spec).collect::<Result<Vec<_>, CliError>>()?;
        let mut streams = self.engine.submit_group(specs).map_err(CliError::failed)?;
        let mut ids = Vec::with_capacity(rows);
        // From the first token on: the prompt is another matter.
        for stream in &mut streams {
            let Some(RowEvent::Token(first)) = stream.next() else {
                return Err(CliError::failed("a row of the bench ended before its first token"));
            };
            ids.push(vec![first.token]);
        }
        let start = Instant::now();
        for (stream, ids) in streams.into_iter().zip(&mut ids) {
            ids.extend(stream.wait().ids());
        }
        Ok((start.elapsed().as_secs_f64() * 1e3 / (self.tokens - 1) as f64, ids))
    }

    /// Milliseconds a step of a party's rows, with each of the masks. They take turns at every step, so
    /// that a machine that slows down slows them all.
    fn step(&self, rows: usize, prompt: &[TokenId], round: usize) -> Result<[f64; STEPPING.len()], CliError> {
        let party = self.engine.party();
        let root = party.open(None);
        let ids = |one_in: u32| (0..IDS as u32).filter(move |id| id % one_in == 0);
        let masks =
            STEPPING.map(|(_, one_in)| one_in.map(|one_in| Arc::new(Bitset::from_ids(IDS + 1, ids(one_in)))));
        let draw = |way: usize, row: usize, step: usize| Wish::Draw {
            key: DrawKey::new(ProblemKey::new(5, 0), row as u32, step as u32, 0),
            method: DrawMethod::default(),
            mask: masks[way].clone(),
        };
        let request = |seq: &Sequence, tokens, wishes| RowRequest {
            seq: seq.id(),
            tokens,
            temperature: 1.0,
            vocab: Arc::clone(&self.vocab),
            wishes,
        };
        let wait = |requests: Vec<RowRequest>| -> Result<Vec<TokenId>, CliError> {
            let replies = party.submit(requests).map_err(CliError::failed)?.wait();
            let token = |reply| match reply {
                // The end symbol is fed as some token: what is timed is a full batch.
                Ok(Reply::Drawn(drawn)) if drawn.token.is_eos() => Ok(TokenId(0)),
                Ok(Reply::Drawn(drawn)) => Ok(drawn.token),
                Ok(_) => Err(CliError::failed("the engine answered a draw with something else")),
                Err(error) => Err(CliError::failed(error)),
            };
            replies.into_iter().flatten().map(token).collect()
        };
        let first = (0..STEPPING.len()).flat_map(|way| (0..rows).map(move |row| (way, row)));
        let first = first.map(|(way, row)| draw(way, row, 1)).collect();
        let mut tokens = wait(vec![request(&root, prompt.to_vec(), first)])?;
        let seqs: Vec<Sequence> = tokens.iter().map(|_| root.fork()).collect();
        let mut ms = [0.0; STEPPING.len()];
        for step in 2..=self.tokens {
            for turn in 0..ms.len() {
                let way = place(ms.len(), step + round, turn);
                let (seqs, tokens) = (&seqs[way * rows..][..rows], &mut tokens[way * rows..][..rows]);
                let start = Instant::now();
                let requests = seqs
                    .iter()
                    .zip(&*tokens)
                    .enumerate()
                    .map(|(row, (seq, token))| request(seq, vec![*token], vec![draw(way, row, step)]))
                    .collect();
                tokens.copy_from_slice(&wait(requests)?);
                ms[way] += start.elapsed().as_secs_f64() * 1e3 / (self.tokens - 1) as f64;
            }
        }
        Ok(ms)
    }
}

/// Settings that no other row has.
fn settings(row: usize) -> SamplingParams {
    SamplingParams {
        temperature: 0.6 + 0.01 * row as f64,
        top_p: 0.85 + 0.003 * row as f64,
        min_p: 0.001 * row as f64,
        ..SamplingParams::default()
    }
}

/// The sampler of these settings, as one that does not say that its rows can be stacked.
fn one_by_one(params: &SamplingParams) -> Result<SharedSampler, CliError> {
    struct OneByOne(SharedSampler);
    impl RowSampler for OneByOne {
        fn draw(
            &mut self,
            rows: LogprobRows<'_>,
            noise: &mut RowNoise<'_>,
            out: &mut [TokenId],
        ) -> Result<(), SampleError> {
            let mut inner = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            inner.draw(rows, noise, out)
        }
    }
    let inner = make_sampler(params, &[]).map_err(CliError::failed)?;
    Ok(Arc::new(Mutex::new(OneByOne(inner))))
}

fn print_table(figures: &Figures) -> Result<(), CliError> {
    let header = [
        "prompt",
        "rows",
        "ms vectorised",
        "ms per row",
        "speed-up",
        "ms plain",
        "1 in 100 / plain",
        "1 in 2 / plain",
    ];
    let mut table = table(header, header.len());
    for prompt in PROMPTS {
        for rows in ROWS {
            let name = format!("prompt.{prompt}.rows.{rows}");
            let median = |figure: &str| match figures.summary(&format!("{name}.{figure}")) {
                Some(summary) => format!("{:.3}", summary.median),
                None => String::new(),
            };
            let spread = |figure: &str| match figures.summary(&format!("{name}.{figure}")) {
                Some(s) => format!("{:.3} ({:.3} to {:.3})", s.median, s.min, s.max),
                None => String::new(),
            };
            table.add_row([
                prompt.to_string(),
                rows.to_string(),
                median("vectorised_ms_per_step"),
                median("per_row_ms_per_step"),
                spread("vectorised_over_per_row"),
                median("plain_ms_per_step"),
                spread("few_over_plain_time"),
                spread("half_over_plain_time"),
            ]);
        }
    }
    print(table)?;
    let names = ["few", "half"].map(|mask| format!("{mask}_over_plain_time"));
    let [few, half] = names.map(|name| if holds(figures, &name) { "holds" } else { "broken" });
    print(format_args!(
        "rows with ready masks take at most {MASKED} of plain rows' time: 1 id in {FEW}: {few}; 1 in 2: {half}"
    ))
}

/// Whether the medians of a ratio of masked to plain rows keep their bound at every size.
fn holds(figures: &Figures, ratio: &str) -> bool {
    let mut sizes = PROMPTS.into_iter().flat_map(|prompt| ROWS.map(|rows| (prompt, rows)));
    sizes.all(|(prompt, rows)| {
        let summary = figures.summary(&format!("prompt.{prompt}.rows.{rows}.{ratio}"));
        summary.is_some_and(|summary| summary.median <= MASKED)
    })
}
