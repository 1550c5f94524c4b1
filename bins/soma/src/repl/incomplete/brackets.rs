//! Brackets that are open.

/// Brackets that are open, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Brackets {
    open: Vec<char>,
    /// One was closed that was not open: no more input can mend that.
    wrong: bool,
}

impl Brackets {
    /// Looks at a character of code.
    pub(super) fn see(&mut self, character: char) {
        let opener = match character {
            '(' | '[' | '{' => return self.open.push(character),
            ')' => '(',
            ']' => '[',
            '}' => '{',
            _ => return,
        };
        if self.open.pop() != Some(opener) {
            self.wrong = true;
        }
    }

    /// As many are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether they have to be closed still.
    pub(super) fn are_open(&self) -> bool {
        !self.wrong && !self.open.is_empty()
    }

    /// Whether more input cannot mend them.
    pub(super) fn are_wrong(&self) -> bool {
        self.wrong
    }
}
