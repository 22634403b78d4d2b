//! What may follow in a state, for people.

use std::fmt;

use lockstep::grammar::{Dfa, StateId};

/// Ranges beyond this are only counted.
const SHOWN: usize = 24;

/// The characters that may follow, or the bytes if no whole character may.
pub(super) struct Options {
    /// Whether the text may end here.
    pub(super) end: bool,
    /// Ascending ranges such as `a-z`, `\n`, `\u{e9}` or `0x80-0xbf`.
    pub(super) ranges: Vec<String>,
}

impl Options {
    pub(super) fn new(dfa: &Dfa, state: StateId) -> Self {
        let may_follow = |c: &char| {
            let mut buffer = [0; 4];
            let mut bytes = c.encode_utf8(&mut buffer).bytes();
            bytes.try_fold(state, |state, byte| dfa.next(state, byte)).is_some()
        };
        let mut ranges = ranges(('\0'..=char::MAX).filter(may_follow), next_char, show_char);
        if ranges.is_empty() {
            let bytes = (0..=u8::MAX).filter(|byte| dfa.next(state, *byte).is_some());
            ranges = self::ranges(bytes, |byte| byte.checked_add(1), |byte| format!("0x{byte:02x}"));
        }
        Self { end: dfa.is_final(state), ranges }
    }
}

/// The scalar value after `c`.
fn next_char(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

fn show_char(c: char) -> String {
    match c {
        // They would read as parts of the list.
        ' ' | '-' | ',' => format!("'{c}'"),
        '\\' => "\\".to_owned(),
        '\'' | '"' => c.to_string(),
        _ => c.escape_debug().to_string(),
    }
}

/// Runs of neighbours, each shown as one range.
fn ranges<T: Copy + PartialEq>(
    ascending: impl Iterator<Item = T>,
    after: impl Fn(T) -> Option<T>,
    show: impl Fn(T) -> String,
) -> Vec<String> {
    let mut runs: Vec<(T, T)> = Vec::new();
    for item in ascending {
        match runs.last_mut().filter(|(_, last)| after(*last) == Some(item)) {
            Some((_, last)) => *last = item,
            None => runs.push((item, item)),
        }
    }
    let shown = |(first, last): (T, T)| match () {
        () if first == last => show(first),
        () if after(first) == Some(last) => format!("{}, {}", show(first), show(last)),
        () => format!("{}-{}", show(first), show(last)),
    };
    runs.into_iter().map(shown).collect()
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.ranges.iter().take(SHOWN).cloned().collect();
        if self.ranges.len() > SHOWN {
            parts.push(format!("and {} more ranges", self.ranges.len() - SHOWN));
        }
        if self.end {
            parts.push("the end".to_owned());
        }
        if parts.is_empty() {
            parts.push("nothing".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use lockstep::grammar::RegexOptions;

    use super::*;

    fn shown(pattern: &str, unicode: bool) -> String {
        let options = RegexOptions { unicode, ..RegexOptions::default() };
        let dfa = Dfa::from_regex(pattern, &options).unwrap();
        Options::new(&dfa, dfa.start()).to_string()
    }

    #[test]
    fn options_are_readable_ranges() {
        assert_eq!(shown("[a-zA0-1_]x|", true), "0, 1, A, _, a-z, the end");
        assert_eq!(shown(r"[\n -é]", true), "\\n, ' '-é");
        assert_eq!(shown(r"[\u{d7ff}\u{e000}]", true), "\\u{d7ff}, \\u{e000}");
        assert_eq!(shown(r"[\x80-\xbf]", false), "0x80-0xbf");
        assert_eq!(shown("", true), "the end");
        assert!(shown(r"\w", true).contains("more ranges"));
    }
}
