//! Patterns of paths, as shells have them.
//!
//! `*` stands for any letters, `?` for one, `[a-z]` and `[!a-z]` for one of a set, `{one,other}`
//! for either, and `**` as a whole part for any number of parts. A backslash takes the meaning of
//! the letter after it away. A dot is a letter like any other.
//!
//! A path is matched part by part as a walk goes down ([`Patterns::step`]), so that a walk does
//! not enter folders in which nothing can match.

use super::error::FileError;

/// The longest pattern, and the most that all patterns are when their braces are written out.
const LONGEST: usize = 4096;
const MOST_TEXT: usize = 64 << 10;

/// The most patterns when their braces are written out.
const MOST_ALTERNATIVES: usize = 1024;

/// Braces in braces.
const DEEPEST: usize = 16;

/// Patterns of which a path has to match one.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    alternatives: Vec<Vec<Part>>,
    text: usize,
}

/// How far each pattern was matched: its number, and the part that comes next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Vec<(u16, u16)>);

impl Places {
    /// Whether nothing below can match any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// `**`
    Parts,
    Name(Vec<Letter>),
}

#[derive(Debug, PartialEq, Eq)]
enum Letter {
    This(char),
    One,
    Any,
    Set { is_negated: bool, ranges: Vec<(char, char)> },
}

impl Patterns {
    /// One pattern, from where the walk begins.
    pub(crate) fn from_top(pattern: &str) -> Result<Self, FileError> {
        let mut patterns = Self::default();
        patterns.add(pattern)?;
        Ok(patterns)
    }

    /// Patterns of which those without a slash are about names at any depth.
    pub(crate) fn anywhere<'a>(all: impl IntoIterator<Item = &'a str>) -> Result<Self, FileError> {
        let mut patterns = Self::default();
        for pattern in all {
            let trimmed = pattern.strip_suffix('/').unwrap_or(pattern);
            match trimmed.strip_prefix('/') {
                Some(from_top) => patterns.add(from_top)?,
                None if trimmed.contains('/') => patterns.add(trimmed)?,
                None => patterns.add(&format!("**/{trimmed}"))?,
            }
        }
        Ok(patterns)
    }

    /// Everything.
    pub(crate) fn everything() -> Self {
        Self { alternatives: vec![vec![Part::Parts]], text: 0 }
    }

    /// Where every path begins.
    pub(crate) fn start(&self) -> Places {
        let mut places = Places::default();
        for number in 0..self.alternatives.len() {
            self.arrive(&mut places, number, 0);
        }
        places
    }

    /// Goes on by one part of a path: whether the path is matched now, and where we are below it.
    pub(crate) fn step(&self, at: &Places, name: &str) -> (bool, Places) {
        let mut next = Places::default();
        let mut is_matched = false;
        for (number, index) in &at.0 {
            let (number, index) = (usize::from(*number), usize::from(*index));
            let Some(parts) = self.alternatives.get(number) else { continue };
            let is_last = index + 1 == parts.len();
            match parts.get(index) {
                Some(Part::Parts) => {
                    is_matched |= is_last;
                    self.arrive(&mut next, number, index);
                }
                Some(Part::Name(letters)) if matches(letters, name) => {
                    is_matched |= is_last;
                    self.arrive(&mut next, number, index + 1);
                }
                _ => {}
            }
        }
        (is_matched, next)
    }

    /// Adds a place, and those that are reached from it by no part at all.
    fn arrive(&self, places: &mut Places, number: usize, mut index: usize) {
        let Some(parts) = self.alternatives.get(number) else { return };
        while index < parts.len() {
            // Neither number reaches its end: both are bounded by the length of a pattern.
            let place = (
                u16::try_from(number).unwrap_or(u16::MAX),
                u16::try_from(index).unwrap_or(u16::MAX),
            );
            if !places.0.contains(&place) {
                places.0.push(place);
            }
            if parts[index] != Part::Parts {
                break;
            }
            index += 1;
        }
    }

    fn add(&mut self, pattern: &str) -> Result<(), FileError> {
        if pattern.is_empty() || pattern.len() > LONGEST {
            return Err(refused(pattern, "a pattern has 1 to 4096 bytes"));
        }
        if pattern.starts_with('/') {
            return Err(refused(
                pattern,
                "it begins at the path that is searched, not at the root",
            ));
        }
        for written_out in expand(pattern)? {
            self.text += written_out.len();
            if self.alternatives.len() >= MOST_ALTERNATIVES || self.text > MOST_TEXT {
                return Err(refused(pattern, "there are too many alternatives"));
            }
            let mut parts = Vec::new();
            // A slash in a set would never match, and ends the part like any other.
            for part in written_out.split('/') {
                match part {
                    "" => {}
                    "." | ".." => return Err(refused(pattern, "'.' and '..' match nothing")),
                    "**" if parts.last() == Some(&Part::Parts) => {}
                    "**" => parts.push(Part::Parts),
                    name => parts.push(Part::Name(letters(pattern, name)?)),
                }
            }
            if parts.is_empty() {
                return Err(refused(pattern, "it is empty"));
            }
            self.alternatives.push(parts);
        }
        Ok(())
    }
}

fn refused(pattern: &str, reason: &str) -> FileError {
    let shown: String = pattern.chars().take(100).collect();
    FileError::invalid(format!("the pattern '{shown}' cannot be used: {reason}"))
}

/// Writes the braces of a pattern out.
fn expand(pattern: &str) -> Result<Vec<String>, FileError> {
    let mut done = Vec::new();
    // What is written out, what is not, and how many braces were.
    let mut open = vec![(pattern.to_owned(), 0)];
    let mut text = 0;
    while let Some((pattern_now, depth)) = open.pop() {
        let Some((before, choices, after)) = first_braces(pattern, &pattern_now)? else {
            done.push(pattern_now);
            continue;
        };
        if depth >= LONGEST {
            return Err(refused(pattern, "it has too many braces"));
        }
        // The last one is taken up first, so that the order is that of the pattern.
        for choice in choices.into_iter().rev() {
            let written_out = format!("{before}{choice}{after}");
            text += written_out.len();
            if text > 8 * MOST_TEXT || open.len() + done.len() > MOST_ALTERNATIVES {
                return Err(refused(pattern, "there are too many alternatives"));
            }
            open.push((written_out, depth + 1));
        }
    }
    Ok(done)
}

/// What is before the first braces, in them, and after them.
type Braces<'a> = (&'a str, Vec<&'a str>, &'a str);

fn first_braces<'a>(whole: &str, pattern: &'a str) -> Result<Option<Braces<'a>>, FileError> {
    let (mut depth, mut begin, mut choice, mut choices) = (0, 0, 0, Vec::new());
    let (mut is_escaped, mut in_set) = (false, false);
    for (at, letter) in pattern.char_indices() {
        if std::mem::take(&mut is_escaped) {
            continue;
        }
        match letter {
            '\\' => is_escaped = true,
            '[' if !in_set => in_set = true,
            ']' => in_set = false,
            _ if in_set => {}
            '{' => {
                depth += 1;
                if depth == 1 {
                    (begin, choice) = (at, at + 1);
                }
                if depth > DEEPEST {
                    return Err(refused(whole, "it has too many braces in braces"));
                }
            }
            ',' if depth == 1 => {
                choices.push(&pattern[choice..at]);
                choice = at + 1;
            }
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    choices.push(&pattern[choice..at]);
                    return Ok(Some((&pattern[..begin], choices, &pattern[at + 1..])));
                }
            }
            _ => {}
        }
    }
    if depth > 0 { Err(refused(whole, "a '{' is not closed")) } else { Ok(None) }
}

fn letters(whole: &str, part: &str) -> Result<Vec<Letter>, FileError> {
    let mut letters = Vec::new();
    let mut rest = part.chars();
    while let Some(letter) = rest.next() {
        letters.push(match letter {
            '*' if letters.last() == Some(&Letter::Any) => continue,
            '*' => Letter::Any,
            '?' => Letter::One,
            '[' => set(&mut rest).ok_or_else(|| refused(whole, "a '[' is not closed"))?,
            '\\' => {
                let taken = rest.next();
                Letter::This(taken.ok_or_else(|| refused(whole, "it ends with a backslash"))?)
            }
            letter => Letter::This(letter),
        });
    }
    Ok(letters)
}

/// Reads a set up to its end. A `]` right at the beginning is one of its letters.
fn set(rest: &mut std::str::Chars<'_>) -> Option<Letter> {
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut is_negated = false;
    if let Some('!' | '^') = rest.clone().next() {
        rest.next();
        is_negated = true;
    }
    loop {
        let first = match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Letter::Set { is_negated, ranges }),
            '\\' => rest.next()?,
            letter => letter,
        };
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *rest = ahead;
                if last == '\\' { rest.next()? } else { last }
            }
            _ => first,
        };
        ranges.push((first, last));
    }
}

/// Whether a name is as the pattern says. Only the last `*` is ever taken back, which is enough.
fn matches(pattern: &[Letter], name: &str) -> bool {
    let (mut rest, mut at) = (name.chars(), 0);
    let mut last_any = None;
    loop {
        let before = rest.clone();
        let letter = rest.next();
        let fits = match (pattern.get(at), letter) {
            (Some(Letter::Any), _) => {
                rest = before;
                at += 1;
                last_any = Some((at, rest.clone()));
                continue;
            }
            (None, None) => return true,
            (_, None) => return false,
            (Some(Letter::This(this)), Some(letter)) => *this == letter,
            (Some(Letter::One), Some(_)) => true,
            (Some(Letter::Set { is_negated, ranges }), Some(letter)) => {
                let is_in = ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter));
                is_in != *is_negated
            }
            (None, Some(_)) => false,
        };
        if fits {
            at += 1;
            continue;
        }
        let Some((after, from)) = &mut last_any else { return false };
        if from.next().is_none() {
            return false;
        }
        (at, rest) = (*after, from.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matched(patterns: &Patterns, path: &str) -> bool {
        let mut at = patterns.start();
        let mut is_matched = false;
        for part in path.split('/') {
            (is_matched, at) = patterns.step(&at, part);
        }
        is_matched
    }

    fn is(pattern: &str, path: &str) -> bool {
        matched(&Patterns::from_top(pattern).unwrap(), path)
    }

    #[test]
    fn letters_stand_for_what_they_do_in_a_shell() {
        for (pattern, path) in [
            ("*.rs", "a.rs"),
            ("*", ".hidden"),
            ("a?c", "aéc"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]a]", "]"),
            ("[a-]", "-"),
            ("[\\]]", "]"),
            ("{a,b}.{x,y}", "b.x"),
            ("{a,{b,c}d}", "cd"),
            ("{a/b,c}/d", "a/b/d"),
            ("a{,b}", "a"),
            ("**", "a/b/c"),
            ("**/x", "x"),
            ("**/x", "a/b/x"),
            ("a/**", "a/b/c"),
            ("a/**/b", "a/b"),
            ("a/**/b", "a/x/y/b"),
            ("\\*", "*"),
            ("*a*b*c*", "xaxbxcx"),
            ("a//b", "a/b"),
        ] {
            assert!(is(pattern, path), "{pattern} and {path}");
        }
        for (pattern, path) in [
            ("*.rs", "a/b.rs"),
            ("a/**", "a"),
            ("a?c", "ac"),
            ("[a-c]x", "dx"),
            ("\\*", "a"),
            ("**/x", "a/x/b"),
            ("*a*b", "bxa"),
            ("a", "a/b"),
        ] {
            assert!(!is(pattern, path), "{pattern} and {path}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (pattern, reason) in [
            ("", "1 to 4096"),
            ("/etc/*", "not at the root"),
            ("a/../b", "match nothing"),
            ("[a", "'[' is not closed"),
            ("{a", "'{' is not closed"),
            ("a\\", "backslash"),
        ] {
            let error = Patterns::from_top(pattern).unwrap_err();
            assert!(error.message.contains(reason), "{pattern}: {error}");
        }
        let many = "{a,b}".repeat(40);
        assert!(Patterns::from_top(&many).unwrap_err().message.contains("too many"));
        let deep = format!("{}{}", "{".repeat(2000), "}".repeat(2000));
        assert!(Patterns::from_top(&deep).is_err());
    }

    #[test]
    fn without_a_slash_it_is_about_names_at_any_depth() {
        let patterns = Patterns::anywhere(["node_modules", "/top", "a/b/", "*.log"]).unwrap();
        for path in ["node_modules", "x/node_modules", "top", "a/b", "x/y/z.log"] {
            assert!(matched(&patterns, path), "{path}");
        }
        for path in ["x/top", "x/a/b", "log"] {
            assert!(!matched(&patterns, path), "{path}");
        }
    }

    #[test]
    fn folders_in_which_nothing_can_match_are_known() {
        let patterns = Patterns::from_top("src/*.rs").unwrap();
        assert!(patterns.step(&patterns.start(), "target").1.is_empty());
        assert!(!patterns.step(&patterns.start(), "src").1.is_empty());
    }

    proptest! {
        #[test]
        fn no_pattern_and_no_name_is_too_much(pattern in ".{0,40}", name in "[^/]{0,40}") {
            if let Ok(patterns) = Patterns::from_top(&pattern) {
                matched(&patterns, &name);
            }
        }

        #[test]
        fn a_name_matches_itself(name in "[a-zA-Z0-9é._-]{1,20}") {
            prop_assume!(name != "." && name != "..");
            prop_assert!(is(&name, &name));
            let around = format!("*{name}*");
            prop_assert!(is(&around, &name));
        }
    }
}
