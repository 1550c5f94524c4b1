//! One place on a screen: a character and how it looks.

use std::fmt::Write as _;

use vte::Params;

/// One place on a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cell {
    /// Zero where nothing was written.
    pub(super) character: char,
    /// What is drawn on top of it, such as an accent. One is kept; more are rare.
    pub(super) mark: char,
    pub(super) style: Style,
    pub(super) part: Part,
}

/// How much of its character a cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Part {
    #[default]
    Whole,
    /// The first half of a character that takes two cells.
    First,
    /// The second half, which has no character of its own.
    Second,
}

impl Cell {
    /// An empty cell: of what erases, only the background stays.
    pub(super) fn empty(style: Style) -> Self {
        let style = Style { background: style.background, ..Style::default() };
        Self { style, ..Self::default() }
    }
}

/// How characters look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Style {
    foreground: Colour,
    background: Colour,
    /// A bit for each of [`FLAGS`].
    flags: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Colour {
    #[default]
    Usual,
    Numbered(u8),
    Mixed(u8, u8, u8),
}

/// The number that sets each flag: bold, faint, italic, underlined, blinking, inverse, hidden,
/// crossed out.
const FLAGS: [u16; 8] = [1, 2, 3, 4, 5, 7, 8, 9];

impl Style {
    /// Obeys a "select graphic rendition".
    pub(super) fn select(&mut self, parameters: &Params) {
        let mut groups = parameters.iter();
        while let Some(group) = groups.next() {
            match *group {
                [] | [0, ..] => *self = Self::default(),
                [4, 0, ..] | [24, ..] => self.clear(4),
                [22, ..] => {
                    self.clear(1);
                    self.clear(2);
                }
                [21, ..] => self.set(4),
                [number @ 23..=29, ..] => self.clear(number - 20),
                [number @ 30..=37, ..] => self.foreground = numbered(number - 30),
                [number @ 40..=47, ..] => self.background = numbered(number - 40),
                [number @ 90..=97, ..] => self.foreground = numbered(number - 82),
                [number @ 100..=107, ..] => self.background = numbered(number - 92),
                [39, ..] => self.foreground = Colour::Usual,
                [49, ..] => self.background = Colour::Usual,
                [which @ (38 | 48), ref inner @ ..] => {
                    // `38:5:1` is one group, `38;5;1` three.
                    let colour = match *inner {
                        [] => {
                            let mut next =
                                || groups.next().and_then(|group| group.first()).copied();
                            match next() {
                                Some(5) => next().map(numbered),
                                Some(2) => mixed([next(), next(), next()]),
                                _ => None,
                            }
                        }
                        [5, number, ..] => Some(numbered(number)),
                        [2, r, g, b] | [2, _, r, g, b, ..] => mixed([Some(r), Some(g), Some(b)]),
                        _ => None,
                    };
                    match (which, colour) {
                        (38, Some(colour)) => self.foreground = colour,
                        (_, Some(colour)) => self.background = colour,
                        (_, None) => {}
                    }
                }
                [number, ..] => self.set(number),
            }
        }
    }

    fn set(&mut self, number: u16) {
        self.flags |= bit(number);
    }

    fn clear(&mut self, number: u16) {
        self.flags &= !bit(number);
    }

    /// Writes what selects this style, whatever was selected before.
    pub(super) fn write(self, out: &mut String) {
        out.push_str("\x1b[0");
        for number in FLAGS {
            if self.flags & bit(number) != 0 {
                let _ = write!(out, ";{number}");
            }
        }
        for (colour, which) in [(self.foreground, 38), (self.background, 48)] {
            let _ = match colour {
                Colour::Usual => Ok(()),
                // The first sixteen in the short form, which the oldest terminals know.
                Colour::Numbered(number @ 0..=7) => write!(out, ";{}", which - 8 + number),
                Colour::Numbered(number @ 8..=15) => write!(out, ";{}", which + 44 + number),
                Colour::Numbered(number) => write!(out, ";{which};5;{number}"),
                Colour::Mixed(r, g, b) => write!(out, ";{which};2;{r};{g};{b}"),
            };
        }
        out.push('m');
    }
}

fn bit(number: u16) -> u8 {
    FLAGS.iter().position(|flag| *flag == number).map_or(0, |index| 1 << index)
}

fn numbered(number: u16) -> Colour {
    Colour::Numbered(u8::try_from(number).unwrap_or(u8::MAX))
}

fn mixed(parts: [Option<u16>; 3]) -> Option<Colour> {
    let [r, g, b] = parts.map(|part| part.map(|part| u8::try_from(part).unwrap_or(u8::MAX)));
    Some(Colour::Mixed(r?, g?, b?))
}
