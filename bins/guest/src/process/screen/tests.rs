//! The screen against hostile output, and drawn anew.

use proptest::prelude::*;

use super::cell::Cell;
use super::grid::Row;
use super::*;

fn screen(columns: u16, rows: u16, output: &str) -> Screen {
    let mut screen = Screen::new(Size { columns, rows }).unwrap();
    screen.feed(output.as_bytes());
    screen
}

/// The text of a screen, without what is empty at the end of its lines.
fn text(screen: &Screen) -> String {
    let line = |row: &Row| {
        let cells = row.cells().filter(|cell| cell.part != Part::Second);
        let line: String =
            cells.map(|cell| if cell.character == '\0' { ' ' } else { cell.character }).collect();
        line.trim_end().to_owned()
    };
    screen.state.grid.rows().iter().map(line).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// All that a redraw promises to bring back, in comparable form.
fn promised(state: &State) -> impl PartialEq + std::fmt::Debug + use<> {
    let drawn = |grid: &Grid| {
        let cell = |cell: Cell| match cell.part {
            Part::Second => Cell { style: Style::default(), ..cell },
            _ if cell.character == '\0' => Cell { character: ' ', ..cell },
            _ => cell,
        };
        grid.rows().iter().map(|row| row.cells().map(cell).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let usual = state.usual.as_ref();
    let behind = usual.map(|_| (state.usual_cursor.row, state.usual_cursor.column));
    (drawn(&state.grid), usual.map(drawn), behind, state.cursor, state.region.clone(), state.modes)
}

fn redrawn(screen: &Screen) -> Screen {
    let State { columns, rows, .. } = screen.state;
    let size =
        Size { columns: u16::try_from(columns).unwrap(), rows: u16::try_from(rows).unwrap() };
    let mut other = Screen::new(size).unwrap();
    // As a terminal would be that somebody left in a mess.
    other.feed(b"mess\x1b[?1049hmore\x1b[31;7m\x1b[2;3r\x1b[?6h\x1b[4h\x1b[?1003;1006h\x1b(0");
    other.feed(screen.redraw().as_bytes());
    other
}

#[test]
fn text_wraps_and_scrolls() {
    assert_eq!(text(&screen(5, 2, "abcdefg")), "abcde\nfg");
    assert_eq!(text(&screen(5, 2, "one\r\ntwo\r\nthree")), "two\nthree");
    assert_eq!(text(&screen(5, 3, "1\r\n2\r\n3\x1b[1;2r\x1b[2;1H\n4")), "2\n4\n3");
}

#[test]
fn wide_characters_take_two_cells_and_are_never_cut_in_half() {
    assert_eq!(text(&screen(5, 2, "中中中")), "中中\n中");
    assert_eq!(text(&screen(6, 1, "中中\x1b[2Gx")), " x中");
    assert_eq!(text(&screen(6, 1, "ab中\x1b[1G\x1b[P")), "b中");
    assert_eq!(text(&screen(1, 1, "中")), "");
}

#[test]
fn erasing_inserting_and_deleting_do_as_terminals_do() {
    assert_eq!(text(&screen(6, 1, "abcdef\x1b[3G\x1b[K")), "ab");
    assert_eq!(text(&screen(6, 1, "abcdef\x1b[3G\x1b[2@")), "ab  cd");
    assert_eq!(text(&screen(6, 1, "abcdef\x1b[3G\x1b[2P")), "abef");
    assert_eq!(text(&screen(6, 1, "abcdef\x1b[3G\x1b[2X")), "ab  ef");
    assert_eq!(text(&screen(6, 3, "1\r\n2\r\n3\x1b[2H\x1b[L")), "1\n\n2");
    assert_eq!(text(&screen(6, 3, "1\r\n2\r\n3\x1b[2H\x1b[M")), "1\n3");
    assert_eq!(text(&screen(6, 1, "ab\x1b[3b")), "abbbb");
    assert_eq!(text(&screen(6, 1, "\x1b(0qx\x1b(Bq")), "─│q");
}

#[test]
fn the_alternate_screen_leaves_the_usual_one_as_it_was() {
    let mut screen = screen(10, 3, "shell$ \x1b[?1049h\x1b[Heditor");
    assert_eq!(text(&screen), "editor");
    let mut other = redrawn(&screen);
    for screen in [&mut screen, &mut other] {
        screen.feed(b"\x1b[?1049lx");
        assert_eq!(text(screen), "shell$ x");
    }
}

#[test]
fn colours_and_modes_are_brought_back() {
    let screen = screen(
        20,
        4,
        "\x1b[1;31mred\x1b[0m \x1b[38;5;200mpink\x1b[48:2::1:2:3mmixed\x1b[97m\
         \x1b[?1h\x1b=\x1b[?2004h\x1b[?1002h\x1b[?1006h\x1b[?25l\x1b[5 q\x1b[2;3r\x1b[3;4H",
    );
    let drawn = screen.redraw();
    for expected in ["\x1b[0;1;31mred", "\x1b[?2004h", "\x1b[?1002h", "\x1b[?25l", "\x1b[3;4H"] {
        assert!(drawn.contains(expected), "{expected:?} is not in {drawn:?}");
    }
    assert_eq!(promised(&redrawn(&screen).state), promised(&screen.state));
}

#[test]
fn a_size_beyond_measure_is_not_followed() {
    assert!(Screen::new(Size { columns: 1000, rows: 500 }).is_none());
    let mut screen = screen(80, 24, "x");
    assert!(!screen.resize(Size { columns: 1000, rows: 500 }));
    assert!(screen.resize(Size { columns: 256, rows: 128 }));
}

#[test]
fn a_cursor_that_was_saved_before_wrapping_was_switched_off_does_not_wrap() {
    let mut screen = Screen::new(Size { columns: 3, rows: 2 }).unwrap();
    screen.feed(b"abc\x1b7\x1b[?7l\x1b8");
    assert_eq!(promised(&redrawn(&screen).state), promised(&screen.state));
}

/// Output as the worst of programs write it: bytes, wide and combining characters, sequences
/// with all kinds of numbers.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0u32..30, Just(65_535), any::<u32>()];
    let sequence = (
        prop::sample::select(vec!["", "?", "!", " ", ">"]),
        prop::collection::vec(number, 0..4),
        prop::sample::select("@ABCDEFGHIJKLMPSTXZ`abcdefhlmpqrsu".chars().collect::<Vec<_>>()),
    )
        .prop_map(|(mark, numbers, action)| {
            let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
            let (before, after) = if mark == "?" { (mark, "") } else { ("", mark) };
            format!("\x1b[{before}{}{after}{action}", numbers.join(";")).into_bytes()
        });
    let mode = (
        prop::sample::select(vec![1, 6, 7, 25, 47, 1000, 1004, 1006, 1047, 1048, 1049, 2004]),
        any::<bool>(),
    )
        .prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes());
    let text = prop::sample::select(vec![
        "x",
        "中",
        "e\u{301}",
        "\u{fe0f}",
        "👩\u{200d}💻",
        "\r\n",
        "\t",
        "\u{8}",
        "\x1b7",
        "\x1b8",
        "\x1bM",
        "\x1bD",
        "\x1b(0",
        "\x1b(B",
        "\x0e",
        "\x0f",
        "\x1bc",
        "\u{7f}",
        "\u{9b}",
        "\u{ad}",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "中中中中中中中中",
        "\x1b]0;title\x07",
        "\x1bP1$q\x1b\\",
    ])
    .prop_map(|text| text.as_bytes().to_vec());
    let bytes = prop::collection::vec(any::<u8>(), 0..8);
    let piece = prop_oneof![3 => sequence, 2 => mode, 4 => text, 1 => bytes];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn cases() -> u32 {
    if std::env::var_os("SOMA_LONG").is_some() { 20_000 } else { 300 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Nothing that is written panics, and what is redrawn is the same state, at any size and
    /// after any change of it.
    #[test]
    fn a_redrawn_screen_is_the_same_whatever_was_written(
        parts in prop::collection::vec((hostile(), 1u16..30, 1u16..12), 1..5),
    ) {
        let mut screen = Screen::new(Size { columns: 10, rows: 4 }).unwrap();
        for (output, columns, rows) in parts {
            let followed = screen.resize(Size { columns, rows });
            prop_assert!(followed);
            screen.feed(&output);
            let other = redrawn(&screen);
            prop_assert_eq!(promised(&other.state), promised(&screen.state));
        }
    }

    #[test]
    fn a_soup_of_bytes_is_survived(soup in prop::collection::vec(any::<u8>(), 0..4000)) {
        let mut screen = Screen::new(Size { columns: 7, rows: 3 }).unwrap();
        for piece in soup.chunks(13) {
            screen.feed(piece);
        }
        redrawn(&screen);
    }
}
