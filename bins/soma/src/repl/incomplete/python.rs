//! Python: brackets, triple quotes, lines that go on, and blocks, which an empty line ends.

use super::brackets::Brackets;

pub(super) fn is_incomplete(text: &str) -> bool {
    let ends_empty = text.rsplit('\n').next().is_none_or(|line| line.trim().is_empty());
    // The magic of a whole cell goes on until an empty line.
    if text.starts_with("%%") {
        return !ends_empty;
    }
    let mut scan = Scan::default();
    for line in text.split('\n') {
        scan.line(line);
    }
    if scan.triple.is_some() || scan.brackets.are_open() || scan.goes_on {
        return true;
    }
    scan.has_block && !scan.brackets.are_wrong() && !ends_empty
}

#[derive(Debug, Default)]
struct Scan {
    brackets: Brackets,
    /// The quote of a string over several lines that is open.
    triple: Option<char>,
    /// The last line ends with a backslash.
    goes_on: bool,
    /// There is a block, or a decorator that needs one.
    has_block: bool,
}

impl Scan {
    fn line(&mut self, line: &str) {
        let begins = self.triple.is_none() && self.brackets.depth() == 0 && !self.goes_on;
        self.goes_on = false;
        let trimmed = line.trim_start();
        if begins && trimmed.starts_with(['!', '%', '?']) {
            // A line of the shell's, or a magic.
            return;
        }
        if begins && trimmed.starts_with('@') {
            self.has_block = true;
        }
        let characters: Vec<char> = line.chars().collect();
        let mut last = None;
        let mut at = 0;
        while at < characters.len() {
            let character = characters[at];
            let is_triple = |quote: char| characters[at..].starts_with(&[quote, quote, quote]);
            if let Some(quote) = self.triple {
                at += match character {
                    '\\' => 2,
                    _ if is_triple(quote) => {
                        self.triple = None;
                        last = Some(quote);
                        3
                    }
                    _ => 1,
                };
                continue;
            }
            match character {
                '#' => break,
                '\\' if at + 1 == characters.len() => self.goes_on = true,
                '\'' | '"' if is_triple(character) => {
                    self.triple = Some(character);
                    at += 3;
                    continue;
                }
                '\'' | '"' => {
                    let Some(end) = end_of_string(&characters, at) else {
                        // A backslash at the end carries it on; else the interpreter refuses it.
                        self.goes_on = characters.last() == Some(&'\\');
                        return;
                    };
                    at = end;
                }
                _ => self.brackets.see(character),
            }
            if !character.is_whitespace() {
                last = Some(character);
            }
            at += 1;
        }
        if last == Some(':') && self.triple.is_none() && self.brackets.depth() == 0 {
            self.has_block = true;
        }
    }
}

/// Where a string of one line ends, which begins at this place.
fn end_of_string(characters: &[char], begin: usize) -> Option<usize> {
    let quote = characters[begin];
    let mut at = begin + 1;
    while at < characters.len() {
        match characters[at] {
            '\\' => at += 2,
            character if character == quote => return Some(at),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_incomplete;

    #[test]
    fn what_is_open_goes_on() {
        for text in [
            "f(",
            "x = [1,\n 2,",
            "d = {'a': (1",
            "s = '''one\ntwo",
            "s = \"\"\"it's",
            "x = 1 + \\",
            "s = 'carried \\",
            "def f():",
            "def f():\n    return 1",
            "if x:  # why",
            "class A:\n    def f(self):\n        pass",
            "@decorator",
            "@decorator\ndef f(): pass",
            "%%bash\nls",
            "def f():\n\n    return 1",
            "s = r'''\\'''' + (",
        ] {
            assert!(is_incomplete(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_closed_runs() {
        for text in [
            "1 + 1",
            "f()",
            "x = [1,\n 2]",
            "s = '''one\ntwo'''",
            "s = '(' # (",
            "# (",
            "if x: pass",
            "def f():\n    return 1\n",
            "def f():\n    return 1\n    ",
            "x = {'a': 1}",
            "x[1:]",
            "lambda: (0)",
            "s = 'open",
            "f)",
            "def f(:)]",
            "!echo (",
            "%time f(",
            "%%bash\nls\n",
            "s = 'a\\\\'",
            "s = '\\''",
            "x: int = 1",
        ] {
            assert!(!is_incomplete(text), "{text:?}");
        }
    }
}
