//! Bash: quotes, words that open something, here-documents, and lines that go on.

/// What opens something where a command begins, and what closes it.
const PAIRS: [(&str, &str); 7] = [
    ("if", "fi"),
    ("for", "done"),
    ("while", "done"),
    ("until", "done"),
    ("select", "done"),
    ("case", "esac"),
    ("{", "}"),
];

/// After these words another command begins.
const BEFORE_COMMANDS: [&str; 7] = ["then", "do", "else", "elif", "!", "time", "{"];

pub(super) fn is_incomplete(text: &str) -> bool {
    let mut scan = Scan { at_command: true, ..Scan::default() };
    let characters: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        let next = characters.get(at + 1).copied();
        match character {
            '\\' if at + 1 == characters.len() => return true,
            '\\' => {
                scan.letter('\\');
                at += 1;
            }
            '\'' | '"' | '`' => match end_of_quote(&characters, at) {
                Some(end) => {
                    scan.letter(character);
                    at = end;
                }
                None => return true,
            },
            '#' if scan.word.is_empty() => {
                at = characters[at..]
                    .iter()
                    .position(|c| *c == '\n')
                    .map_or(characters.len(), |n| at + n);
                continue;
            }
            '\n' => {
                scan.end_word();
                scan.at_command = true;
                match after_documents(&characters, at + 1, &std::mem::take(&mut scan.documents)) {
                    Some(begin) => at = begin - 1,
                    None => return true,
                }
            }
            '<' if next == Some('<') && characters.get(at + 2) == Some(&'<') => {
                scan.end_word();
                at += 2;
            }
            '<' if next == Some('<') => {
                scan.end_word();
                at = scan.document(&characters, at + 2);
                continue;
            }
            ' ' | '\t' | ';' | '|' | '&' | '(' | ')' | '<' | '>' => scan.separator(character),
            _ => scan.letter(character),
        }
        at += 1;
    }
    let last_operator = text.trim_end_matches([' ', '\t']);
    scan.end_word();
    !scan.documents.is_empty()
        || !scan.open.is_empty()
        || last_operator.ends_with('|')
        || last_operator.ends_with("&&")
}

#[derive(Debug, Default)]
struct Scan {
    word: String,
    /// Whether the word stands where a command begins.
    at_command: bool,
    /// What has to be closed, the innermost last.
    open: Vec<&'static str>,
    /// The last lines of here-documents that begin with the next line, and whether tabs before
    /// them count.
    documents: Vec<(String, bool)>,
}

impl Scan {
    fn letter(&mut self, character: char) {
        self.word.push(character);
    }

    fn separator(&mut self, character: char) {
        self.end_word();
        match character {
            '(' => self.open.push(")"),
            // In a `case` a pattern is closed that nobody opened.
            ')' if self.open.last() == Some(&")") => drop(self.open.pop()),
            _ => {}
        }
        if !matches!(character, ' ' | '\t' | '<' | '>') {
            self.at_command = true;
        }
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        if !self.at_command {
            return;
        }
        self.at_command = BEFORE_COMMANDS.contains(&word.as_str());
        if let Some((_, closer)) = PAIRS.iter().find(|(opener, _)| *opener == word) {
            self.open.push(closer);
            self.at_command |= ["if", "while", "until"].contains(&word.as_str());
        } else if self.open.last() == Some(&word.as_str()) {
            self.open.pop();
            self.at_command = true;
        }
    }

    /// Reads how a here-document ends, and returns the place after it.
    fn document(&mut self, characters: &[char], mut at: usize) -> usize {
        let with_tabs = characters.get(at) == Some(&'-');
        at += usize::from(with_tabs);
        while matches!(characters.get(at), Some(' ' | '\t')) {
            at += 1;
        }
        let rest = &characters[at.min(characters.len())..];
        let length =
            rest.iter().take_while(|c| !c.is_whitespace() && !";|&()<>".contains(**c)).count();
        let end: String = rest[..length].iter().filter(|c| !"'\"\\".contains(**c)).collect();
        // A number is shifted, and no document.
        if end.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            self.documents.push((end, with_tabs));
        }
        at + length
    }
}

/// The place after these here-documents, whose first line begins here.
fn after_documents(characters: &[char], begin: usize, ends: &[(String, bool)]) -> Option<usize> {
    let mut at = begin;
    for (end, with_tabs) in ends {
        loop {
            if at >= characters.len() {
                return None;
            }
            let length = characters[at..].iter().take_while(|c| **c != '\n').count();
            let line: String = characters[at..at + length].iter().collect();
            at += length + 1;
            let line = if *with_tabs { line.trim_start_matches('\t') } else { &line };
            if line == end {
                break;
            }
        }
    }
    Some(at.min(characters.len() + 1))
}

fn end_of_quote(characters: &[char], begin: usize) -> Option<usize> {
    let quote = characters[begin];
    let mut at = begin + 1;
    while at < characters.len() {
        match characters[at] {
            '\\' if quote != '\'' => at += 1,
            character if character == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_incomplete;

    #[test]
    fn what_is_open_goes_on() {
        for text in [
            "if true; then",
            "for x in a b; do\n  echo $x",
            "while read line",
            "f() {",
            "case $x in\n a) echo;;",
            "echo 'one\ntwo",
            "echo \"$(date)",
            "echo \\",
            "ls |",
            "true &&",
            "cat <<END\none",
            "cat <<-'END'\none\n",
            "(cd /",
            "if true; then for x in 1; do echo; done",
        ] {
            assert!(is_incomplete(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_closed_runs() {
        for text in [
            "echo if then do case {",
            "if true; then echo; fi",
            "for x in a b; do echo $x; done",
            "while true; do break; done | cat",
            "f() { echo; }",
            "case $x in a) echo;; *) ls;; esac",
            "echo 'a' \"b\"",
            "ls # (",
            "sleep 1 &",
            "cat <<END\none\nEND",
            "cat <<END\none\nEND\n",
            "cat <<-END\n\tone\n\tEND",
            "cat <<< word",
            "echo $((1<<2))",
            "(cd /; ls)",
            "echo it\\'s",
            "echo ${x}",
            "echo \"$(date)\"",
        ] {
            assert!(!is_incomplete(text), "{text:?}");
        }
    }
}
