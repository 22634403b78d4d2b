//! The constraint that the command line asks for.

use lockstep::control::BoolFsa;
use lockstep::grammar::RegexError;

use crate::args::ConstraintArgs;
use crate::error::CliError;

/// The texts that match every `--regex` and, if there are any, are one of the `--choice`s, as one
/// automaton: it stays tight. `None` if nothing was asked for.
pub(crate) fn constraint(args: &ConstraintArgs) -> Result<Option<BoolFsa>, CliError> {
    let mut all: Option<BoolFsa> = None;
    let mut narrow = |flag: &str, next: BoolFsa| -> Result<(), CliError> {
        all = Some(match all.take() {
            Some(before) => before.intersect(&next).map_err(|error| CliError::usage(flag, error))?,
            None => next,
        });
        Ok(())
    };
    for pattern in &args.regex {
        narrow("--regex", BoolFsa::from_regex(pattern).map_err(|error| bad_regex(pattern, &error))?)?;
    }
    if !args.choice.is_empty() {
        let choices = BoolFsa::from_strings(&args.choice);
        narrow("--choice", choices.map_err(|error| CliError::usage("--choice", error))?)?;
    }
    Ok(all)
}

/// A faulty pattern with a caret under the fault.
fn bad_regex(pattern: &str, error: &RegexError) -> CliError {
    let Some(offset) = error.offset().filter(|offset| pattern.is_char_boundary(*offset)) else {
        return CliError::usage("--regex", error);
    };
    CliError::usage("--regex", format!("{error}\n{}", caret(pattern, offset)))
}

/// `text` on a line, and a caret under the character at byte `offset` on the next, both indented.
pub(crate) fn caret(text: &str, offset: usize) -> String {
    // Control characters would move the caret off its place.
    let shown: String = text.chars().map(|c| if c.is_control() { '␣' } else { c }).collect();
    let column = text[..offset].chars().count();
    format!("  {shown}\n  {}^", " ".repeat(column))
}
