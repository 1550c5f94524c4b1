//! What each sequence does to the screen. Those that ask the terminal something, or that do not
//! change what it shows, are passed over.

use vte::{Params, Perform};

use super::cell::Style;
use super::{Cursor, Modes, State};

impl Perform for State {
    fn print(&mut self, character: char) {
        self.write(character);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            0x08 => {
                self.cursor.column = self.cursor.column.saturating_sub(1);
                self.cursor.wraps = false;
            }
            b'\t' => self.go_horizontally(self.cursor.column / 8 * 8 + 8),
            0x0a..=0x0c => self.line_feed(),
            b'\r' => self.go_horizontally(0),
            0x0e => self.cursor.second_set = true,
            0x0f => self.cursor.second_set = false,
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], ignore: bool, byte: u8) {
        match (intermediates, byte) {
            _ if ignore => {}
            ([], b'7') => self.saved = self.cursor,
            ([], b'8') => self.restore_cursor(self.saved),
            ([], b'D') => self.line_feed(),
            ([], b'E') => {
                self.cursor.column = 0;
                self.line_feed();
            }
            ([], b'M') => self.reverse_line_feed(),
            ([], b'c') => self.reset(),
            ([], b'=') => self.modes.keypad = true,
            ([], b'>') => self.modes.keypad = false,
            ([b'('], set) => self.cursor.lines[0] = set == b'0',
            ([b')'], set) => self.cursor.lines[1] = set == b'0',
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        match (intermediates, action) {
            _ if ignore => {}
            ([b'?'], 'h' | 'l') => {
                for mode in params.iter().filter_map(|group| group.first()) {
                    self.switch_private(*mode, action == 'h');
                }
            }
            ([], 'h' | 'l') => {
                let inserts = params.iter().any(|group| group == [4]);
                self.modes.insert = if inserts { action == 'h' } else { self.modes.insert };
            }
            ([b'!'], 'p') => self.soft_reset(),
            ([b' '], 'q') => self.modes.cursor_style = number(params, 0, 0).min(6),
            ([], 'm') => self.cursor.style.select(params),
            ([], 'r') => self.set_region(params),
            ([], 's') => self.saved = self.cursor,
            ([], 'u') => self.restore_cursor(self.saved),
            ([], _) => self.move_or_erase(params, action),
            _ => {}
        }
    }
}

impl State {
    fn move_or_erase(&mut self, params: &Params, action: char) {
        let count = usize::from(number(params, 0, 1).max(1));
        let by = isize::from(i16::try_from(count).unwrap_or(i16::MAX));
        let (row, column, style) = (self.cursor.row, self.cursor.column, self.cursor.style);
        match action {
            'A' => self.go_vertically(-by),
            'B' | 'e' => self.go_vertically(by),
            'C' | 'a' => self.go_horizontally(column + count),
            'D' => self.go_horizontally(column.saturating_sub(count)),
            'E' | 'F' => {
                self.go_vertically(if action == 'E' { by } else { -by });
                self.cursor.column = 0;
            }
            'G' | '`' => self.go_horizontally(count - 1),
            'H' | 'f' => self.go(count - 1, usize::from(number(params, 1, 1).max(1)) - 1),
            'd' => self.go(count - 1, column),
            'I' => self.go_horizontally((column / 8 + count) * 8),
            'Z' => self.go_horizontally(column.div_ceil(8).saturating_sub(count) * 8),
            'J' => self.erase_screen(number(params, 0, 0)),
            'K' => match number(params, 0, 0) {
                0 => self.grid.erase(row, column..self.columns, style),
                1 => self.grid.erase(row, 0..column + 1, style),
                2 => self.grid.erase(row, 0..self.columns, style),
                _ => {}
            },
            'X' => self.grid.erase(row, column..column + count, style),
            '@' => self.grid.insert(row, column, count, style),
            'P' => self.grid.delete(row, column, count, style),
            'L' | 'M' if self.region.contains(&row) => {
                if action == 'L' {
                    self.grid.scroll_down(row..self.region.end, count, style);
                } else {
                    self.grid.scroll_up(row..self.region.end, count, style);
                }
                self.go_horizontally(0);
            }
            'S' => self.grid.scroll_up(self.region.clone(), count, style),
            'T' => self.grid.scroll_down(self.region.clone(), count, style),
            // No more than a line: a few bytes shall not be much work.
            'b' if self.last != '\0' => {
                for _ in 0..count.min(self.columns) {
                    self.write(self.last);
                }
            }
            _ => {}
        }
    }

    pub(super) fn go_horizontally(&mut self, column: usize) {
        self.cursor.column = column.min(self.columns.saturating_sub(1));
        self.cursor.wraps = false;
    }

    fn erase_screen(&mut self, which: u16) {
        let (row, column, style) = (self.cursor.row, self.cursor.column, self.cursor.style);
        match which {
            0 => {
                self.grid.erase(row, column..self.columns, style);
                self.grid.erase_rows(row + 1..self.rows, style);
            }
            1 => {
                self.grid.erase_rows(0..row, style);
                self.grid.erase(row, 0..column + 1, style);
            }
            2 => self.grid.erase_rows(0..self.rows, style),
            _ => {}
        }
    }

    fn set_region(&mut self, params: &Params) {
        let top = usize::from(number(params, 0, 1).max(1)) - 1;
        let end = match usize::from(number(params, 1, 0)) {
            0 => self.rows,
            end => end.min(self.rows),
        };
        if top + 1 < end || (top == 0 && end == self.rows) {
            self.region = top..end;
            self.go(0, 0);
        }
    }

    fn switch_private(&mut self, mode: u16, on: bool) {
        match mode {
            1 => self.modes.cursor_keys = on,
            6 => {
                self.cursor.origin = on;
                self.go(0, 0);
            }
            7 => {
                self.modes.wrap = on;
                self.cursor.wraps &= on;
            }
            25 => self.modes.hide_cursor = !on,
            9 | 1000 | 1002 | 1003 => self.modes.mouse = if on { mode } else { 0 },
            1004 => self.modes.focus = on,
            1005 | 1006 | 1015 => self.modes.mouse_encoding = if on { mode } else { 0 },
            47 | 1047 => self.show_alternate(on),
            1048 if on => self.saved = self.cursor,
            1048 => self.restore_cursor(self.saved),
            1049 => {
                let leaves = !on && self.usual.is_some();
                self.show_alternate(on);
                if leaves {
                    self.restore_cursor(self.usual_cursor);
                }
            }
            2004 => self.modes.bracketed_paste = on,
            _ => {}
        }
    }

    fn reset(&mut self) {
        self.show_alternate(false);
        self.grid.erase_rows(0..self.rows, Style::default());
        self.soft_reset();
        (self.cursor, self.modes) = (Cursor::default(), Modes::default());
    }

    fn soft_reset(&mut self) {
        let Modes { bracketed_paste, focus, mouse, mouse_encoding, .. } = self.modes;
        self.modes = Modes { bracketed_paste, focus, mouse, mouse_encoding, ..Modes::default() };
        self.region = 0..self.rows;
        self.saved = Cursor::default();
        let (row, column) = (self.cursor.row, self.cursor.column);
        self.cursor = Cursor { row, column, ..Cursor::default() };
    }
}

/// The parameter at an index, counted from zero, or what stands for it when it is left out.
fn number(params: &Params, index: usize, otherwise: u16) -> u16 {
    params.iter().nth(index).and_then(|group| group.first()).copied().unwrap_or(otherwise)
}
