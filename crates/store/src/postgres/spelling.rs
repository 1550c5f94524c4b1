//! How texts are spelled in PostgreSQL, which takes every character but the one with the number 0.
//!
//! That one becomes two, the first of which is the character with the number 1, and so does that
//! one itself. Neither is in the records, which are JSON, nor in anything a person typed.

use std::borrow::Cow;

/// What begins a pair.
const MARK: char = '\u{1}';

/// A text as PostgreSQL takes it.
pub(super) fn write(text: String) -> String {
    if !text.contains(['\0', MARK]) {
        return text;
    }
    let spell = |letter| match letter {
        '\0' => Cow::Borrowed("\u{1}0"),
        MARK => Cow::Borrowed("\u{1}1"),
        letter => Cow::Owned(String::from(letter)),
    };
    text.chars().map(spell).collect()
}

/// A text as it was before it was written.
pub(super) fn read(text: String) -> String {
    if !text.contains(MARK) {
        return text;
    }
    text.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_has_what_postgresql_refuses() {
        for text in ["", "plain", "\0", "\u{1}", "\u{1}0", "\u{1}1", "\0\u{1}\0", "a\u{1}\u{1}10\0"]
        {
            let written = write(text.to_owned());
            assert!(!written.contains('\0'), "{text:?}");
            assert_eq!(read(written), text, "{text:?}");
        }
    }
}
