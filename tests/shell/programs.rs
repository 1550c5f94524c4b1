//! Programs that have the whole screen.

use super::screen::Screen;
use crate::support::Home;

#[test]
fn vim_edits_a_file_and_leaves_the_screen_as_it_was() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "vim_edits_a_file", &["vim"]) else { return };
    screen.soma("shell");
    screen.line("echo before-$((1 + 1))");
    screen.wait("no word before", |text| text.contains("before-2"));
    screen.line("vim notes");
    screen.wait("vim does not show", |text| text.contains("\n~\n") && text.contains("notes"));
    assert_eq!(screen.state(&["alternate_on"]), "1");
    screen.keys(&["i"]);
    screen.wait("vim does not insert", |text| text.contains("-- INSERT --"));
    screen.line("written in vim");
    screen.tmux(&["send-keys", "-l", "second line"]);
    screen.keys(&["Escape"]);
    screen.wait("vim still inserts", |text| !text.contains("-- INSERT --"));
    screen.line(":wq");
    screen.prompt();
    let text = screen.text();
    assert!(text.contains("before-2") && !text.contains("\n~\n"), "{text}");
    assert_eq!(screen.state(&["alternate_on"]), "0");
    screen.line("cat notes");
    screen.wait("it is not in the file", |text| text.contains("\nwritten in vim\nsecond line\n"));
}

#[test]
fn htop_shows_the_processes_of_the_sandbox_and_quits() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "htop_shows_the_processes", &["htop"]) else { return };
    screen.soma("shell");
    screen.line("sleep 4242 &");
    screen.line("htop");
    screen.wait("htop does not show", |text| {
        text.contains("PID") && text.contains("F10") && text.contains("sleep 4242")
    });
    assert_eq!(screen.state(&["alternate_on"]), "1");
    screen.keys(&["q"]);
    screen.prompt();
    assert_eq!(screen.state(&["alternate_on", "cursor_flag", "mouse_any_flag"]), "0 1 0");
}

#[test]
fn tmux_runs_inside_with_panes_and_is_left_and_found_again() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "tmux_runs_inside", &[]) else { return };
    screen.soma("shell");
    screen.line("tmux new-session -s inner");
    screen.wait("no status line", |text| text.contains("[inner] 0:"));
    screen.keys(&["C-b", "%"]);
    screen.wait("no second pane", |text| text.contains('│'));
    screen.line("echo pane-$((1 + 1)) $TMUX_PANE");
    screen.wait("the pane does not answer", |text| text.contains("pane-2 %1"));
    // The first of two lines is the title of the pane; tmux has the whole width in its status.
    screen.tmux(&["resize-window", "-x", "90", "-y", "25"]);
    screen.wait("the new size does not reach it", |text| {
        text.lines().nth(24).is_some_and(|line| line.contains("[inner]"))
    });
    screen.keys(&["C-b", "d"]);
    screen.wait("it is not detached", |text| text.contains("[detached (from session inner)]"));
    screen.line("tmux attach");
    screen.wait("it is not found again", |text| {
        text.contains("pane-2 %1") && text.contains("[inner] 0:")
    });
    screen.line("exit");
    screen.wait("the second pane is left", |text| !text.contains('│'));
    screen.line("exit");
    screen.wait("it is not over", |text| text.contains("[exited]"));
    screen.prompt();
}
