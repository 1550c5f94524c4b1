//! What a terminal shows now, so that it can be drawn for somebody who comes later.
//!
//! All output of a process with a terminal is fed to a [`Screen`], which obeys it as a terminal
//! would: text, colours, the cursor, the modes. [`Screen::redraw`] writes the sequences that
//! bring another terminal to the same state. What is above the screen is not kept, nor is the
//! title.
//!
//! Output is hostile: nothing in here indexes, and everything is bounded by the size of the
//! screen, which is itself bounded ([`MOST_CELLS`]). Libraries that do more were tried and
//! panic on some output, which would end the sandbox.
//!
//! Start at [`Screen::feed`]; what each sequence does is in [`perform`].

mod cell;
mod grid;
mod perform;
mod redraw;

use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

use super::terminal::Size;
use cell::{Cell, Part, Style};
use grid::Grid;

/// The largest screen that is followed. A larger terminal works, but is not redrawn: a program
/// that does nothing but erase it would keep us busy.
const MOST_CELLS: usize = 32 << 10;

/// The longest title or the like that is taken in before it is passed over.
const LONGEST_COMMAND: usize = 64;

/// The state of a terminal.
pub(super) struct Screen {
    parser: vte::Parser<LONGEST_COMMAND>,
    state: State,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let State { columns, rows, .. } = &self.state;
        write!(formatter, "Screen({columns}x{rows})")
    }
}

/// All but the parser, which drives it.
#[derive(Debug)]
struct State {
    columns: usize,
    rows: usize,
    grid: Grid,
    /// The usual screen, while the alternate one is shown.
    usual: Option<Grid>,
    /// The alternate screen, when it was shown before: kept, so that switching is little work.
    spare: Option<Grid>,
    cursor: Cursor,
    /// What a "save cursor" saved.
    saved: Cursor,
    /// Where the cursor was on the usual screen.
    usual_cursor: Cursor,
    /// The rows that scroll.
    region: Range<usize>,
    modes: Modes,
    /// The last character written, which can be asked for again.
    last: char,
}

/// Where and how the next character is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cursor {
    row: usize,
    column: usize,
    /// The last column was written, and the next character goes to the next row.
    wraps: bool,
    /// Rows are counted from the top of the region.
    origin: bool,
    style: Style,
    /// Which of the two character sets is in use, and which of them draw lines.
    second_set: bool,
    lines: [bool; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in a terminal")]
struct Modes {
    wrap: bool,
    insert: bool,
    hide_cursor: bool,
    cursor_keys: bool,
    keypad: bool,
    bracketed_paste: bool,
    focus: bool,
    /// The number of the mode in which the mouse is told, or zero.
    mouse: u16,
    /// The number of the mode that says how, or zero.
    mouse_encoding: u16,
    cursor_style: u16,
}

impl Default for Modes {
    fn default() -> Self {
        Self {
            wrap: true,
            insert: false,
            hide_cursor: false,
            cursor_keys: false,
            keypad: false,
            bracketed_paste: false,
            focus: false,
            mouse: 0,
            mouse_encoding: 0,
            cursor_style: 0,
        }
    }
}

impl Screen {
    /// An empty screen; none when it would be too large.
    pub(super) fn new(size: Size) -> Option<Self> {
        (cells(size) <= MOST_CELLS).then(|| Self {
            parser: vte::Parser::new_with_size(),
            state: State::new(size.columns.into(), size.rows.into()),
        })
    }

    /// How much memory a screen takes, both of its sides included.
    pub(super) fn weight(size: Size) -> usize {
        2 * cells(size) * size_of::<Cell>()
    }

    /// Obeys what was written to the terminal.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.state, bytes);
    }

    /// Changes the size; false when it is too large to be followed.
    pub(super) fn resize(&mut self, size: Size) -> bool {
        let fits = cells(size) <= MOST_CELLS;
        if fits {
            self.state.resize(size.columns.into(), size.rows.into());
        }
        fits
    }

    /// What brings a terminal of this size to the same state.
    pub(super) fn redraw(&self) -> String {
        redraw::redraw(&self.state)
    }
}

fn cells(size: Size) -> usize {
    usize::from(size.columns) * usize::from(size.rows)
}

impl State {
    fn new(columns: usize, rows: usize) -> Self {
        Self {
            columns,
            rows,
            grid: Grid::new(columns, rows),
            usual: None,
            spare: None,
            cursor: Cursor::default(),
            saved: Cursor::default(),
            usual_cursor: Cursor::default(),
            region: 0..rows,
            modes: Modes::default(),
            last: '\0',
        }
    }

    fn resize(&mut self, columns: usize, rows: usize) {
        let gone = self.grid.resize(columns, rows, self.cursor.row);
        self.cursor.row -= gone.min(self.cursor.row);
        if let Some(usual) = &mut self.usual {
            let gone = usual.resize(columns, rows, self.usual_cursor.row);
            self.usual_cursor.row -= gone.min(self.usual_cursor.row);
        }
        self.spare = None;
        (self.columns, self.rows) = (columns, rows);
        self.region = 0..rows;
        for cursor in [&mut self.cursor, &mut self.saved, &mut self.usual_cursor] {
            cursor.row = cursor.row.min(rows.saturating_sub(1));
            cursor.column = cursor.column.min(columns.saturating_sub(1));
            cursor.wraps = false;
        }
    }

    fn write(&mut self, character: char) {
        let [first, second] = self.cursor.lines;
        let lines = if self.cursor.second_set { second } else { first };
        let character = if lines { line_drawing(character) } else { character };
        let width = match character {
            ' '..='~' => Some(1),
            _ => character.width().map(|width| width.min(2)),
        };
        let Some(width) = width else { return };
        let Cursor { row, column, wraps, .. } = self.cursor;
        if width == 0 {
            let before = if wraps { column } else { column.wrapping_sub(1) };
            self.grid.mark(row, before, character);
            return;
        }
        if width > self.columns {
            return;
        }
        if self.modes.wrap && (wraps || column + width > self.columns) {
            self.cursor.column = 0;
            self.line_feed();
        }
        // Without wrapping, the last place is written again and again.
        self.cursor.column = self.cursor.column.min(self.columns - width);
        self.cursor.wraps = false;
        let Cursor { row, column, style, .. } = self.cursor;
        if self.modes.insert {
            self.grid.insert(row, column, width, style);
        }
        let part = if width == 2 { Part::First } else { Part::Whole };
        self.grid.put(row, column, Cell { character, mark: '\0', style, part });
        self.last = character;
        if column + width < self.columns {
            self.cursor.column += width;
        } else {
            self.cursor.column = self.columns - 1;
            self.cursor.wraps = self.modes.wrap;
        }
    }

    fn line_feed(&mut self) {
        self.cursor.wraps = false;
        if self.cursor.row + 1 == self.region.end {
            self.grid.scroll_up(self.region.clone(), 1, self.cursor.style);
        } else if self.cursor.row + 1 < self.rows {
            self.cursor.row += 1;
        }
    }

    fn reverse_line_feed(&mut self) {
        self.cursor.wraps = false;
        if self.cursor.row == self.region.start {
            self.grid.scroll_down(self.region.clone(), 1, self.cursor.style);
        } else {
            self.cursor.row = self.cursor.row.saturating_sub(1);
        }
    }

    /// Moves the cursor to a row and column that count from zero.
    fn go(&mut self, row: usize, column: usize) {
        let rows = if self.cursor.origin { self.region.clone() } else { 0..self.rows };
        let last = rows.end.saturating_sub(1);
        self.cursor.row = row.saturating_add(rows.start).min(last);
        self.cursor.column = column.min(self.columns.saturating_sub(1));
        self.cursor.wraps = false;
    }

    /// Moves the cursor up or down, and not out of the region when it is in it.
    fn go_vertically(&mut self, by: isize) {
        let row = self.cursor.row;
        let top = if row >= self.region.start { self.region.start } else { 0 };
        let end = if row < self.region.end { self.region.end } else { self.rows };
        self.cursor.row = row.saturating_add_signed(by).clamp(top, end.saturating_sub(1).max(top));
        self.cursor.wraps = false;
    }

    /// Shows the other side of the screen.
    fn show_alternate(&mut self, alternate: bool) {
        if alternate && self.usual.is_none() {
            let spare = self.spare.take();
            let mut other = spare.unwrap_or_else(|| Grid::new(self.columns, self.rows));
            other.erase_rows(0..self.rows, Style::default());
            self.usual = Some(std::mem::replace(&mut self.grid, other));
            self.usual_cursor = self.cursor;
        } else if !alternate && let Some(usual) = self.usual.take() {
            self.spare = Some(std::mem::replace(&mut self.grid, usual));
        }
        self.cursor.wraps = false;
    }

    fn restore_cursor(&mut self, saved: Cursor) {
        self.cursor = saved;
        self.cursor.row = saved.row.min(self.rows.saturating_sub(1));
        self.cursor.column = saved.column.min(self.columns.saturating_sub(1));
        // Wrapping may have been switched off since.
        self.cursor.wraps &= self.modes.wrap;
    }
}

/// The set of characters with which old programs draw frames.
fn line_drawing(character: char) -> char {
    const DRAWN: &str = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
    let index = u32::from(character).checked_sub(u32::from('`'));
    let drawn = index.and_then(|index| DRAWN.chars().nth(usize::try_from(index).ok()?));
    drawn.unwrap_or(character)
}

#[cfg(test)]
mod tests;
