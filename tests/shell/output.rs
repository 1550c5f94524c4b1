//! Large and odd output.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

use super::screen::Screen;
use crate::support::{Home, eventually};

#[test]
fn letters_of_all_widths_come_through_both_ways() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "letters_of_all_widths", &[]) else { return };
    screen.soma("shell");
    screen.line("printf '%s=%s\\n' 漢字äß🙂 $(printf 漢字äß🙂 | wc -m)");
    screen.wait("the letters", |text| text.contains("漢字äß🙂=5"));
    // The line editor inside knows how wide they are.
    screen.tmux(&["send-keys", "-l", "echo 漢字x"]);
    screen.keys(&["BSpace", "BSpace", "BSpace"]);
    screen.line("gone");
    screen.wait("the line", |text| text.contains("\ngone\n") && text.contains("echo gone"));
}

#[test]
fn much_output_flows_and_the_prompt_comes_back() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "much_output_flows", &[]) else { return };
    screen.soma("shell");
    screen.line("yes 0123456789abcdef | head -c 10000000; echo done-$((1 + 1))");
    screen.wait("it does not end", |text| text.contains("done-2"));
    screen.prompt();
}

#[test]
fn no_byte_of_much_output_is_lost() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "no_byte_of_much_output_is_lost", &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("output");
    screen.start(&format!("shell -- seq 1000000 > {}", file.display()));
    assert_eq!(screen.code(), 0);
    let text = fs::read_to_string(file).unwrap();
    let lines = text.strip_suffix("\r\n").unwrap().split("\r\n");
    assert!(lines.eq((1..=1_000_000).map(|number: u32| number.to_string())));
}

#[test]
fn a_terminal_that_takes_nothing_holds_the_program_up() {
    let home = Home::new();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let unread = openpt(flags).unwrap();
    unlockpt(&unread).unwrap();
    let terminal = || ioctl_tiocgptpeer(&unread, flags).unwrap();
    let mut soma = home.soma(["shell", "--", "yes"]);
    let mut soma = soma.stdin(terminal()).stdout(terminal()).spawn().unwrap();
    let folder = format!("/proc/{}", soma.id());
    eventually("it does not begin", || number(&folder, "io", "wchar:") > 1000);
    // It takes output until the way is full, and then has nothing to do.
    let begun = Instant::now();
    let mut last = (worked(&folder), Instant::now());
    while last.1.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(20));
        if worked(&folder) != last.0 {
            last = (worked(&folder), Instant::now());
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it takes without end");
    }
    let resident = number(&folder, "status", "VmRSS:");
    assert!(resident < 64 << 10, "{resident} KiB");
    kill_process(Pid::from_child(&soma), Signal::TERM).unwrap();
    assert_eq!(soma.wait().unwrap().code(), Some(143));
    home.assert_nothing_left();
}

/// The time that a process has had of the processors, in hundredths of a second.
fn worked(folder: &str) -> u64 {
    let line = fs::read_to_string(Path::new(folder).join("stat")).unwrap();
    let fields: Vec<&str> = line.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn number(folder: &str, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(Path::new(folder).join(file)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
