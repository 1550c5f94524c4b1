//! The way out for when nothing answers: Enter, `~` and `.`, typed one after the other.
//!
//! No key is ever held back. Only a `~` and a `.` that came alone count, as from a keyboard; what
//! is pasted comes in larger pieces and can hold anything.

/// How far somebody is on the way out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum WayOut {
    /// A line begins.
    #[default]
    LineStart,
    /// It began with a `~`.
    Tilde,
    /// Somewhere in a line.
    Elsewhere,
}

impl WayOut {
    /// Takes in what was typed, and says whether that was the way out.
    pub(super) fn typed(&mut self, piece: &[u8]) -> bool {
        let leaves = *self == Self::Tilde && piece == b".";
        *self = match (*self, piece) {
            (Self::LineStart, b"~") => Self::Tilde,
            (_, [.., b'\r' | b'\n']) => Self::LineStart,
            _ => Self::Elsewhere,
        };
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(pieces: &[&str]) -> bool {
        let mut way_out = WayOut::default();
        pieces.iter().any(|piece| way_out.typed(piece.as_bytes()))
    }

    #[test]
    fn only_the_three_keys_in_a_row_lead_out() {
        assert!(leaves(&["~", "."]));
        assert!(leaves(&["l", "s", "\r", "~", "."]));
        assert!(leaves(&["~", "/", "\r", "~", "."]));
        for inside in [
            &["l", "~", "."][..],
            &["~", "~", "."],
            &["~", "/", "."],
            &["."],
            &["\r", "."],
            &["\r~."],
            &["\r", "~."],
            &["\r~", "."],
        ] {
            assert!(!leaves(inside), "{inside:?}");
        }
    }
}
