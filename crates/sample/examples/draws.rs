//! Draws a token for each of 16 rows of 32,000 logits in one of several ways, for
//! `scripts/count_instructions.py` to count what each takes.

use std::env::args;
use std::process::ExitCode;

use lockstep_sample::{
    Bitset, ChainRow, DrawKey, DrawMethod, EosSet, History, ProblemKey, RowDraw, SamplingParams, draw_rows,
    sample_row, sample_rows,
};

const ROWS: u32 = 16;
const IDS: u32 = 32_000;
const WAYS: &str = "nothing, equal, different, row-by-row, plain-particles or masked-particles";

fn key(particle: u32, step: u32) -> DrawKey {
    DrawKey::new(ProblemKey::new(7, 0), particle, step, 0)
}

fn settings(row: u32) -> SamplingParams {
    let methods = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];
    SamplingParams {
        temperature: 0.6 + 0.02 * f64::from(row),
        top_p: 0.92 + 0.003 * f64::from(row),
        min_p: 0.03 + 0.002 * f64::from(row),
        top_k: [0, 50, 200][row as usize % 3],
        xtc_probability: [0.0, 0.5][usize::from(row % 4 == 1)],
        temperature_first: row % 5 == 2,
        draw_method: methods[row as usize / 2 % 3],
        ..SamplingParams::default()
    }
}

fn main() -> ExitCode {
    let way = args().nth(1).unwrap_or_default();
    let logits: Vec<Vec<f32>> =
        (0..ROWS).map(|row| (0..IDS).map(|id| (2.5 * key(row, 1_000).gumbel(id)) as f32).collect()).collect();
    let equal = SamplingParams { temperature: 0.8, top_p: 0.95, min_p: 0.05, ..SamplingParams::default() };
    let params: Vec<SamplingParams> =
        (0..ROWS).map(|row| if way == "equal" { equal.clone() } else { settings(row) }).collect();
    let history = History::default();
    let chain: Vec<ChainRow<'_>> = (0..ROWS)
        .zip(&logits)
        .zip(&params)
        .map(|((row, logits), params)| ChainRow {
            logits,
            vocab_size: IDS as usize,
            params,
            history: &history,
            special_ids: &[],
            mask: None,
            banned: &[],
            key: key(row, 1),
            logprobs: None,
        })
        .collect();
    let (eos, half) = (EosSet::new([2]), Bitset::from_ids(IDS as usize, (0..IDS).step_by(2)));
    let mask = (way == "masked-particles").then_some(&half);
    let particles: Vec<RowDraw<'_>> = (0..ROWS)
        .zip(&logits)
        .map(|(row, logits)| {
            let (eos, method) = (&eos, DrawMethod::GumbelMax);
            RowDraw { logits, temperature: 1.0, eos, mask, method, key: key(row, 1) }
        })
        .collect();
    let drawn = match way.as_str() {
        "nothing" => true,
        "equal" | "different" => sample_rows(&chain).iter().all(Result::is_ok),
        "row-by-row" => chain.iter().all(|row| sample_row(row).is_ok()),
        "plain-particles" | "masked-particles" => draw_rows(&particles).iter().all(Result::is_ok),
        _ => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("`{way}` is no way to draw; use {WAYS}");
            }
            return ExitCode::FAILURE;
        }
    };
    if drawn { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
