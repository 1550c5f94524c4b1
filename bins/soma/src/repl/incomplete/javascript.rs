//! JavaScript and TypeScript: brackets, templates and comments over several lines.

use super::brackets::Brackets;

pub(super) fn is_incomplete(text: &str) -> bool {
    let characters: Vec<char> = text.chars().collect();
    let mut brackets = Brackets::default();
    // Of each template that is open: how deep the brackets were when its `${` began.
    let mut templates: Vec<usize> = Vec::new();
    let mut last = None;
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        let next = characters.get(at + 1).copied();
        match character {
            '/' if next == Some('/') => {
                at = find(&characters, at, |rest| rest[0] == '\n').unwrap_or(characters.len());
                continue;
            }
            '/' if next == Some('*') => {
                match find(&characters, at + 2, |rest| rest.starts_with(&['*', '/'])) {
                    Some(end) => at = end + 2,
                    None => return true,
                }
                continue;
            }
            '/' if begins_expression(last) => match end_of_pattern(&characters, at) {
                Some(end) => at = end,
                // The interpreter refuses it.
                None => return false,
            },
            '\'' | '"' => match end_of_string(&characters, at) {
                Line::Closed(end) => at = end,
                Line::GoesOn => return true,
                Line::Broken => return false,
            },
            '`' => match end_of_template(&characters, at + 1) {
                Template::Closed(end) => at = end,
                Template::Code(begin) => {
                    templates.push(brackets.depth());
                    brackets.see('{');
                    at = begin;
                }
                Template::Open => return true,
            },
            '}' => {
                brackets.see('}');
                if templates.last() == Some(&brackets.depth()) {
                    match end_of_template(&characters, at + 1) {
                        Template::Closed(end) => {
                            templates.pop();
                            at = end;
                        }
                        Template::Code(begin) => {
                            brackets.see('{');
                            at = begin;
                        }
                        Template::Open => return true,
                    }
                }
            }
            _ => brackets.see(character),
        }
        if !character.is_whitespace() {
            last = Some(character);
        }
        at += 1;
    }
    brackets.are_open() || text.ends_with('\\')
}

fn find(characters: &[char], from: usize, is_it: impl Fn(&[char]) -> bool) -> Option<usize> {
    (from..characters.len()).find(|at| is_it(&characters[*at..]))
}

/// Whether a `/` after this character begins a pattern, and does not divide.
fn begins_expression(last: Option<char>) -> bool {
    last.is_none_or(|last| "(,=:[!&|?{};+-*%<>~^".contains(last))
}

fn end_of_pattern(characters: &[char], begin: usize) -> Option<usize> {
    let mut in_class = false;
    let mut at = begin + 1;
    while at < characters.len() {
        match characters[at] {
            '\n' => return None,
            '\\' => at += 1,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

enum Line {
    Closed(usize),
    /// A backslash at the end carries it on.
    GoesOn,
    Broken,
}

fn end_of_string(characters: &[char], begin: usize) -> Line {
    let mut at = begin + 1;
    while at < characters.len() {
        match characters[at] {
            '\\' if at + 1 == characters.len() => return Line::GoesOn,
            '\\' => at += 1,
            '\n' => return Line::Broken,
            character if character == characters[begin] => return Line::Closed(at),
            _ => {}
        }
        at += 1;
    }
    Line::Broken
}

enum Template {
    Closed(usize),
    /// Code in it, whose bracket is here.
    Code(usize),
    Open,
}

fn end_of_template(characters: &[char], begin: usize) -> Template {
    let mut at = begin;
    while at < characters.len() {
        match characters[at] {
            '\\' => at += 1,
            '`' => return Template::Closed(at),
            '$' if characters.get(at + 1) == Some(&'{') => return Template::Code(at + 1),
            _ => {}
        }
        at += 1;
    }
    Template::Open
}

#[cfg(test)]
mod tests {
    use super::is_incomplete;

    #[test]
    fn what_is_open_goes_on() {
        for text in [
            "function f() {",
            "[1, 2,",
            "`one\ntwo",
            "`one ${f({a: 1}",
            "`one ${1} two",
            "/* comment",
            "x = 'carried \\",
            "if (x) { y('}'); // }",
        ] {
            assert!(is_incomplete(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_closed_runs() {
        for text in [
            "1 + 1",
            "function f() { return '{' }",
            "`one ${f({a: `x${1}`})} two`",
            "/[(]/.test(x)",
            "a / b / c",
            "x = 'open",
            "x = 'open\ny",
            "f)",
            "// (",
            "/* ( */",
            "const x: Map<string, number> = new Map()",
        ] {
            assert!(!is_incomplete(text), "{text:?}");
        }
    }
}
