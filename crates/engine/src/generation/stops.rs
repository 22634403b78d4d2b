//! Stop strings and text: from a row's tokens to what its reader may see.
//!
//! Stops act on bytes, whatever tokens they come in. At the first byte where a stop string ends,
//! generation ends, and the text is cut before the longest stop string that ends there. Bytes that
//! may yet be part of one are held, at most the longest stop string's length less one.

use std::mem;

/// Finds the first end of any of several strings in a stream of bytes (Knuth, Morris, Pratt).
#[derive(Clone, Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<Stop>,
    held: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Stop {
    bytes: Vec<u8>,
    /// `borders[k]`: the longest proper prefix of the string that is a suffix of its first k bytes.
    borders: Vec<usize>,
    /// Bytes of it that the stream ends with.
    matched: usize,
}

impl Stop {
    fn new(bytes: &[u8]) -> Self {
        let mut borders = vec![0; bytes.len() + 1];
        let mut border = 0;
        for k in 1..bytes.len() {
            while border > 0 && bytes[k] != bytes[border] {
                border = borders[border];
            }
            border += usize::from(bytes[k] == bytes[border]);
            borders[k + 1] = border;
        }
        Self { bytes: bytes.to_vec(), borders, matched: 0 }
    }

    fn push(&mut self, byte: u8) {
        self.matched = self.possible();
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.borders[self.matched];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
    }

    fn has_ended(&self) -> bool {
        self.matched == self.bytes.len()
    }

    /// Bytes at the stream's end that the next byte may make more of.
    fn possible(&self) -> usize {
        if self.has_ended() { self.borders[self.matched] } else { self.matched }
    }
}

impl StopMatcher {
    /// Looks for `stops`, none of them empty.
    pub(crate) fn new<'a>(stops: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self { stops: stops.into_iter().map(Stop::new).collect(), held: Vec::new() }
    }

    /// Reads `bytes` and appends what is free to go to `out`. The index of the stop string that
    /// ended it, if one did and `armed`: then nothing more may be read, and `out` ends before it, or
    /// after it if `include`.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        armed: bool,
        include: bool,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if self.stops.is_empty() {
            out.extend_from_slice(bytes);
            return None;
        }
        for &byte in bytes {
            self.held.push(byte);
            for stop in &mut self.stops {
                stop.push(byte);
            }
            if armed && let Some(found) = self.longest_ended() {
                let keep = self.held.len() - if include { 0 } else { self.stops[found].bytes.len() };
                out.extend_from_slice(&self.held[..keep]);
                self.held.clear();
                return Some(found);
            }
            let possible = self.stops.iter().map(Stop::possible).max().unwrap_or(0);
            out.extend(self.held.drain(..self.held.len() - possible));
        }
        None
    }

    /// The longest stop string that the stream ends with.
    fn longest_ended(&self) -> Option<usize> {
        let ended = self.stops.iter().enumerate().filter(|(_, stop)| stop.has_ended());
        ended.max_by_key(|(_, stop)| stop.bytes.len()).map(|(index, _)| index)
    }

    /// What is still held, at the stream's end.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }
}

/// Bytes in, text out: sequences that are no UTF-8 become U+FFFD, incomplete ones wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// The text that `bytes` complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let pending = mem::take(&mut self.pending);
        let mut chunks = pending.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && may_be_completed(invalid) {
                self.pending = invalid.to_vec();
            } else {
                text.push('\u{fffd}');
            }
        }
        text
    }

    /// What waits, at the stream's end.
    pub(crate) fn flush(&mut self) -> String {
        let incomplete = !mem::take(&mut self.pending).is_empty();
        if incomplete { "\u{fffd}".into() } else { String::new() }
    }
}

fn may_be_completed(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a reader sees of `chunks`, and the stop string that ended it.
    fn run(stops: &[&str], include: bool, chunks: &[&[u8]]) -> (String, Option<usize>) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| stop.as_bytes()));
        let mut out = Vec::new();
        for chunk in chunks {
            let before = out.len();
            if let Some(found) = matcher.push(chunk, true, include, &mut out) {
                assert!(out.len() >= before);
                return (String::from_utf8(out).unwrap(), Some(found));
            }
        }
        matcher.flush(&mut out);
        (String::from_utf8(out).unwrap(), None)
    }

    #[test]
    fn b_39_a_stop_string_split_at_every_point_cuts_at_its_earliest_end() {
        let text = b"one two<end> three";
        for split in 0..=text.len() {
            for second in split..=text.len() {
                let chunks = [&text[..split], &text[split..second], &text[second..]];
                assert_eq!(run(&["<end>"], false, &chunks), ("one two".into(), Some(0)));
                assert_eq!(run(&["<end>"], true, &chunks), ("one two<end>".into(), Some(0)));
                // Of two, the one that ends first, and of two that end there the longer one.
                assert_eq!(run(&["<end>", "o<e"], false, &chunks), ("one tw".into(), Some(1)));
                assert_eq!(run(&["nd>", "<end>"], false, &chunks), ("one two".into(), Some(1)));
            }
        }
    }

    #[test]
    fn b_40_held_bytes_are_released_once_they_cannot_match_or_the_stream_ends() {
        let mut matcher = StopMatcher::new([&b"<end>"[..]]);
        let mut out = Vec::new();
        assert_eq!(matcher.push(b"a <en", true, false, &mut out), None);
        assert_eq!(out, b"a ");
        assert_eq!(matcher.push(b"<", true, false, &mut out), None);
        assert_eq!(out, b"a <en");
        matcher.flush(&mut out);
        assert_eq!(out, b"a <en<");
    }

    #[test]
    fn no_stop_acts_before_it_is_armed() {
        let mut matcher = StopMatcher::new([&b"aa"[..]]);
        let mut out = Vec::new();
        assert_eq!(matcher.push(b"aaa", false, false, &mut out), None);
        assert_eq!(out, b"aa");
        assert_eq!(matcher.push(b"a", true, false, &mut out), Some(0));
        assert_eq!(out, b"aa");
    }

    #[test]
    fn incomplete_text_waits_and_ends_as_a_replacement_character() {
        let mut stream = TextStream::default();
        let bytes = "aé€😀".as_bytes();
        let text: String = bytes.iter().map(|byte| stream.push(&[*byte])).collect();
        assert_eq!((text.as_str(), stream.flush().as_str()), ("aé€😀", ""));
        assert_eq!(stream.push(b"x\xff\xe2\x82"), "x\u{fffd}");
        assert_eq!(stream.push(b"y\xe2"), "\u{fffd}y");
        assert_eq!((stream.flush().as_str(), stream.flush().as_str()), ("\u{fffd}", ""));
    }

    /// The earliest end of any stop, cut before the longest that ends there, by brute force.
    fn expected(stops: &[String], text: &str) -> (String, bool) {
        for end in 1..=text.len() {
            let longest =
                stops.iter().filter(|stop| text[..end].ends_with(stop.as_str())).map(String::len).max();
            if let Some(length) = longest {
                return (text[..end - length].into(), true);
            }
        }
        (text.into(), false)
    }

    proptest! {
        #[test]
        fn b_39_every_chunking_gives_the_same_result(
            stops in prop::collection::vec("[ab]{1,4}", 1..4),
            text in "[ab]{0,24}",
            cuts in prop::collection::vec(0usize..25, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for cut in cuts {
                chunks.push(&text.as_bytes()[start..cut]);
                start = cut;
            }
            chunks.push(&text.as_bytes()[start..]);
            let names: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (shown, found) = run(&names, false, &chunks);
            prop_assert_eq!((shown, found.is_some()), expected(&stops, &text));
        }
    }
}
