//! How text is cut into the pieces that merges stay inside.

use tokenizers::pattern::Pattern;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::{Offsets, PreTokenizedString, PreTokenizer as _, SplitDelimiterBehavior};

use super::error::Problem;

/// A pre-tokenizer: maybe every digit alone, then the pattern of GPT-2 (Radford et al. 2019), then
/// bytes written in the byte-level alphabet.
pub(super) struct PreTokenizer {
    digits: Option<Digits>,
    byte_level: ByteLevel,
}

impl PreTokenizer {
    /// The one that model files call `name`.
    pub(super) fn named(name: &str) -> Result<Self, Problem> {
        let digits = match name {
            "smollm" => Some(Digits::new(true)),
            "gpt-2" => None,
            other => return Err(Problem::Pre(other.to_owned())),
        };
        Ok(Self { digits, byte_level: ByteLevel::new(false, false, true) })
    }

    pub(super) fn cut(&self, pieces: &mut PreTokenizedString) -> tokenizers::Result<()> {
        if let Some(digits) = &self.digits {
            digits.pre_tokenize(pieces)?;
        }
        pieces.split(|_, piece| piece.split(LongSpaces, SplitDelimiterBehavior::Isolated))?;
        self.byte_level.pre_tokenize(pieces)
    }
}

/// Long runs of white space, cut as the pattern cuts all runs: all of it at the end of a piece,
/// else all but the last character, which goes with what follows.
///
/// The pattern's own matcher backtracks over a run, and past a million characters it gives up
/// without a word and leaves the rest of the text uncut. Cutting long runs first changes nothing
/// else, because only a run's last character can share a piece with its surroundings.
struct LongSpaces;

/// The characters of a run that is cut here. Any number far from one and from a million would do.
const LONG: usize = 1000;

impl Pattern for LongSpaces {
    fn find_matches(&self, text: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let (mut cuts, mut done, mut from) = (Vec::new(), 0, 0);
        while let Some(begin) = text[from..].find(char::is_whitespace).map(|at| from + at) {
            let run = text[begin..].find(|c: char| !c.is_whitespace()).map(|len| &text[begin..begin + len]);
            // Of a run that something follows, the last character stays with that.
            let cut = run.map_or(&text[begin..], |run| {
                let last = run.char_indices().next_back().map_or(0, |(at, _)| at);
                &run[..last]
            });
            if cut.chars().nth(LONG).is_some() {
                cuts.extend([((done, begin), false), ((begin, begin + cut.len()), true)]);
                done = begin + cut.len();
            }
            from = run.map_or(text.len(), |run| begin + run.len());
        }
        cuts.push(((done, text.len()), false));
        Ok(cuts)
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType};

    use super::*;

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        PreTokenizer::named(name).unwrap_or_else(|problem| panic!("{problem}")).cut(&mut pieces).unwrap();
        let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        pieces.iter().map(|(_, (begin, end), _)| text[*begin..*end].to_owned()).collect()
    }

    #[test]
    fn words_take_one_space_and_numbers_differ_by_name() {
        let text = "it's  a b12 34²!?\n\n c ";
        let words = ["it", "'s", " ", " a", " b", "12", " 34²", "!?", "\n\n", " c", " "];
        assert_eq!(pieces("gpt-2", text), words);
        let digits = ["it", "'s", " ", " a", " b", "1", "2", " ", "3", "4", "²", "!?", "\n\n", " c", " "];
        assert_eq!(pieces("smollm", text), digits);
    }

    #[test]
    fn runs_of_white_space_are_cut_alike_at_any_length() {
        let check = |text: &str, want: &[&str]| {
            let got = pieces("smollm", text);
            assert!(got == want, "{:?}", got.iter().map(String::len).collect::<Vec<_>>());
        };
        // Around the limit here.
        for n in [2, LONG - 1, LONG, LONG + 1, LONG + 2] {
            for space in [" ", "\n", "\u{3000}"] {
                let run = space.repeat(n);
                let end = format!("{run} ");
                check(&format!("a{run} b c"), &["a", &run, " b", " c"]);
                check(&format!("a{run}\tb c"), &["a", &run, "\t", "b", " c"]);
                check(&format!("{run} !{end}"), &[&run, " !", &end]);
                check(&end, &[&end]);
                check(&format!("a{end}1 b"), &["a", &end, "1", " b"]);
            }
        }
        // Past that of the pattern's matcher.
        let run = " ".repeat(1_100_000);
        check(&format!("a{run} b c"), &["a", &run, " b", " c"]);
    }

    #[test]
    fn long_words_are_not_cut() {
        for c in ["a", "é", "!"] {
            let word = c.repeat(1_100_000);
            assert!(pieces("smollm", &format!("{word} {word}")) == [word.clone(), format!(" {word}")], "{c}");
        }
    }
}
