use lockstep::model::{self, LoadOptions};

use super::*;

fn jobs(model: &Loaded, lines: &str) -> Vec<Job> {
    let defaults = <crate::args::Cli as clap::Parser>::parse_from(["lockstep", "run", "--problems", "-"]);
    let crate::args::Command::Run(defaults) = defaults.command else { panic!("run was asked for") };
    let job = |Line { number, id, asked }: Line<Problem>| {
        let problem = asked.unwrap();
        Job { id, number, smc: problem.smc(model).unwrap(), problem }
    };
    let read = |fields: &_| line::problem(fields, &defaults);
    jsonl::lines("--problems", lines, read).unwrap().into_iter().map(job).collect()
}

/// Problems of 3 to 9 particles and 5 to 11 steps.
fn lines() -> String {
    (0..4)
        .map(|i| {
            let (letters, particles) = (4 + 2 * i, 3 + 2 * i);
            let prompt = &"Once upon a time, in a village"[..12 + 4 * i];
            let problem = json!({
                "prompt": prompt, "regex": format!("(\u{e9}|\u{e8}){{{letters}}}"), "particles": particles,
                "ess": 0, "seed": i,
            });
            format!("{problem}\n")
        })
        .collect()
}

#[test]
fn every_step_of_a_cohort_is_one_forward_of_all_its_problems() {
    let model = model::load(model::DEFAULT, &LoadOptions::in_step(None)).unwrap();
    // (steps, rows) of a run of some jobs with so many at once.
    let run = |jobs: Vec<Job>, most| {
        let folder = tempfile::tempdir().unwrap();
        let output = Mutex::new(Output::file(&folder.path().join("out"), false, "-").unwrap());
        let progress = Mutex::new(LinesProgress::new("problems", jobs.len(), 0));
        let interrupted = AtomicBool::new(false);
        let before = model.engine.stats();
        let cohort =
            Cohort { model: &model, output: &output, progress: &progress, interrupted: &interrupted };
        cohort.run(jobs, most).unwrap();
        let stats = model.engine.stats() - before;
        (stats.steps, stats.rows)
    };
    let alone: Vec<(u64, u64)> = jobs(&model, &lines()).into_iter().map(|job| run(vec![job], 1)).collect();
    let (steps, rows): (Vec<u64>, Vec<u64>) = alone.into_iter().unzip();
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
    let all_rows: u64 = rows.iter().sum();
    assert_eq!(run(jobs(&model, &lines()), 64), (steps[3], all_rows));
    assert_eq!(run(jobs(&model, &lines()), 1), (steps.iter().sum(), all_rows));
}
