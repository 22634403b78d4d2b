//! The alphabet in which byte-level BPE writes bytes.
//!
//! Every byte has one printable character: the printable ones of Latin-1 stand for themselves, and
//! the other 68 are numbered from U+0100 on (Radford et al. 2019, "Language models are unsupervised
//! multitask learners", section 2.2).

/// Bytes that stand for themselves.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The 68 bytes that do not, in the order of their characters from U+0100 on.
const SHIFTED: [u8; 68] = {
    let (mut shifted, mut n, mut byte) = ([0; 68], 0, 0);
    while byte < 256 {
        if !is_printable(byte as u8) {
            shifted[n] = byte as u8;
            n += 1;
        }
        byte += 1;
    }
    shifted
};

/// The byte that `c` stands for, if it is of the alphabet.
pub(super) fn byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(|byte| is_printable(*byte)),
        code => SHIFTED.get(code as usize - 0x100).copied(),
    }
}

/// The character that stands for `byte`.
pub(super) fn char(byte: u8) -> char {
    if is_printable(byte) {
        return byte.into();
    }
    let n = SHIFTED.iter().position(|shifted| *shifted == byte).expect("every other byte is shifted");
    char::from_u32(0x100 + u32::try_from(n).expect("less than 68")).expect("U+0100 to U+0143 are characters")
}

/// The bytes that `text` stands for, or the first character that stands for none.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, char> {
    text.chars().map(|c| byte(c).ok_or(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_one_character_a_byte() {
        let chars: Vec<char> = (0..=255).map(char).collect();
        assert!((0..=255_u8).all(|b| byte(chars[b as usize]) == Some(b)));
        assert_eq!(
            (chars[b' ' as usize], chars[b'\n' as usize], chars[0], chars[0xad]),
            ('Ġ', 'Ċ', 'Ā', 'Ń')
        );
        assert_eq!((chars[b'a' as usize], chars[0xc3], chars[0x7f], chars[0xa0]), ('a', 'Ã', 'ġ', 'ł'));
        // The crate that encodes must use the same alphabet.
        let theirs = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        assert!(theirs.len() == 256 && chars.iter().all(|c| theirs.contains(c)));
        for c in [' ', '\n', '\u{ad}', '\u{a0}', '\u{144}', '€', '😀'] {
            assert_eq!(byte(c), None);
        }
        assert_eq!(decode("Ġé"), Ok(vec![b' ', 0xe9]));
        assert_eq!(decode("a b"), Err(' '));
    }
}
