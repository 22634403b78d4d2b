//! `lockstep bench mask`: the token masks of regular expressions, beside llguidance's.
//!
//! For each pattern texts are sampled by drawing allowed tokens, so the states are those of
//! generation, and both constraints read them side by side. A mask is cold the first time its state
//! is met, and warm when it is asked for again. Ours are kept for all states that no token tells
//! apart, so of a long count few states are walked for; `walk_us` is what each takes if none is
//! kept. llguidance keeps what its lexer learns between masks; only its copy of the last mask is
//! dropped. Each pattern is compiled and each mask made three times, our cold ones by three constraints, and the fastest
//! counts, so that what is reported as the worst is the worst state and not the worst moment of the
//! machine.

mod patterns;
mod peer;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use lockstep::control::potential::{Cursor, Run};
use lockstep::control::{BoolFsa, Coerced, Potential};
use lockstep::engine::TokenId;
use lockstep::engine::vocab::Vocabulary;
use lockstep::grammar::{Dfa, RegexOptions};
use lockstep::model;
use lockstep::native::gguf::{Gguf, tokenizer_spec};
use lockstep::sample::{Bitset, DrawKey, ProblemKey};
use serde_json::{Value, json};

use super::figures::Figures;
use crate::args::BenchMaskArgs;
use crate::error::CliError;
use crate::stdout::print;
use crate::table::table;
use patterns::{PATTERNS, Pattern};
use peer::{Matcher, Peer};

/// Times that each mask is made.
const TRIES: usize = 3;

/// Bytes that a constraint may keep masks in, more than any pattern needs.
const MASK_BYTES: usize = 64 << 20;

/// Repetitions of what takes less than a microsecond.
const REPEAT: usize = 64;

/// Rows that a select copies.
const ROWS: usize = 64;

/// The bounds: figure, limit, what it says.
const BOUNDS: [(&str, f64, &str); 5] = [
    ("compile_minus_llguidance_ms", 50.0, "compile at most llguidance's plus 50 ms"),
    ("cold_over_llguidance_median", 1.0, "cold masks no slower than llguidance's median"),
    ("cold_us.worst", 5000.0, "worst mask under 5 ms"),
    ("warm_us.p99", 10.0, "a warm mask under 10 us"),
    ("select_over_llguidance_clone", 0.1, "a select under a tenth of llguidance's matcher clone"),
];

pub(crate) fn mask(args: &BenchMaskArgs) -> Result<ExitCode, CliError> {
    if args.rounds == 0 || args.texts == 0 || args.tokens == 0 {
        return Err(CliError::usage("--rounds, --texts, --tokens", "must be at least 1"));
    }
    let only = args.only.as_deref().unwrap_or_default();
    let patterns: Vec<&Pattern> = PATTERNS.iter().filter(|pattern| pattern.name.contains(only)).collect();
    if patterns.is_empty() {
        return Err(CliError::usage("--only", format!("no pattern's name contains `{only}`")));
    }
    let gguf = Gguf::open(&model::locate(&args.model.model)?).map_err(CliError::failed)?;
    let tokenizer = lockstep::engine::text::Tokenizer::new(tokenizer_spec(&gguf).map_err(CliError::failed)?)?;
    let vocab = tokenizer.vocabulary();
    let mut figures = Figures::default();
    let start = Instant::now();
    let _ = vocab.trie().siblings();
    figures.add("trie.build_ms", ms(start));
    figures.add("trie.memory_kib", vocab.trie().byte_len() as f64 / 1024.0);
    let start = Instant::now();
    let peer = Peer::new(vocab);
    if peer.is_some() {
        figures.add("llguidance.build_ms", ms(start));
    }
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for pattern in &patterns {
            measure(args, pattern, vocab, peer.as_ref(), round as u64, &mut figures)?;
        }
    }
    let bounds = bounds_hold(&patterns, &figures);
    if args.json {
        let regexes: serde_json::Map<String, Value> =
            patterns.iter().map(|pattern| (pattern.name.to_owned(), pattern.regex.into())).collect();
        let object = json!({
            "bench": "mask",
            "model": args.model.model,
            "tokens": vocab.len(),
            "llguidance": if peer.is_some() { "1.9" } else { NOT_BUILT },
            "patterns": regexes,
            "figures": figures.json(),
            "bounds_hold": bounds,
        });
        print(object)?;
    } else {
        print_table(&patterns, &figures, peer.is_some())?;
        for (name, holds) in bounds.as_object().into_iter().flatten() {
            print(format_args!("{name}: {holds}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What stands for the peer's figures if it is not there.
#[cfg(not(feature = "peers"))]
const NOT_BUILT: &str = peer::MISSING;
#[cfg(feature = "peers")]
const NOT_BUILT: &str = "the vocabulary has no end of sequence";

fn us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn ms(start: Instant) -> f64 {
    us(start) / 1e3
}

/// Microseconds of each kind of operation.
#[derive(Default)]
struct Times {
    cold: Vec<f64>,
    walk: Vec<f64>,
    warm: Vec<f64>,
    check: Vec<f64>,
    select: Vec<f64>,
    peer_mask: Vec<f64>,
    peer_check: Vec<f64>,
    peer_clone: Vec<f64>,
    /// Positions where both masks are equal, and where they were compared.
    equal: (usize, usize),
}

/// One pattern in one round.
fn measure(
    args: &BenchMaskArgs,
    pattern: &Pattern,
    vocab: &Arc<Vocabulary>,
    peer: Option<&Peer>,
    round: u64,
    figures: &mut Figures,
) -> Result<(), CliError> {
    let mut add = |name: &str, value: f64| figures.add(format!("mask.{}.{name}", pattern.name), value);
    // Not by `BoolFsa::from_regex`: from the second time on it would know the pattern.
    let compile = || -> Result<(Arc<BoolFsa>, Coerced), CliError> {
        let dfa = Dfa::from_regex(pattern.regex, &RegexOptions::default()).map_err(CliError::failed)?;
        let fsa = Arc::new(BoolFsa::from_dfa(dfa));
        Ok((Arc::clone(&fsa), Coerced::new(fsa, Arc::clone(vocab))?))
    };
    compile()?; // an error is told as it is
    let ((fsa, constraint), compiled) = fastest(|| compile().ok()).expect("a pattern that compiled compiles");
    add("compile_ms", compiled / 1e3);
    let matcher = match peer.map(|peer| peer.compile(pattern.regex)) {
        Some(Ok(matcher)) => {
            if let Some((_, theirs)) = fastest(|| peer?.compile(pattern.regex).ok()) {
                add("llguidance.compile_ms", theirs / 1e3);
                add("compile_minus_llguidance_ms", (compiled - theirs) / 1e3);
            }
            Some(matcher)
        }
        Some(Err(error)) => {
            eprintln!("llguidance refuses {}: {error}", pattern.name);
            None
        }
        None => None,
    };

    let dfa = fsa.automaton().expect("a BoolFsa is an automaton");
    let mut times = Times::default();
    let mut seen = BTreeSet::new();
    let constraint = constraint.with_mask_bytes(MASK_BYTES);
    let mut root = constraint.open(1, &Run::default())?;
    let keeping = |bytes| constraint.clone().with_mask_bytes(bytes).open(1, &Run::default());
    let (forgetful, fresh) =
        (keeping(0)?, (0..TRIES).map(|_| keeping(MASK_BYTES)).collect::<Result<Vec<_>, _>>()?);
    for text in 0..args.texts {
        let (mut cursor, mut bare) = (root.fork(&[0]), forgetful.fork(&[0]));
        let mut fresh: Vec<_> = fresh.iter().map(|cursor| cursor.fork(&[0])).collect();
        let mut matcher = matcher.as_ref().map(Matcher::fork);
        let mut state = dfa.start();
        for step in 0..args.tokens {
            if seen.insert(state) {
                let mut untried = fresh.iter_mut();
                times.cold.extend(fastest(|| untried.next()?.masks(&[0])).map(|(_, us)| us));
                times.walk.extend(fastest(|| bare.masks(&[0])).map(|(_, us)| us));
            }
            std::hint::black_box(cursor.masks(&[0]));
            let Some((mask, warm)) = fastest(|| cursor.masks(&[0])?.pop()) else { break };
            times.warm.push(warm);
            let key = DrawKey::new(ProblemKey::new(round, 0), text as u32, step as u32, 0);
            let Some(token) = choose(&mask, vocab, &key) else { break };
            check(&mut *cursor, token, &mut times);
            if let Some(matcher) = &mut matcher {
                theirs(matcher, token, &mask, &mut times);
            }
            for cursor in fresh.iter_mut().chain([&mut cursor, &mut bare]) {
                let _ = cursor.advance(&[0], &[&[token]]);
            }
            let read = vocab.bytes_of(token).iter().try_fold(state, |state, byte| dfa.next(state, *byte));
            let Some(next) = read else { break };
            state = next;
            matcher = matcher.and_then(|mut matcher| matcher.read(token).then_some(matcher));
        }
    }
    root.select(&[0; ROWS]);
    let ancestors: Vec<usize> = (0..ROWS).map(|row| row * 7 % ROWS).collect();
    for _ in 0..REPEAT {
        let start = Instant::now();
        root.select(&ancestors);
        times.select.push(us(start) / ROWS as f64);
    }
    report(times, &mut add);
    add("states", dfa.state_count() as f64);
    add("states_met", seen.len() as f64);
    add("automaton_kib", dfa.byte_len() as f64 / 1024.0);
    add("masks_kib", constraint.mask_bytes() as f64 / 1024.0);
    Ok(())
}

/// The fastest of three calls: its value and its microseconds. `None` if one has none.
fn fastest<T>(mut call: impl FnMut() -> Option<T>) -> Option<(T, f64)> {
    let mut best = None;
    for _ in 0..TRIES {
        let start = Instant::now();
        let value = std::hint::black_box(call())?;
        let spent = us(start);
        if best.as_ref().is_none_or(|(_, least)| spent < *least) {
            best = Some((value, spent));
        }
    }
    best
}

/// Our answer on one token.
fn check(cursor: &mut dyn Cursor, token: TokenId, times: &mut Times) {
    let start = Instant::now();
    for _ in 0..REPEAT {
        std::hint::black_box(cursor.probe(&[0], vec![vec![token]]));
    }
    times.check.push(us(start) / REPEAT as f64);
}

/// The peer's mask, token check and copy at the same place.
fn theirs(matcher: &mut Matcher, token: TokenId, ours: &Bitset, times: &mut Times) {
    if let Some((mask, spent)) = fastest(|| matcher.mask()) {
        times.peer_mask.push(spent);
        let set = |id: usize| mask.get(id / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
        times.equal.0 += usize::from((0..ours.len()).all(|id| set(id) == ours.contains(id)));
        times.equal.1 += 1;
    }
    let start = Instant::now();
    for _ in 0..REPEAT {
        std::hint::black_box(matcher.allows(token));
    }
    times.peer_check.push(us(start) / REPEAT as f64);
    let start = Instant::now();
    std::hint::black_box(matcher.fork());
    times.peer_clone.push(us(start));
}

/// An allowed token, each as likely, but the end only where nothing else is left: then `None`.
fn choose(mask: &Bitset, vocab: &Vocabulary, key: &DrawKey) -> Option<TokenId> {
    let allowed: Vec<usize> = mask.iter().filter(|position| *position != vocab.eos_position()).collect();
    let pick = (key.uniform(0) * allowed.len() as f64) as usize;
    allowed.get(pick).map(|position| vocab.token_at(*position))
}

fn report(mut times: Times, add: &mut impl FnMut(&str, f64)) {
    for (name, values) in [
        ("cold_us", &mut times.cold),
        ("walk_us", &mut times.walk),
        ("warm_us", &mut times.warm),
        ("check_us", &mut times.check),
        ("select_us", &mut times.select),
        ("llguidance.mask_us", &mut times.peer_mask),
        ("llguidance.check_us", &mut times.peer_check),
        ("llguidance.clone_us", &mut times.peer_clone),
    ] {
        values.sort_by(f64::total_cmp);
        for (part, share) in [("median", 0.5), ("p99", 0.99), ("worst", 1.0)] {
            if let Some(value) = quantile(values, share) {
                add(&format!("{name}.{part}"), value);
            }
        }
    }
    for (name, ours, theirs) in [
        ("cold_over_llguidance_median", &times.cold, &times.peer_mask),
        ("walk_over_llguidance_median", &times.walk, &times.peer_mask),
        ("check_over_llguidance", &times.check, &times.peer_check),
        ("select_over_llguidance_clone", &times.select, &times.peer_clone),
    ] {
        if let (Some(ours), Some(theirs)) = (quantile(ours, 0.5), quantile(theirs, 0.5)) {
            add(name, ours / theirs);
        }
    }
    if times.equal.1 > 0 {
        add("equal_masks", times.equal.0 as f64 / times.equal.1 as f64);
    }
}

/// The value that `share` of the sorted values do not pass.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// For each bound whether the median over the rounds holds it, for every pattern; null if nothing
/// was measured.
fn bounds_hold(patterns: &[&Pattern], figures: &Figures) -> Value {
    let mut all = serde_json::Map::new();
    for (figure, limit, says) in BOUNDS {
        let mut broken = Vec::new();
        let mut measured = false;
        for pattern in patterns {
            if let Some(summary) = figures.summary(&format!("mask.{}.{figure}", pattern.name)) {
                measured = true;
                if summary.median > limit {
                    broken.push(format!("{} {:.2}", pattern.name, summary.median));
                }
            }
        }
        let holds = match (measured, broken.is_empty()) {
            (false, _) => Value::Null,
            (true, true) => true.into(),
            (true, false) => json!({ "broken_by": broken }),
        };
        all.insert(says.to_owned(), holds);
    }
    Value::Object(all)
}

fn print_table(patterns: &[&Pattern], figures: &Figures, peer: bool) -> Result<(), CliError> {
    let header = [
        "pattern",
        "states",
        "compile ms",
        "cold us",
        "p99",
        "worst",
        "walk us",
        "warm us",
        "check us",
        "select us",
        "llg. compile ms",
        "mask us",
        "worst",
        "check us",
        "clone us",
        "equal",
    ];
    let mut table = table(header, header.len());
    for pattern in patterns {
        let show = |name: &str, digits: usize| {
            let name = format!("mask.{}.{name}", pattern.name);
            figures.summary(&name).map_or(String::new(), |s| format!("{:.digits$}", s.median))
        };
        table.add_row([
            pattern.name.to_owned(),
            show("states", 0),
            show("compile_ms", 1),
            show("cold_us.median", 1),
            show("cold_us.p99", 1),
            show("cold_us.worst", 1),
            show("walk_us.median", 1),
            show("warm_us.p99", 2),
            show("check_us.median", 3),
            show("select_us.median", 4),
            show("llguidance.compile_ms", 1),
            show("llguidance.mask_us.median", 1),
            show("llguidance.mask_us.worst", 1),
            show("llguidance.check_us.median", 3),
            show("llguidance.clone_us.median", 2),
            show("equal_masks", 2),
        ]);
    }
    print(table)?;
    if !peer {
        print(format_args!("llguidance: {NOT_BUILT}"))?;
    }
    for name in ["trie.build_ms", "trie.memory_kib"] {
        if let Some(s) = figures.summary(name) {
            print(format_args!("{name} {:.1}", s.median))?;
        }
    }
    Ok(())
}
