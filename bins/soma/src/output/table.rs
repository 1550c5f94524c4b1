//! Tables of words, and the few colours that they have.
//!
//! Cells come from people and sandboxes: none of them may steer the terminal or begin a line.

use comfy_table::{ContentArrangement, Table, presets};

use super::one_line;

/// Puts colours on a cell of a column.
pub(crate) type Paint = fn(&str) -> Option<u8>;

/// A table with these headings, with two spaces between its columns and nothing else. Columns are
/// painted as `paints` says, where standard output takes colours.
pub(crate) fn table(
    headings: &[&str],
    rows: Vec<Vec<String>>,
    paints: &[(usize, Paint)],
) -> String {
    let paints = if has_colours() { paints } else { &[] };
    painted(headings, rows, paints)
}

fn painted(headings: &[&str], rows: Vec<Vec<String>>, paints: &[(usize, Paint)]) -> String {
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Lines are never broken: whoever reads them may be a program.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings);
    table.add_rows(&rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut shown = String::new();
    for (number, line) in table.lines().enumerate() {
        let mut line = line.trim_end().to_owned();
        // Colours come last: they have no width, which tables do not know.
        for (column, paint) in paints {
            let cell = number.checked_sub(1).and_then(|row| rows.get(row)?.get(*column));
            if let Some((cell, colour)) = cell.and_then(|cell| Some((cell, paint(cell)?))) {
                line =
                    line.replacen(&format!(" {cell}"), &format!(" \x1b[{colour}m{cell}\x1b[0m"), 1);
            }
        }
        shown.push_str(&line);
        shown.push('\n');
    }
    shown
}

/// Whether standard output takes colours: a terminal, and nobody said `NO_COLOR`.
fn has_colours() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// The colour of a state. Words say the same, for everybody's eyes.
pub(crate) fn state(name: &str) -> Option<u8> {
    match name {
        "running" => Some(32),
        "error" => Some(31),
        "starting" | "stopping" | "deleting" => Some(33),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_lines_end_where_words_do() {
        let rows = vec![
            vec!["a".to_owned(), "long name".to_owned(), String::new()],
            vec!["bcd".to_owned(), "\x1b[2J\n".to_owned(), "z".to_owned()],
        ];
        let shown = painted(&["ID", "NAME", "X"], rows, &[]);
        assert_eq!(shown, "ID   NAME       X\na    long name\nbcd   [2J       z\n");
    }

    #[test]
    fn colours_change_no_places() {
        let rows = vec![vec!["a".to_owned(), "running".to_owned(), "x".to_owned()]];
        let shown = painted(&["ID", "STATE", "X"], rows, &[(1, state)]);
        assert_eq!(shown, "ID  STATE    X\na   \x1b[32mrunning\x1b[0m  x\n");
    }
}
