//! mlx-lm's samplers, called row by row as its batched generation does, in a Python process beside ours.
//!
//! Its temperature comes last and its way to draw is its own, so rows that differ from ours in these two
//! alone are taken as they are; what it draws is not compared.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lockstep::sample::{DrawMethod, SamplingParams, TokenId};
use serde_json::{Value, json};

use crate::error::CliError;

const SCRIPT: &str = include_str!("../../../../../scripts/draws_mlx.py");

/// A process that draws.
pub(super) struct Mlx {
    child: Child,
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
}

/// A batch that it has.
#[derive(Clone, Copy)]
pub(super) struct MlxBatch(u64);

impl Mlx {
    /// Starts the script with the interpreter `python`.
    pub(super) fn start(python: &Path) -> Result<Self, CliError> {
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| CliError::usage("--mlx", format!("{}: {error}", python.display())))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(CliError::failed("the pipes to mlx-lm are missing"));
        };
        Ok(Self { child, pipes: RefCell::new((input, BufReader::new(output))) })
    }

    /// Gives it random logits and settings, a row each; `None` if it has no such settings.
    pub(super) fn batch(&self, ids: usize, rows: &[SamplingParams]) -> Result<Option<MlxBatch>, CliError> {
        let Some(rows) = rows.iter().map(settings).collect::<Option<Vec<Value>>>() else { return Ok(None) };
        let number = self.ask(&json!({ "ids": ids, "rows": rows }))?;
        number.as_u64().map(|number| Some(MlxBatch(number))).ok_or_else(unexpected)
    }

    /// A token for every row of a batch.
    pub(super) fn draw(&self, batch: MlxBatch) -> Result<Vec<TokenId>, CliError> {
        let tokens = self.ask(&json!({ "batch": batch.0 }))?;
        let token = |token: &Value| token.as_u64().map(|id| TokenId(id as u32)).ok_or_else(unexpected);
        tokens.as_array().ok_or_else(unexpected)?.iter().map(token).collect()
    }

    fn ask(&self, request: &Value) -> Result<Value, CliError> {
        let (input, output) = &mut *self.pipes.borrow_mut();
        let mut line = String::new();
        writeln!(input, "{request}").and_then(|()| input.flush()).map_err(CliError::failed)?;
        output.read_line(&mut line).map_err(CliError::failed)?;
        serde_json::from_str(&line).map_err(|_| unexpected())
    }
}

impl Drop for Mlx {
    fn drop(&mut self) {
        // It may be in the middle of a draw that nobody waits for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected() -> CliError {
    CliError::failed("mlx-lm gave no answer; does the interpreter of --mlx have mlx-lm?")
}

/// The arguments of its `make_sampler`.
fn settings(params: &SamplingParams) -> Option<Value> {
    let ours = SamplingParams {
        temperature: params.temperature,
        top_p: params.top_p,
        min_p: params.min_p,
        min_tokens_to_keep: params.min_tokens_to_keep,
        top_k: params.top_k,
        xtc_probability: params.xtc_probability,
        xtc_threshold: params.xtc_threshold,
        ..SamplingParams::default()
    };
    let theirs =
        SamplingParams { temperature_first: false, draw_method: DrawMethod::default(), ..params.clone() };
    (ours == theirs).then(|| {
        json!({
            "temp": params.temperature,
            "top_p": params.top_p,
            "min_p": params.min_p,
            "min_tokens_to_keep": params.min_tokens_to_keep,
            "top_k": params.top_k,
            "xtc_probability": params.xtc_probability,
            "xtc_threshold": params.xtc_threshold,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::batch::{Batch, Logits, Mix};
    use super::*;

    #[test]
    fn it_has_the_settings_of_all_mixes_without_penalties() {
        let logits = Logits::new(8, 1024);
        for mix in Mix::ALL {
            let batch = Batch::new(&logits, 8, mix).unwrap();
            assert_eq!(batch.params.iter().all(|params| settings(params).is_some()), mix != Mix::Penalties);
        }
        let params = SamplingParams { temperature: 0.5, top_k: 7, ..SamplingParams::default() };
        let arguments = settings(&params).unwrap();
        assert_eq!((arguments["temp"].as_f64(), arguments["top_k"].as_u64()), (Some(0.5), Some(7)));
    }

    #[test]
    fn an_interpreter_without_the_script_is_an_error_and_no_hang() {
        assert!(Mlx::start(Path::new("/no/such/python")).is_err());
        // It exits at once and answers nothing.
        let silent = Mlx::start(Path::new("true")).unwrap();
        assert!(silent.batch(10, &[SamplingParams::default()]).is_err());
    }
}
