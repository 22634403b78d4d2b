//! The program.
//!
//! Results go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 it
//! failed, 2 it was asked for something impossible, 130 interrupted (with what there was), 141 whoever
//! reads its results wants no more.

#![allow(clippy::print_stderr)] // a program tells how it goes

mod args;
mod bench;
mod constraint;
mod error;
mod explain;
mod generate;
mod input;
mod interrupt;
mod jsonl;
mod progress;
mod run;
mod stdout;
mod table;
mod tokenize;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{BenchCommand, Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Generate(args) => generate::generate(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Tokenize(args) => tokenize::tokenize(&args),
        Command::Bench(BenchCommand::Step(args)) => bench::step::step(&args),
        Command::Bench(BenchCommand::Smc(args)) => bench::smc::smc(&args),
        Command::Bench(BenchCommand::Inference(args)) => bench::inference::inference(&args),
        Command::Bench(BenchCommand::Engine(args)) => bench::engine::engine(&args),
        Command::Bench(BenchCommand::Cache(args)) => bench::cache::cache(&args),
        Command::Bench(BenchCommand::Mask(args)) => bench::mask::mask(&args),
        Command::Bench(BenchCommand::Draw(args)) => bench::draw::draw(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            if !error.is_silent() {
                // There is nobody else to tell if standard error is closed.
                let _ = writeln!(std::io::stderr(), "lockstep: {error}");
            }
            ExitCode::from(error.code())
        }
    }
}
