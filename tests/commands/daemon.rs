//! The daemon behind the commands: started when there is none, found when there is one.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use super::{new, soma, text, works};
use crate::support::{Home, SOMA, eventually};

#[test]
fn commands_at_the_same_time_start_one_daemon() {
    let home = Home::new();
    let children: Vec<Child> = (0..4).map(|_| home.soma(["ps"]).spawn().unwrap()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    // Root's has a second process that starts engines; those that came too late leave.
    eventually("several daemons serve", || home.daemons().len() <= 2);
    home.assert_nothing_left();
}

#[test]
fn a_sandbox_outlives_the_daemon() {
    let home = Home::new();
    let id = new(&home, &["--name", "tough"]);
    works(&home, &["exec", "tough", "--", "sh", "-c", "echo kept > file"]);
    for daemon in home.daemons() {
        let pid = Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
        let _ = kill_process(pid, Signal::KILL);
    }
    eventually("the daemon lives", || home.daemons().is_empty());
    // A process that was killed has no name any more a moment before it has no sockets any more.
    let socket = home.path().join("daemon/soma.sock");
    eventually("somebody listens", || std::os::unix::net::UnixStream::connect(&socket).is_err());
    assert_eq!(works(&home, &["exec", "tough", "--", "cat", "file"]), "kept\n");
    assert_eq!(works(&home, &["ps", "-q"]), format!("{id}\n"));
    works(&home, &["rm", "tough"]);
    home.assert_nothing_left();
}

#[test]
fn a_daemon_that_cannot_start_says_why_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let home = Home::new();
    let output = home.soma(["ps"]).env("SOMA_HOME", file.join("below")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.starts_with("soma: ") && said.lines().count() <= 2, "{said}");
    assert_eq!(soma(&home, &["ps"]).status.code(), Some(0));
}

#[test]
fn the_daemon_keeps_nothing_that_its_starter_had_open() {
    let home = Home::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = home.command("sh");
    // The shell hands a second copy of the pipe on, at a number that no program expects.
    command.args(["-c", "exec 7>&1 && exec \"$0\" ps 1>/dev/null 2>/dev/null"]).arg(&**SOMA);
    let status = command.stdout(writer).status().unwrap();
    drop(command);
    assert_eq!(status.code(), Some(0));
    assert!(!home.daemons().is_empty());
    // Ends only when nobody has the other end open any more.
    let mut left = String::new();
    std::io::Read::read_to_string(&mut reader, &mut left).unwrap();
    assert!(!home.daemons().is_empty(), "the daemon had to end for it");
    home.assert_nothing_left();
}
