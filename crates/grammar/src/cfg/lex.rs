//! The words of the notation.

use super::CfgError;

/// A word, with the line it begins in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A rule's or terminal's name, with the modifiers `?` and `!` before it.
    Name(String),
    /// A string, and whether case is ignored.
    Text(String, bool),
    /// A regular expression and its flags.
    Regex(String, String),
    Number(u32),
    /// `%ignore` and the like, without the `%`.
    Directive(String),
    /// `: | ( ) [ ] ? * + ~ .. -> . { } , !`
    Sign(&'static str),
    /// The end of a definition: a line that the next one does not continue.
    End,
}

/// Signs, longer ones first.
const SIGNS: [&str; 16] = ["->", "..", ":", "|", "(", ")", "[", "]", "?", "*", "+", "~", ".", "{", "}", ","];

pub(super) fn lex(text: &str) -> Result<Vec<Word>, CfgError> {
    let mut words: Vec<Word> = Vec::new();
    let (mut line, mut depth) = (1, 0_usize);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut push = |kind| words.push(Word { line, kind });
        if first == '\n' {
            // Inside brackets a line goes on.
            if depth == 0 {
                push(Kind::End);
            }
            line += 1;
            rest = &rest[1..];
        } else if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
        } else if rest.starts_with("//") || first == '#' {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if first == '"' {
            let (string, after) = quoted(rest, line)?;
            let ignores_case = after.starts_with('i');
            push(Kind::Text(string, ignores_case));
            rest = &after[usize::from(ignores_case)..];
        } else if first == '/' {
            let (pattern, after) = delimited(rest, line)?;
            let end = after.find(|c| !"imslux".contains(c)).unwrap_or(after.len());
            push(Kind::Regex(pattern, after[..end].to_owned()));
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('%') {
            let end = after.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(after.len());
            push(Kind::Directive(after[..end].to_owned()));
            rest = &after[end..];
        } else if let Some(end) = name_len(rest) {
            push(Kind::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..end].parse();
            push(Kind::Number(number.map_err(|_| CfgError::new(line, "a number is too large"))?));
            rest = &rest[end..];
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            depth = match sign {
                "(" | "[" => depth + 1,
                ")" | "]" => depth.saturating_sub(1),
                _ => depth,
            };
            push(Kind::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            return Err(CfgError::new(line, format!("`{first}` has no meaning here")));
        }
    }
    words.push(Word { line, kind: Kind::End });
    Ok(joined(words))
}

/// The words without blank lines, and without the ends that a line of alternatives continues.
fn joined(words: Vec<Word>) -> Vec<Word> {
    let mut out: Vec<Word> = Vec::with_capacity(words.len());
    for word in words {
        match word.kind {
            Kind::End if out.last().is_none_or(|last| last.kind == Kind::End) => {}
            Kind::Sign("|") => {
                if out.last().is_some_and(|last| last.kind == Kind::End) {
                    out.pop();
                }
                out.push(word);
            }
            _ => out.push(word),
        }
    }
    out
}

/// How long the name is that `text` begins with, its modifiers included.
fn name_len(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['?', '!']);
    let modifiers = text.len() - body.len();
    let first = body.trim_start_matches('_').chars().next()?;
    (modifiers <= 2 && first.is_ascii_alphabetic()).then(|| {
        let end = body.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(body.len());
        modifiers + end
    })
}

/// A string with its escapes read, and what follows it.
fn quoted(text: &str, line: usize) -> Result<(String, &str), CfgError> {
    let open = || CfgError::new(line, "a string has no closing quote");
    let mut out = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((out, &text[1 + at + 1..])),
            '\n' => return Err(open()),
            '\\' => {
                let (_, escaped) = chars.next().ok_or_else(open)?;
                let mut hex = |digits| {
                    let code = (0..digits).try_fold(0, |code, _| {
                        let (_, digit) = chars.next()?;
                        Some(code * 16 + digit.to_digit(16)?)
                    });
                    code.and_then(char::from_u32).ok_or_else(|| {
                        CfgError::new(line, format!("`\\{escaped}` needs {digits} digits of a character"))
                    })
                };
                out.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'f' => '\u{c}',
                    'v' => '\u{b}',
                    '0' => '\0',
                    'x' => hex(2)?,
                    'u' => hex(4)?,
                    'U' => hex(8)?,
                    '"' | '\\' | '/' | '\'' => escaped,
                    _ => return Err(CfgError::new(line, format!("the escape `\\{escaped}` is unknown"))),
                });
            }
            _ => out.push(c),
        }
    }
    Err(open())
}

/// A regular expression between slashes, and what follows it.
fn delimited(text: &str, line: usize) -> Result<(String, &str), CfgError> {
    let mut out = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '/' => return Ok((out, &text[1 + at + 1..])),
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, '/')) => out.push('/'),
                Some((_, escaped)) => out.extend(['\\', escaped]),
                None => break,
            },
            _ => out.push(c),
        }
    }
    Err(CfgError::new(line, "a regular expression has no closing slash"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        lex(text).unwrap().into_iter().map(|word| word.kind).collect()
    }

    #[test]
    fn lines_go_on_with_alternatives_and_inside_brackets() {
        let name = |name: &str| Kind::Name(name.to_owned());
        let expected = vec![name("?a"), Kind::Sign(":"), name("B"), Kind::Sign("|"), name("_c"), Kind::End];
        assert_eq!(kinds("// words\n\n?a: B\n\n  | _c // end\n"), expected);
        assert_eq!(kinds("a: (B\n C)").iter().filter(|kind| **kind == Kind::End).count(), 1);
    }

    #[test]
    fn strings_and_patterns_are_unescaped() {
        assert_eq!(kinds(r#""a\"\n\x41\u00e9"i"#)[0], Kind::Text("a\"\nAé".to_owned(), true));
        assert_eq!(kinds(r"/a\/b\d/")[0], Kind::Regex(r"a/b\d".to_owned(), String::new()));
        assert_eq!(kinds("/x/is")[0], Kind::Regex("x".to_owned(), "is".to_owned()));
        for (bad, line) in [("\n\"a", 2), ("/a\n/", 1), (r#""\q""#, 1), ("a: §", 1), (r#""\x4""#, 1)] {
            assert_eq!(lex(bad).unwrap_err().line(), line, "{bad}");
        }
    }
}
