//! What programs in the sandbox switched on in the caller's terminal.
//!
//! Programs switch a terminal into other modes by what they write: another screen, reports of the
//! mouse, a hidden cursor. They switch back before they leave; those that are killed do not. So
//! what passes is looked at, without being changed, and what is left on at the end is undone.
//! Undoing blindly will not do: leaving a second screen that was never entered moves the cursor.
//!
//! What is looked at is hostile. It decides over nothing but which of a fixed set of sequences is
//! written at the end, and takes no memory however long it is.

/// Modes that are off in a terminal at rest, in the order in which they are undone. The second
/// screen is last, because its programs belong to it.
const USUALLY_OFF: &[u16] = &[
    1, // the arrow keys as applications want them
    5, // dark on light, or the other way round
    6, // positions counted from the region that scrolls
    9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016, // the mouse, in its dialects
    1004, // the focus
    2004, // what is pasted is marked
    2026, // pictures shown when whole
    2031, // light or dark
    2048, // sizes as text
    47, 1047, 1049, // the second screen
];

/// Modes that are on in a terminal at rest.
const USUALLY_ON: &[u16] = &[
    7,  // long lines go on in the next
    25, // the cursor
];

/// More numbers than this in one sequence are not looked at.
const MOST_NUMBERS: usize = 16;

/// What is on, as far as has been seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Modes {
    unusual: Unusual,
    sequence: Sequence,
}

/// What differs from a terminal at rest.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct Unusual {
    /// Bits in the order of the tables.
    on: u32,
    off: u32,
    coloured: bool,
    line_drawing: bool,
    keypad: bool,
    region: bool,
    /// Keys with Control and the like are reported in full, by xterm's way.
    full_keys: bool,
    /// The same by another: how often it was asked for.
    key_reports: u8,
}

/// A sequence on its way, which may come in several pieces.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Sequence {
    at: At,
    /// What stands before the numbers.
    mark: Option<u8>,
    numbers: [u16; MOST_NUMBERS],
    last: usize,
    /// Something is in it that we do not know.
    foreign: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Text,
    Escape,
    Letters,
    Numbers,
}

impl Modes {
    /// Looks at what is shown.
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.sequence.at == At::Text {
                let Some(escape) = bytes.iter().position(|byte| *byte == 0x1b) else { return };
                bytes = &bytes[escape + 1..];
                self.sequence.at = At::Escape;
            } else {
                self.step(*first);
                bytes = rest;
            }
        }
    }

    /// What to write for a terminal at rest; nothing if it is.
    pub(super) fn undo(&self) -> Vec<u8> {
        self.unusual.undo()
    }

    fn step(&mut self, byte: u8) {
        let sequence = &mut self.sequence;
        match (sequence.at, byte) {
            // Given up half way, for another.
            (_, 0x1b) => *sequence = Sequence { at: At::Escape, ..Sequence::default() },
            (At::Escape, b'[') => sequence.at = At::Numbers,
            (At::Escape, b'(') => sequence.at = At::Letters,
            (At::Escape, _) => {
                match byte {
                    b'=' => self.unusual.keypad = true,
                    b'>' => self.unusual.keypad = false,
                    b'c' => self.unusual = Unusual::default(),
                    _ => {}
                }
                self.sequence = Sequence::default();
            }
            (At::Letters, _) => {
                self.unusual.line_drawing = byte == b'0';
                self.sequence = Sequence::default();
            }
            (At::Numbers, b'0'..=b'9') => {
                let number = &mut sequence.numbers[sequence.last];
                *number = number.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
            }
            (At::Numbers, b';' | b':') => {
                sequence.last = (sequence.last + 1).min(MOST_NUMBERS - 1);
                sequence.numbers[sequence.last] = 0;
            }
            (At::Numbers, b'<'..=b'?') => sequence.mark = Some(byte),
            (At::Numbers, 0x40..=0x7e) => {
                if !sequence.foreign {
                    let numbers = &sequence.numbers[..=sequence.last];
                    self.unusual.apply(sequence.mark, numbers, byte);
                }
                self.sequence = Sequence::default();
            }
            (At::Numbers, 0x20..=0x2f) => sequence.foreign = true,
            // Such as the end of a line, which a terminal obeys in between.
            (At::Numbers | At::Text, _) => {}
        }
    }
}

impl Unusual {
    fn apply(&mut self, mark: Option<u8>, numbers: &[u16], last: u8) {
        match (mark, last) {
            (Some(b'?'), b'h' | b'l') => {
                let set = last == b'h';
                for number in numbers {
                    mark_if(&mut self.on, USUALLY_OFF, *number, set);
                    mark_if(&mut self.off, USUALLY_ON, *number, !set);
                }
            }
            (None, b'm') => self.coloured = numbers != [0],
            (None, b'r') => self.region = numbers != [0],
            (Some(b'>'), b'm') if numbers[0] == 4 => {
                self.full_keys = numbers.get(1).is_some_and(|level| *level != 0);
            }
            (Some(b'>'), b'u') => self.key_reports = self.key_reports.saturating_add(1),
            (Some(b'<'), b'u') => {
                let times = u8::try_from(numbers[0].max(1)).unwrap_or(u8::MAX);
                self.key_reports = self.key_reports.saturating_sub(times);
            }
            (Some(b'='), b'u') => self.key_reports = self.key_reports.max(1),
            _ => {}
        }
    }

    fn undo(&self) -> Vec<u8> {
        let mut undo = String::new();
        let mut add = |needed: bool, sequence: &str| {
            if needed {
                undo.push_str(sequence);
            }
        };
        add(self.coloured, "\x1b[0m");
        add(self.line_drawing, "\x1b(B");
        add(self.keypad, "\x1b>");
        add(self.full_keys, "\x1b[>4;0m");
        add(self.key_reports > 0, &format!("\x1b[<{}u\x1b[=0u", self.key_reports));
        // The region's end moves the cursor, which is brought back.
        add(self.region, "\x1b7\x1b[r\x1b8");
        for number in marked(self.off, USUALLY_ON) {
            add(true, &format!("\x1b[?{number}h"));
        }
        for number in marked(self.on, USUALLY_OFF) {
            add(true, &format!("\x1b[?{number}l"));
        }
        undo.into_bytes()
    }
}

fn mark_if(marks: &mut u32, table: &[u16], number: u16, set: bool) {
    if let Some(place) = table.iter().position(|known| *known == number) {
        *marks = *marks & !(1 << place) | u32::from(set) << place;
    }
}

fn marked(marks: u32, table: &[u16]) -> impl Iterator<Item = u16> + '_ {
    table.iter().enumerate().filter(move |(place, _)| marks >> place & 1 == 1).map(|(_, n)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(seen: &[u8]) -> String {
        let mut whole = Modes::default();
        whole.see(seen);
        let mut in_pieces = Modes::default();
        for byte in seen {
            in_pieces.see(&[*byte]);
        }
        assert_eq!(whole, in_pieces, "{seen:?}");
        String::from_utf8(whole.undo()).unwrap()
    }

    #[test]
    fn what_was_switched_back_needs_no_undoing() {
        for seen in [
            &b""[..],
            b"plain text, \xc3\xa4 and \xe6\xbc\xa2",
            b"\x1b[1;31mred\x1b[0m and \x1b[32mgreen\x1b[m",
            b"\x1b[?1049h\x1b[?1000;1006hvim\x1b[?1000;1006l\x1b[?1049l",
            b"\x1b[?25l\x1b[?25h",
            b"\x1b[?2004h$ \x1b[?2004l",
            b"\x1b=\x1b>",
            b"\x1b[2;10r\x1b[r",
            b"\x1b(0lqqk\x1b(B",
            b"\x1b[>1u\x1b[<u",
            b"\x1b[>4;2m\x1b[>4m",
            b"\x1b[?1049h\x1b[31m\x1b[?25l\x1bc",
        ] {
            assert_eq!(undo(seen), "", "{seen:?}");
        }
    }

    #[test]
    fn what_was_left_on_is_undone_and_the_screen_left_last() {
        let seen = b"\x1b[?1049h\x1b[?1002;1006;2004h\x1b[?25l\x1b=\x1b[3;20r\x1b[>4;2m\x1b[7mx";
        assert_eq!(
            undo(seen),
            "\x1b[0m\x1b>\x1b[>4;0m\x1b7\x1b[r\x1b8\x1b[?25h\
             \x1b[?1002l\x1b[?1006l\x1b[?2004l\x1b[?1049l"
        );
        assert_eq!(undo(b"\x1b[>1u\x1b[>3u"), "\x1b[<2u\x1b[=0u");
    }

    #[test]
    fn what_only_looks_like_a_mode_is_none() {
        for seen in [
            // Without the mark, with an unknown number, with something between.
            &b"\x1b[1049h"[..],
            b"\x1b[?4242h",
            b"\x1b[?1049$h",
            b"\x1b[?1049\x1b[K",
            b"[?1049h",
            // Unfinished.
            b"\x1b[?1049",
        ] {
            assert_eq!(undo(seen), "", "{seen:?}");
        }
    }

    #[test]
    fn endless_sequences_neither_fail_nor_hide_what_follows() {
        let mut seen = b"\x1b[?".to_vec();
        seen.extend(b"9;".repeat(100_000));
        seen.extend(b"9".repeat(100_000));
        seen.extend(b"h\x1b[?25l");
        assert_eq!(undo(&seen), "\x1b[?25h\x1b[?9l");
        assert!(USUALLY_OFF.len() <= 32 && USUALLY_ON.len() <= 32);
    }
}
