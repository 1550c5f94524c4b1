//! R: brackets, strings over several lines, and operators that want a right side.

use super::brackets::Brackets;

pub(super) fn is_incomplete(text: &str) -> bool {
    let characters: Vec<char> = text.chars().collect();
    let mut brackets = Brackets::default();
    // What the code ends with, without comments and spaces.
    let mut end = String::new();
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        match character {
            '#' => {
                at = characters[at..]
                    .iter()
                    .position(|c| *c == '\n')
                    .map_or(characters.len(), |n| at + n);
                continue;
            }
            'r' | 'R' if is_raw(&characters, at) => match end_of_raw(&characters, at) {
                Some(closed) => at = closed,
                None => return true,
            },
            '\'' | '"' | '`' => match end_of_string(&characters, at) {
                Some(closed) => at = closed,
                None => return true,
            },
            _ => brackets.see(character),
        }
        if !character.is_whitespace() {
            end.push(character);
        }
        at += 1;
    }
    if brackets.are_wrong() {
        return false;
    }
    brackets.are_open() || wants_more(&end)
}

/// Whether the last operator has no right side.
fn wants_more(end: &str) -> bool {
    let is_custom = end.ends_with('%') && end.matches('%').count().is_multiple_of(2);
    is_custom || end.ends_with(['+', '-', '*', '/', '^', '~', '&', '|', '=', '<', '>', ',', ':'])
}

/// Whether a raw string begins here: `r"(`, also with dashes and other brackets.
fn is_raw(characters: &[char], at: usize) -> bool {
    let is_word =
        at > 0 && (characters[at - 1].is_alphanumeric() || "._".contains(characters[at - 1]));
    !is_word
        && matches!(characters.get(at + 1), Some('"' | '\''))
        && raw_closer(characters, at).is_some()
}

/// What closes a raw string that begins here.
fn raw_closer(characters: &[char], at: usize) -> Option<String> {
    let quote = characters.get(at + 1)?;
    let dashes = characters[at + 2..].iter().take_while(|c| **c == '-').count();
    let closer = match characters.get(at + 2 + dashes)? {
        '(' => ')',
        '[' => ']',
        '{' => '}',
        _ => return None,
    };
    Some(format!("{closer}{}{quote}", "-".repeat(dashes)))
}

fn end_of_raw(characters: &[char], at: usize) -> Option<usize> {
    let closer: Vec<char> = raw_closer(characters, at)?.chars().collect();
    let begin = at + 2;
    let found = (begin..characters.len()).find(|at| characters[*at..].starts_with(&closer))?;
    Some(found + closer.len() - 1)
}

fn end_of_string(characters: &[char], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    while at < characters.len() {
        match characters[at] {
            '\\' => at += 1,
            character if character == characters[begin] => return Some(at),
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
            "f <- function(x) {",
            "c(1, 2",
            "x <- 'one\ntwo",
            "ggplot(d) +",
            "d |>",
            "d %>%",
            "x <-",
            "x <- # later",
            "r\"(one",
        ] {
            assert!(is_incomplete(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_closed_runs() {
        for text in [
            "1 + 1",
            "f <- function(x) { x }",
            "'('",
            "# (",
            "x <- r\"(a \" ()\"",
            "5 %% 2",
            "f)",
            "`a b` <- 1",
            "bar\"x\"",
        ] {
            assert!(!is_incomplete(text), "{text:?}");
        }
    }
}
