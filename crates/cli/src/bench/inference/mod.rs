//! `lockstep bench inference`: what a forward buys.
//!
//! Local masking, importance sampling and sequential Monte Carlo draw from the same targets with
//! the same numbers of particles. On small models the truth is summed exactly; on a real one it is
//! what long runs estimate. Time plays no part, and seeds are fixed: a rerun gives the same figures.

mod counted;
mod page;
mod plan;
mod plot;
mod real;
mod small;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use lockstep::model::{self, LoadOptions, Loaded};
use serde_json::{Value, json};

use crate::args::BenchInferenceArgs;
use crate::error::CliError;
use crate::stdout::print;
use page::number;
use plan::Score;
use plot::{Line, Panel};

/// What is plotted, a row of panels each: its name, and the value of a score.
type Measure = (&'static str, fn(&Score) -> Option<f64>);
const MEASURES: [Measure; 3] = [
    ("error of log Z, nats", |score| score.log_ml_error),
    ("variance of weights", |score| score.weight_variance),
    ("distance", |score| Some(score.distance)),
];

/// A block of the page for each part, its figures, and its rows of panels.
struct Part {
    name: &'static str,
    text: String,
    json: Value,
    panels: Vec<Vec<Panel>>,
}

pub(crate) fn inference(args: &BenchInferenceArgs) -> Result<ExitCode, CliError> {
    if args.small_runs == 0 {
        return Err(CliError::usage("--small-runs", "must be at least 1"));
    }
    let known = || small::CASES.iter().map(|case| case.name).chain(real::CASES.iter().map(|case| case.name));
    if let Some(unknown) = args.only.iter().find(|only| known().all(|case| case != *only)) {
        let names: Vec<&str> = known().collect();
        return Err(CliError::usage("--only", format!("`{unknown}` is none of {}", names.join(", "))));
    }
    let mut parts = vec![small_part(args)?];
    if args.runs > 0 {
        let model = model::load(args.model.name(), &LoadOptions::in_step(args.model.threads))?;
        parts.push(real_part(&model, args)?);
    }
    let figures: Value = parts
        .iter()
        .map(|part| (part.name.to_owned(), part.json.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    if let Some(folder) = &args.write {
        let panels: Vec<&[Panel]> = parts.iter().flat_map(|part| &part.panels).map(Vec::as_slice).collect();
        write(folder, &parts, &figures, &plot::svg(&panels, &plan::names()))?;
    } else if args.json {
        print(figures)?;
    } else {
        parts.iter().try_for_each(|part| print(part.text.trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn wanted(args: &BenchInferenceArgs, case: &str) -> bool {
    args.only.is_empty() || args.only.iter().any(|only| only == case)
}

fn small_part(args: &BenchInferenceArgs) -> Result<Part, CliError> {
    let runs = args.small_runs;
    let (mut text, mut json) = (format!("{}\n", page::number_of_runs(runs)), serde_json::Map::new());
    let mut panels = MEASURES.map(|_| Vec::new());
    for case in small::CASES.iter().filter(|case| wanted(args, case.name)) {
        eprintln!("small model: {}", case.name);
        let (truth, scores) = case.scores(runs)?;
        text += &format!(
            "\n**{}**: {}. log Z = {:.4}.\n\n{}",
            case.name,
            case.about,
            truth.log_z,
            page::table(&scores, &small::PARTICLES)
        );
        let figures: Vec<Value> = scores.iter().map(Score::json).collect();
        json.insert(case.name.into(), json!({ "log_z": truth.log_z, "runs": runs, "scores": figures }));
        add_panels(&mut panels, case.name, &scores);
    }
    Ok(Part { name: "small models", text, json: json.into(), panels: panels.into() })
}

/// A panel of a case for each of [`MEASURES`].
fn add_panels(rows: &mut [Vec<Panel>], title: &str, scores: &[Score]) {
    for (row, (y_label, value)) in rows.iter_mut().zip(MEASURES) {
        let line = |name: &'static str| {
            let of_name = scores.iter().filter(|score| score.method == name);
            let points = of_name.filter_map(|score| Some((score.particles as f64, value(score)?)));
            Line { name, points: points.collect() }
        };
        let lines = plan::names().into_iter().map(line).collect();
        row.push(Panel { title: title.to_owned(), y_label, lines });
    }
}

fn real_part(model: &Loaded, args: &BenchInferenceArgs) -> Result<Part, CliError> {
    let runs = args.runs;
    let (mut text, mut json) =
        (format!("{}: {}\n", model.name, page::number_of_runs(runs)), serde_json::Map::new());
    let mut panels = MEASURES.map(|_| Vec::new());
    for case in real::CASES.iter().filter(|case| wanted(args, case.name)) {
        eprintln!("{}: {}", model.name, case.name);
        let found = case.measure(model, runs)?;
        text += &format!(
            "\n**{}**: log Z = {:.3}, standard error {}, by {}. The distance is of {}; that between halves of the reference is {}.\n\n{}",
            case.name,
            found.truth.log_z,
            number(found.log_z_error),
            case.reference(),
            case.about,
            number(found.distance_floor),
            page::table(&found.scores, &real::PARTICLES)
        );
        let figures: Vec<Value> = found.scores.iter().map(Score::json).collect();
        let object = json!({
            "log_z": found.truth.log_z,
            "log_z_error": found.log_z_error,
            "distance_floor": found.distance_floor,
            "runs": runs,
            "scores": figures,
        });
        json.insert(case.name.into(), object);
        add_panels(&mut panels, case.name, &found.scores);
    }
    Ok(Part { name: "real model", text, json: json.into(), panels: panels.into() })
}

fn write(folder: &Path, parts: &[Part], figures: &Value, svg: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("--write: {}: {error}", folder.display()));
    let path = folder.join("inference.md");
    let mut page = fs::read_to_string(&path).map_err(failed)?;
    for part in parts {
        page = page::replace(&page, part.name, &part.text)?;
    }
    fs::write(&path, page).map_err(failed)?;
    fs::write(folder.join("inference.svg"), svg).map_err(failed)?;
    let pretty = serde_json::to_string_pretty(figures).map_err(CliError::failed)?;
    fs::write(folder.join("inference.json"), pretty + "\n").map_err(failed)
}
