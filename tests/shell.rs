//! `soma shell` from outside: a person's terminal, played by tmux.
//!
//! A private tmux server has one pane with a shell of the host in it, where `soma shell` is typed.
//! Keys go in and the screen is read as a person would ([`screen`]). What a shell must do is in
//! `keys`, what programs with a whole screen do in `programs`, large and odd output in `output`,
//! and what is left of the terminal afterwards in `endings`.

mod endings;
mod keys;
mod output;
mod programs;
pub(crate) mod screen;

use crate::support::Home;
use screen::Screen;

#[test]
fn a_shell_has_a_prompt_and_its_exit_code_is_passed_on() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "a_shell_has_a_prompt", &[]) else { return };
    screen.soma("shell");
    let text = screen.text();
    assert!(text.contains("leave with exit or Ctrl-D"), "{text}");
    screen.line("(exit 42)");
    screen.wait("the prompt did not come back", |text| text.matches("~$").count() >= 2);
    screen.keys(&["C-d"]);
    assert_eq!(screen.code(), 42);
    drop(screen);
    home.assert_nothing_left();
}

#[test]
fn another_program_can_be_run_on_the_terminal() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "another_program_can_be_run", &[]) else { return };
    screen.start("shell --user root -- sh -c 'id -un; tty; exit 3'");
    assert_eq!(screen.code(), 3);
    let text = screen.text();
    assert!(text.contains("root\n/dev/pts/"), "{text}");
}

#[test]
fn colours_come_through() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "colours_come_through", &[]) else { return };
    screen.soma("shell --env COLORTERM=truecolor");
    screen.line("echo colours=$(tput colors) $COLORTERM");
    screen.wait("the number of colours", |text| text.contains("colours=256 truecolor"));
    screen.line(r"printf '\033[31mred\033[0m \033[38;2;1;2;3mtrue\033[0m \061\n'");
    screen.wait("the words", |text| text.contains("red true 1"));
    let coloured = screen.coloured();
    assert!(coloured.contains("\x1b[31mred"), "{coloured:?}");
    assert!(coloured.contains("\x1b[38;2;1;2;3mtrue"), "{coloured:?}");
    screen.line("ls --color=always -d /workspace/.. ; echo listed-$((1 + 1))");
    screen.wait("the listing", |text| text.contains("listed-2"));
    let coloured = screen.coloured();
    assert!(coloured.contains("34m") && coloured.contains("/workspace/.."), "{coloured:?}");
}

#[test]
fn a_shell_in_a_sandbox_that_is_there_leaves_it_there() {
    let home = Home::new();
    let name = "a_shell_in_a_sandbox_that_is_there";
    let Some(screen) = Screen::open(&home, name, &[]) else { return };
    let made = home.soma(["new", "--name", "cabin"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    screen.soma("shell cabin");
    screen.line("echo carved > table; exit 3");
    assert_eq!(screen.code(), 3);
    let found = home.soma(["exec", "cabin", "--", "cat", "table"]).output().unwrap();
    assert_eq!(found.stdout, b"carved\n", "{found:?}");
    screen.start("exec -t cabin -- sh -c 'tty; exit 4'");
    assert_eq!(screen.code(), 4);
    assert!(screen.text().contains("/dev/pts/"), "{}", screen.text());
    drop(screen);
    assert!(home.soma(["rm", "cabin"]).status().unwrap().success());
    home.assert_nothing_left();
}

#[test]
fn without_a_terminal_it_is_refused_with_what_to_do() {
    let home = Home::new();
    let output = home.soma(["shell"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.starts_with("soma: a shell needs a terminal"), "{words}");
    assert!(words.contains("soma run"), "{words}");
    assert_eq!(home.engines(), [] as [u32; 0], "an engine was started for it");
}
