//! What ends the program early, in one line, and with which exit code.

use std::{fmt, io};

use lockstep::control::{ControlError, ErrorKind};
use lockstep::engine::text::TextError;
use lockstep::model::ModelError;

/// An error for the person at the terminal.
#[derive(Debug)]
pub(crate) struct CliError {
    /// What to change, if the request is at fault.
    flag: Option<String>,
    message: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Usage,
    Failed,
    /// Whoever reads the output wants no more of it.
    Closed,
}

impl CliError {
    /// The request is impossible as it stands; `flag` is what to change.
    pub(crate) fn usage(flag: &str, message: impl fmt::Display) -> Self {
        Self { flag: Some(flag.to_owned()), message: message.to_string(), kind: Kind::Usage }
    }

    /// The request was fine and something failed.
    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self { flag: None, message: error.to_string(), kind: Kind::Failed }
    }

    /// `what` cannot be written. A reader that has left, as `head` does, is no news to anybody.
    pub(crate) fn unwritable(what: &str, error: &io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::Closed } else { Kind::Failed };
        Self { flag: None, message: format!("{what} cannot be written: {error}"), kind }
    }

    /// The message for the author of a problems file: flags under the names of their fields.
    pub(crate) fn in_file(&self) -> String {
        match &self.flag {
            Some(flag) => format!("{}: {}", flag.trim_start_matches("--").replace('-', "_"), self.message),
            None => self.message.clone(),
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            // As of a program that the signal for it ends.
            Kind::Closed => 141,
        }
    }

    /// Whether nobody needs to be told.
    pub(crate) fn is_silent(&self) -> bool {
        self.kind == Kind::Closed
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.flag {
            Some(flag) => write!(f, "{flag}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<ModelError> for CliError {
    fn from(error: ModelError) -> Self {
        Self::failed(error)
    }
}

impl From<TextError> for CliError {
    fn from(error: TextError) -> Self {
        Self::failed(error)
    }
}

impl From<ControlError> for CliError {
    fn from(error: ControlError) -> Self {
        if error.kind() != ErrorKind::Argument {
            return Self::failed(error);
        }
        // The library names its option; the flag of each is its name here.
        let message = error.to_string();
        let flags = [
            ("n_particles", "--particles"),
            ("ess_threshold", "--ess"),
            ("max_tokens", "--max-tokens"),
            ("temperature", "--temperature"),
            ("prompt", "--prompt"),
            ("words", "--words"),
            ("seed", "--seed"),
        ];
        for (field, flag) in flags {
            if let Some(rest) = message.strip_prefix(field).and_then(|rest| rest.strip_prefix(": ")) {
                return Self::usage(flag, rest);
            }
        }
        Self { flag: None, message, kind: Kind::Usage }
    }
}
