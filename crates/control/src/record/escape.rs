//! Tokens as text, exactly: what is split at `|` and unescaped is what was written.

use std::fmt::Write;

use lockstep_engine::vocab::Vocabulary;
use lockstep_sample::TokenId;

/// What a token without bytes is written as: otherwise it could not be told from no token.
const EMPTY: &str = "\\e";
/// What the end is written as.
const END: &str = "EOS";
const SPACE: char = '␣';

/// A token as a record tells it. Ids are not recorded: tokens of equal bytes look alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordedToken {
    /// Its bytes; of a special token, its display text.
    Bytes(Vec<u8>),
    /// The end.
    Eos,
}

/// Text that no writer of records has written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("contents: `{token}` is no token of a record: `\\` must begin \\n, \\r, \\t, \\\\, \\e or \\xNN")]
pub struct EscapeError {
    token: String,
}

/// `tokens` as text: escaped, joined by `|`.
#[must_use]
pub fn escape(tokens: &[TokenId], vocab: &Vocabulary) -> String {
    let mut text = String::new();
    for (i, token) in tokens.iter().enumerate() {
        if i > 0 {
            text.push('|');
        }
        if token.is_eos() {
            text.push_str(END);
        } else {
            escape_bytes(vocab.text_of(*token), &mut text);
        }
    }
    text
}

fn escape_bytes(bytes: &[u8], text: &mut String) {
    if bytes.is_empty() {
        text.push_str(EMPTY);
    }
    for (i, &byte) in bytes.iter().enumerate() {
        let ambiguous = match byte {
            b'|' => true,
            b'<' => bytes[i + 1..].starts_with(b"<<"),
            b'>' => bytes[i + 1..].starts_with(b">>"),
            b'E' => bytes == END.as_bytes(),
            _ => false,
        };
        match byte {
            b' ' => text.push(SPACE),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            0x21..=0x7e if !ambiguous => text.push(char::from(byte)),
            _ => write!(text, "\\x{byte:02x}").expect("a string takes any text"),
        }
    }
}

/// The tokens of a text that [`escape`] wrote: the increment of a step, or a whole context.
///
/// # Errors
/// If a backslash begins none of the escapes.
pub fn unescape(text: &str) -> Result<Vec<RecordedToken>, EscapeError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split('|').map(unescape_token).collect()
}

fn unescape_token(token: &str) -> Result<RecordedToken, EscapeError> {
    match token {
        END => return Ok(RecordedToken::Eos),
        EMPTY => return Ok(RecordedToken::Bytes(Vec::new())),
        _ => {}
    }
    let error = || EscapeError { token: token.to_owned() };
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(c) = rest.next() {
        match c {
            SPACE => bytes.push(b' '),
            '\\' => bytes.push(match rest.next() {
                Some('n') => b'\n',
                Some('r') => b'\r',
                Some('t') => b'\t',
                Some('\\') => b'\\',
                Some('x') => {
                    let mut digit = || rest.next().and_then(|c| c.to_digit(16)).ok_or_else(error);
                    let byte = 16 * digit()? + digit()?;
                    u8::try_from(byte).expect("two digits are a byte")
                }
                _ => return Err(error()),
            }),
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Ok(RecordedToken::Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use lockstep_engine::vocab::TokenEntry;
    use lockstep_sample::EosSet;
    use proptest::prelude::*;

    use super::*;

    fn vocab(tokens: &[&[u8]]) -> std::sync::Arc<Vocabulary> {
        let entry = |bytes: &&[u8]| TokenEntry { bytes: bytes.to_vec(), special: false };
        Vocabulary::new(tokens.iter().map(entry).collect(), EosSet::new([])).unwrap()
    }

    fn written(bytes: &[u8]) -> String {
        escape(&[TokenId(0)], &vocab(&[bytes]))
    }

    #[test]
    fn each_rule_of_the_escapes() {
        for (bytes, text) in [
            (&b"He"[..], "He"),
            (b" w", "␣w"),
            (b"\n\r\t\\", "\\n\\r\\t\\\\"),
            (b"\x00\x7f\x80\xff", "\\x00\\x7f\\x80\\xff"),
            (b"a|b", "a\\x7cb"),
            (b"<<", "<<"),
            (b"<<<", "\\x3c<<"),
            (b"<<<<", "\\x3c\\x3c<<"),
            (b">>>a", "\\x3e>>a"),
            (b"EOS", "\\x45OS"),
            (b"EOSE", "EOSE"),
            (b"", "\\e"),
            ("␣é".as_bytes(), "\\xe2\\x90\\xa3\\xc3\\xa9"),
        ] {
            assert_eq!(written(bytes), text);
        }
        let tokens = [TokenId(0), TokenId(1), TokenId::EOS];
        assert_eq!(escape(&tokens, &vocab(&[b"llo", b" w"])), "llo|␣w|EOS");
        assert_eq!(escape(&[], &vocab(&[b"a"])), "");
    }

    #[test]
    fn what_no_writer_wrote_is_refused() {
        for text in ["\\", "a\\q", "\\x4", "\\xg0", "\\x+1", "b|\\x€"] {
            let error = unescape(text).unwrap_err().to_string();
            assert!(error.starts_with("contents: `"), "{error}");
        }
        assert_eq!(unescape("é"), Ok(vec![RecordedToken::Bytes("é".into())]));
    }

    proptest! {
        #[test]
        fn unescaping_gives_back_the_bytes(
            tokens in prop::collection::vec(prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"|<>\\ \nEOSex".to_vec())], 0..6), 1..6),
            end in any::<bool>(),
        ) {
            let entries: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
            let mut ids: Vec<TokenId> = (0..).map(TokenId).take(tokens.len()).collect();
            let mut expected: Vec<_> = tokens.iter().cloned().map(RecordedToken::Bytes).collect();
            if end {
                ids.push(TokenId::EOS);
                expected.push(RecordedToken::Eos);
            }
            let text = escape(&ids, &vocab(&entries));
            prop_assert!(!text.contains("<<<") && !text.contains(">>>") && !text.contains(' '));
            prop_assert!(text.chars().all(|c| c == SPACE || c.is_ascii_graphic()));
            prop_assert_eq!(unescape(&text).unwrap(), expected);
        }
    }
}
