//! Keys, jobs, paste and size, as a shell wants them.

use super::screen::Screen;
use crate::support::Home;

#[test]
fn ctrl_c_and_its_kin_reach_the_program_and_the_shell_lives() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "ctrl_c_reaches_the_program", &[]) else { return };
    screen.soma("shell");
    // What says so is in front already: keys that come before are the shell's own.
    screen.line("sh -c 'echo asleep-$((1 + 1)); exec sleep 1000'");
    screen.wait("it does not sleep", |text| text.contains("asleep-2"));
    screen.keys(&["C-c"]);
    screen.wait("^C is not shown", |text| text.contains("^C"));
    screen.prompt();
    screen.line("sh -c 'echo asleep-$((2 + 2)); exec sleep 1000'");
    screen.wait("it does not sleep", |text| text.contains("asleep-4"));
    screen.keys(&[r"C-\"]);
    screen.wait("it did not quit", |text| text.contains("Quit"));
    screen.line("echo alive-$((3 + 3))");
    screen.wait("the shell is dead", |text| text.contains("alive-6"));
}

#[test]
fn jobs_are_stopped_and_brought_back() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "jobs_are_stopped_and_brought_back", &[]) else {
        return;
    };
    screen.soma("shell");
    screen.line("sleep 1001 &");
    screen.wait("no job", |text| text.contains("[1]"));
    screen.line("fg");
    // The shell repeats the command of a job that it brings to the front, on a line of its own.
    screen.wait("not in front", |text| text.contains("fg\nsleep 1001\n"));
    screen.keys(&["C-z"]);
    screen.wait("it did not stop", |text| text.contains("Stopped"));
    screen.line("bg; jobs -r");
    screen.wait("it does not run", |text| text.contains("Running"));
    screen.line("kill %1; wait %1; echo over-$?");
    let text = screen.wait("it is not over", |text| text.contains("over-143"));
    assert!(!text.contains("no job control"), "{text}");
}

#[test]
fn the_size_is_the_terminals_and_follows_it() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "the_size_follows_the_terminal", &[]) else { return };
    screen.soma("shell");
    screen.line("stty size");
    screen.wait("the size at first", |text| text.contains("\n30 100\n"));
    // It ends by itself: a Ctrl-C that meets `stty` and not `sleep` does not end a loop of bash's.
    screen.line("for i in $(seq 40); do sleep 0.1; stty size; done");
    screen.tmux(&["resize-window", "-x", "77", "-y", "20"]);
    screen.wait("the size afterwards", |text| text.contains("\n20 77\n"));
    screen.prompt();
    screen.line("tput cols");
    screen.wait("programs see it", |text| text.contains("\n77\n"));
}

#[test]
fn pasted_lines_are_not_run_before_enter() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "pasted_lines_are_not_run", &[]) else { return };
    screen.soma("shell");
    screen.tmux(&["set-buffer", "echo first-$((1 + 1))\necho second-$((2 + 2))"]);
    screen.tmux(&["paste-buffer", "-p"]);
    let text = screen.wait("it is not pasted", |text| text.contains("second-$"));
    assert!(!text.contains("first-2"), "{text}");
    screen.keys(&["Enter"]);
    screen.wait("it is not run", |text| text.contains("first-2") && text.contains("second-4"));
}

#[test]
fn the_mouse_is_reported_to_the_program() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "the_mouse_is_reported", &[]) else { return };
    let program = r#"
import os, sys, tty
tty.setraw(0)
sys.stdout.write("\x1b[?1000h\x1b[?1006hready\r\n")
sys.stdout.flush()
seen = b""
while not seen.endswith((b"M", b"m")):
    seen += os.read(0, 100)
sys.stdout.write("\x1b[?1006l\x1b[?1000lclicked " + repr(seen) + "\r\n")
"#;
    screen.start(&format!("shell -- python3 -c '{program}'"));
    screen.wait("it is not ready", |text| text.contains("\nready\n"));
    assert_eq!(screen.state(&["mouse_standard_flag", "mouse_sgr_flag"]), "1 1");
    screen.bytes(b"\x1b[<0;42;7M");
    let text = screen.wait("no click", |text| text.contains("\nclicked "));
    assert!(text.contains(r"clicked b'\x1b[<0;42;7M'"), "{text}");
    assert_eq!(screen.code(), 0);
    assert_eq!(screen.state(&["mouse_standard_flag", "mouse_sgr_flag"]), "0 0");
}

#[test]
fn every_byte_of_a_key_comes_through() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "every_byte_of_a_key_comes_through", &[]) else {
        return;
    };
    let program = "\
import os, tty
tty.setraw(0)
os.write(1, b\"ready\\r\\n\")
seen = b\"\"
while len(seen) < 256:
    seen += os.read(0, 1000)
os.write(1, b\"all\\r\\n\" if seen == bytes(range(256)) else repr(seen).encode())
";
    screen.start(&format!("shell -- python3 -c '{program}'"));
    screen.wait("it is not ready", |text| text.contains("\nready\n"));
    screen.bytes(&(0..=255).collect::<Vec<u8>>());
    screen.wait("not the same bytes", |text| text.contains("\nall\n"));
    assert_eq!(screen.code(), 0);
}
