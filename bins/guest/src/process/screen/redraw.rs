//! Writes what brings another terminal to the state of a screen.

use std::fmt::Write as _;

use super::cell::{Cell, Part, Style};
use super::grid::Grid;
use super::{Cursor, State};

/// Everything that may be in the way, off: the alternate screen, colours, the region that
/// scrolls, counting from it, inserting, line drawing, the mouse. Then an empty screen.
const RESET: &str = "\x1b[?1049l\x1b[m\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b(B\x1b)B\x0f\
    \x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\
    \x1b[H\x1b[2J";

pub(super) fn redraw(state: &State) -> String {
    let mut out = String::from(RESET);
    if let Some(usual) = &state.usual {
        // Also what comes back when the program leaves the alternate screen.
        draw(usual, &mut out);
        place(&state.usual_cursor, &mut out);
        state.usual_cursor.style.write(&mut out);
        out.push_str("\x1b[?1049h\x1b[m\x1b[H\x1b[2J");
    }
    draw(&state.grid, &mut out);
    let modes = &state.modes;
    if state.region != (0..state.rows) {
        let _ = write!(out, "\x1b[{};{}r", state.region.start + 1, state.region.end);
    }
    switch(&mut out, "?1", modes.cursor_keys);
    out.push_str(if modes.keypad { "\x1b=" } else { "\x1b>" });
    switch(&mut out, "?2004", modes.bracketed_paste);
    switch(&mut out, "?25", !modes.hide_cursor);
    if modes.focus {
        switch(&mut out, "?1004", true);
    }
    for mode in [modes.mouse, modes.mouse_encoding] {
        if mode != 0 {
            let _ = write!(out, "\x1b[?{mode}h");
        }
    }
    let _ = write!(out, "\x1b[{} q", modes.cursor_style);
    draw_cursor(state, &mut out);
    if !modes.wrap {
        switch(&mut out, "?7", false);
    }
    if modes.insert {
        switch(&mut out, "4", true);
    }
    for (set, lines) in ["(", ")"].iter().zip(state.cursor.lines) {
        if lines {
            let _ = write!(out, "\x1b{set}0");
        }
    }
    if state.cursor.second_set {
        out.push('\x0e');
    }
    out
}

fn switch(out: &mut String, mode: &str, on: bool) {
    let _ = write!(out, "\x1b[{mode}{}", if on { 'h' } else { 'l' });
}

fn draw(grid: &Grid, out: &mut String) {
    let mut style = Style::default();
    for (index, row) in grid.rows().iter().enumerate() {
        let length = row.length();
        if length == 0 {
            continue;
        }
        let _ = write!(out, "\x1b[{};1H", index + 1);
        for cell in row.cells().take(length) {
            if cell.part == Part::Second {
                continue;
            }
            if cell.style != style {
                style = cell.style;
                style.write(out);
            }
            write_cell(cell, out);
        }
    }
    if style != Style::default() {
        out.push_str("\x1b[m");
    }
}

fn write_cell(cell: Cell, out: &mut String) {
    out.push(if cell.character == '\0' { ' ' } else { cell.character });
    if cell.mark != '\0' {
        out.push(cell.mark);
    }
}

fn place(cursor: &Cursor, out: &mut String) {
    let _ = write!(out, "\x1b[{};{}H", cursor.row + 1, cursor.column + 1);
}

/// Puts the cursor where it is, with what it writes with.
fn draw_cursor(state: &State, out: &mut String) {
    let cursor = &state.cursor;
    let mut shown = *cursor;
    if cursor.origin {
        switch(out, "?6", true);
        shown.row = cursor.row.saturating_sub(state.region.start);
    }
    if cursor.wraps {
        // Only a character in the last column brings the cursor to where it hangs.
        let last = state.grid.cell(cursor.row, cursor.column).unwrap_or_default();
        if last.part == Part::Second {
            shown.column = cursor.column.saturating_sub(1);
        }
        let last = state.grid.cell(cursor.row, shown.column).unwrap_or_default();
        place(&shown, out);
        last.style.write(out);
        write_cell(last, out);
    } else {
        place(&shown, out);
    }
    cursor.style.write(out);
}
