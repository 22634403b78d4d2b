//! Records read back.

use std::fs;
use std::io;
use std::path::Path;

use super::{Contents, Mode, StepRecord};

/// What opens and closes the mark of what is new in full contents.
const MARKS: [&str; 2] = ["<<<", ">>>"];

/// A run's record, read and checked: steps follow each other and parents are there.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    steps: Vec<StepRecord>,
    /// For each step and particle, the whole context.
    contents: Vec<Vec<String>>,
}

/// Why a text is no record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("the record cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no list, and no lines, of steps.
    #[error("the record is no JSON list, and no lines, of steps: {0}")]
    Json(#[from] serde_json::Error),
    /// A step does not follow from the one before.
    #[error("steps[{index}].{field}: {message}")]
    Step {
        /// Which entry.
        index: usize,
        /// Its offending field.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

impl Recording {
    /// Reads a file: a JSON list or JSON Lines.
    ///
    /// # Errors
    /// If it cannot be read, or is no record.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        Self::parse(&fs::read_to_string(path)?)
    }

    /// Reads a text: a JSON list or JSON Lines.
    ///
    /// # Errors
    /// If it is no record.
    pub fn parse(text: &str) -> Result<Self, RecordingError> {
        let steps: Vec<StepRecord> = if text.trim_start().starts_with('[') {
            serde_json::from_str(text)?
        } else {
            serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>()?
        };
        Self::new(steps)
    }

    /// The record of `steps`.
    ///
    /// # Errors
    /// If one does not follow from the one before.
    pub fn new(steps: Vec<StepRecord>) -> Result<Self, RecordingError> {
        let mut contents: Vec<Vec<String>> = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let before = contents.last().map(Vec::as_slice);
            check(step, before.map(<[String]>::len)).map_err(|(field, message)| RecordingError::Step {
                index,
                field,
                message,
            })?;
            let whole = step.particles.iter().enumerate().map(|(i, particle)| match &particle.contents {
                Contents::Full(text) => text.replace(MARKS[0], "").replace(MARKS[1], ""),
                Contents::Increment(text) => {
                    let parent = before.map_or("", |before| &before[step.parent(i)]);
                    let joint = if parent.is_empty() || text.is_empty() { "" } else { "|" };
                    [parent, joint, text].concat()
                }
            });
            contents.push(whole.collect());
        }
        Ok(Self { steps, contents })
    }

    /// The steps as they were recorded.
    #[must_use]
    pub fn steps(&self) -> &[StepRecord] {
        &self.steps
    }

    /// For each step and particle, its whole context: tokens joined by `|`, to be read by
    /// [`unescape`](super::unescape).
    #[must_use]
    pub fn contents(&self) -> &[Vec<String>] {
        &self.contents
    }
}

/// Whether `step` can follow a population of `before`, if any.
fn check(step: &StepRecord, before: Option<usize>) -> Result<(), (&'static str, String)> {
    let n = step.particles.len();
    let Some(before) = before else {
        return match (step.mode, &step.ancestors) {
            (Mode::Init, None) => Ok(()),
            (Mode::Init, Some(_)) => Err(("ancestors", "the first step has none".into())),
            _ => Err(("mode", "the first step is `init`".into())),
        };
    };
    if step.mode == Mode::Init {
        return Err(("mode", "only the first step is `init`".into()));
    }
    if (step.mode == Mode::Resample) != step.ancestors.is_some() {
        return Err(("ancestors", "belong to `resample`, and must be there".into()));
    }
    match &step.ancestors {
        None if n != before => Err(("particles", format!("are {n}, but were {before}"))),
        Some(ancestors) if ancestors.len() != n => {
            Err(("ancestors", format!("are {}, but there are {n} particles", ancestors.len())))
        }
        Some(ancestors) => match ancestors.iter().find(|ancestor| **ancestor >= before) {
            Some(ancestor) => Err(("ancestors", format!("{ancestor} is no slot: there were {before}"))),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RecordedToken, unescape};
    use super::*;

    const RECORD: &str = r#"[{"step":1,"mode":"init","particles":[
   {"contents_incr":"He","logweight":"-1.25","weight_incr":"-1.25"},
   {"contents_incr":"Hi","logweight":"-Infinity","weight_incr":"-Infinity"}]},
 {"step":2,"mode":"smc_step","particles":[
   {"contents_incr":"llo|␣w","logweight":"-2.0","weight_incr":"-0.75"},
   {"contents_incr":"","logweight":"-Infinity","weight_incr":"0.0"}]},
 {"step":3,"mode":"resample","ancestors":[0,0],"particles":[
   {"contents_incr":"EOS","logweight":"-3.0","weight_incr":"-1.0"},
   {"contents_incr":"x","logweight":"-2.75","weight_incr":"-0.75"}]}]"#;

    #[test]
    fn contexts_are_rebuilt_along_the_ancestors() {
        let recording = Recording::parse(RECORD).unwrap();
        assert_eq!(recording.contents()[1], ["He|llo|␣w", "Hi"]);
        assert_eq!(recording.contents()[2], ["He|llo|␣w|EOS", "He|llo|␣w|x"]);
        assert_eq!(recording.steps()[0].particles[1].logweight, f64::NEG_INFINITY);
        let tokens = unescape(&recording.contents()[2][0]).unwrap();
        let bytes = |text: &str| RecordedToken::Bytes(text.into());
        assert_eq!(tokens, [bytes("He"), bytes("llo"), bytes(" w"), RecordedToken::Eos]);
    }

    #[test]
    fn what_is_read_is_written_as_it_was_and_lines_are_read_too() {
        let recording = Recording::parse(RECORD).unwrap();
        let flat: String = RECORD.split('\n').map(str::trim).collect();
        assert_eq!(serde_json::to_string(recording.steps()).unwrap(), flat);
        let lines: Vec<String> =
            recording.steps().iter().map(|step| serde_json::to_string(step).unwrap()).collect();
        assert_eq!(Recording::parse(&lines.join("\n")).unwrap(), recording);
        assert!(Recording::parse("").unwrap().steps().is_empty());
    }

    #[test]
    fn full_contents_with_the_mark_of_what_is_new() {
        let text = r#"[{"step":1,"mode":"init","particles":[
            {"contents":"<<<He>>>","logweight":"-1.25","weight_incr":"-1.25"},
            {"contents":"Hi<<<>>>","logweight":"nan","weight_incr":"-inf"}]},
          {"step":2,"mode":"resample","ancestors":[0,0],"particles":[
            {"contents":"He<<<|llo>>>","logweight":"-2.0","weight_incr":"-0.75"},
            {"contents":"He|x<<<>>>","logweight":"-inf","weight_incr":"nan"}]}]"#;
        let recording = Recording::parse(text).unwrap();
        assert_eq!(recording.contents(), [["He", "Hi"], ["He|llo", "He|x"]]);
        let weights = |step: usize, i: usize| {
            let particle = &recording.steps()[step].particles[i];
            (particle.logweight, particle.weight_incr)
        };
        assert_eq!(weights(0, 1), (f64::NEG_INFINITY, f64::NEG_INFINITY));
        assert_eq!(weights(1, 1), (f64::NEG_INFINITY, 0.0));
    }

    #[test]
    fn a_broken_record_is_refused_with_the_step_and_the_field() {
        let refusal =
            |from: &str, to: &str| Recording::parse(&RECORD.replace(from, to)).unwrap_err().to_string();
        assert!(
            refusal(r#""ancestors":[0,0]"#, r#""ancestors":[0,2]"#).starts_with("steps[2].ancestors: 2 is")
        );
        assert!(
            refusal(r#""ancestors":[0,0]"#, r#""ancestors":[0]"#).starts_with("steps[2].ancestors: are 1")
        );
        assert!(refusal(r#""ancestors":[0,0],"#, "").starts_with("steps[2].ancestors: belong"));
        assert!(refusal("smc_step", "init").starts_with("steps[1].mode: only"));
        assert!(refusal("\"init\"", "\"smc_step\"").starts_with("steps[0].mode: the first"));
        let fewer = r#",
   {"contents_incr":"","logweight":"-Infinity","weight_incr":"0.0"}"#;
        assert!(refusal(fewer, "").starts_with("steps[1].particles: are 1, but were 2"));
        assert!(refusal("-2.75", "two").contains("`two` is no number"));
        assert!(refusal("smc_step", "step").contains("unknown variant"));
        assert!(
            Recording::read("/nowhere/at/all.json").unwrap_err().to_string().starts_with("the record cannot")
        );
    }
}
