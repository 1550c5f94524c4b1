//! Pictures on terminals that can show them.
//!
//! What is told to be a picture comes from a sandbox. Only its base64 is handed to the terminal,
//! and only when it is nothing but base64: no byte of it can end the sequence that it is in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The largest picture that is shown, as base64.
const LARGEST: usize = 16 << 20;

/// What is handed over at once in kitty's protocol.
const PIECE: usize = 4096;

/// How a terminal is shown pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pictures {
    /// With kitty's protocol, which takes PNG.
    Kitty,
    /// With that of iTerm2.
    Iterm,
    /// Not at all.
    No,
}

impl Pictures {
    /// What the terminal can that these variables tell of.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
        let kind = variable("TERM").unwrap_or_default();
        // A multiplexer draws the screen itself, and would swallow or print them.
        let is_inside = |name: &str| variable(name).is_some_and(|found| !found.is_empty());
        if kind.starts_with("screen") || kind.starts_with("tmux") || is_inside("TMUX") {
            return Self::No;
        }
        if is("TERM_PROGRAM", "iTerm.app") || is("TERM_PROGRAM", "WezTerm") {
            return Self::Iterm;
        }
        if kind == "xterm-kitty"
            || kind == "xterm-ghostty"
            || is("TERM_PROGRAM", "ghostty")
            || is_inside("KITTY_WINDOW_ID")
        {
            return Self::Kitty;
        }
        Self::No
    }

    /// What shows this picture. `None` where the terminal cannot, or this is no picture.
    pub(super) fn show(self, kind: &str, base64: &str) -> Option<Vec<u8>> {
        let base64 = harmless(base64)?;
        match (self, kind) {
            (Self::Kitty, "image/png") => Some(kitty(&base64)),
            (Self::Iterm, "image/png" | "image/jpeg" | "image/gif") => Some(iterm(&base64)),
            _ => None,
        }
    }
}

/// The size of a picture in bytes.
pub(super) fn size(base64: &str) -> usize {
    let letters = base64.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=');
    letters.count() * 3 / 4
}

/// The width and the height of a PNG.
pub(super) fn dimensions(base64: &str) -> Option<(u32, u32)> {
    // The signature, and the first chunk to the height: 24 bytes.
    let head: Vec<u8> =
        base64.bytes().filter(|byte| !byte.is_ascii_whitespace()).take(32).collect();
    let bytes = STANDARD.decode(head).ok()?;
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") || bytes.get(12..16)? != b"IHDR" {
        return None;
    }
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some((number(16)?, number(20)?))
}

/// The same base64 without its line ends; `None` when it is something else or too much.
fn harmless(base64: &str) -> Option<String> {
    if base64.len() > LARGEST {
        return None;
    }
    let text: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    (!text.is_empty() && text.bytes().all(is_letter)).then_some(text)
}

fn kitty(base64: &str) -> Vec<u8> {
    let mut sequence = Vec::with_capacity(base64.len() + base64.len() / 256 + 64);
    let pieces = base64.as_bytes().chunks(PIECE);
    let count = pieces.len();
    for (index, piece) in pieces.enumerate() {
        // q=2: the terminal says nothing, for the answer would be taken for keys.
        let first = if index == 0 { "a=T,f=100,q=2," } else { "" };
        let more = u8::from(index + 1 < count);
        sequence.extend_from_slice(format!("\x1b_G{first}m={more};").as_bytes());
        sequence.extend_from_slice(piece);
        sequence.extend_from_slice(b"\x1b\\");
    }
    sequence.push(b'\n');
    sequence
}

fn iterm(base64: &str) -> Vec<u8> {
    let size = size(base64);
    let head = format!("\x1b]1337;File=inline=1;size={size};preserveAspectRatio=1:");
    [head.as_bytes(), base64.as_bytes(), b"\x07\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a PNG of 640 by 480.
    fn png() -> String {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend([0, 0, 2, 128, 0, 0, 1, 224]);
        bytes.extend([0; 6000]);
        STANDARD.encode(bytes)
    }

    fn on(variables: &[(&str, &str)]) -> Pictures {
        Pictures::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn terminals_are_known_by_their_variables() {
        assert_eq!(on(&[("TERM", "xterm-kitty")]), Pictures::Kitty);
        assert_eq!(on(&[("TERM", "xterm-256color"), ("KITTY_WINDOW_ID", "1")]), Pictures::Kitty);
        assert_eq!(on(&[("TERM_PROGRAM", "iTerm.app")]), Pictures::Iterm);
        assert_eq!(on(&[("TERM_PROGRAM", "WezTerm")]), Pictures::Iterm);
        assert_eq!(on(&[("TERM", "xterm-256color")]), Pictures::No);
        assert_eq!(on(&[("TERM", "tmux-256color"), ("KITTY_WINDOW_ID", "1")]), Pictures::No);
    }

    #[test]
    fn kitty_gets_pieces_of_which_the_last_says_so() {
        let png = png();
        let shown = String::from_utf8(Pictures::Kitty.show("image/png", &png).unwrap()).unwrap();
        let pieces: Vec<&str> = shown.trim_end().split("\x1b\\").collect();
        assert_eq!(pieces.len(), 3, "{shown:?}");
        assert!(pieces[0].starts_with("\x1b_Ga=T,f=100,q=2,m=1;iVBOR"), "{shown:?}");
        assert!(pieces[1].starts_with("\x1b_Gm=0;"), "{shown:?}");
        let payload = |piece: &str| piece.split_once(';').unwrap().1.to_owned();
        assert_eq!(payload(pieces[0]) + &payload(pieces[1]), png);
        assert_eq!(Pictures::Kitty.show("image/jpeg", &png), None);
    }

    #[test]
    fn iterm_gets_one_sequence() {
        let shown = Pictures::Iterm.show("image/jpeg", "AAAA\n").unwrap();
        let words = "\x1b]1337;File=inline=1;size=3;preserveAspectRatio=1:AAAA\x07\n";
        assert_eq!(String::from_utf8(shown).unwrap(), words);
    }

    #[test]
    fn what_is_no_base64_never_reaches_the_terminal() {
        for wrong in ["AAAA\x1b\\\x1b[2J", "AAAA\x07", "é", ""] {
            assert_eq!(Pictures::Kitty.show("image/png", wrong), None, "{wrong:?}");
            assert_eq!(Pictures::Iterm.show("image/png", wrong), None, "{wrong:?}");
        }
        assert_eq!(Pictures::Iterm.show("image/png", &"A".repeat(LARGEST + 1)), None);
        assert_eq!(Pictures::No.show("image/png", &png()), None);
    }

    #[test]
    fn the_size_is_told_by_the_head() {
        assert_eq!(dimensions(&png()), Some((640, 480)));
        assert_eq!(size(&png()), 6024);
        assert_eq!(dimensions("AAAA"), None);
        assert_eq!(dimensions("\x1b[2J"), None);
    }
}
