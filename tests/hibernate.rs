//! A running sandbox can be dumped and restored, so that hibernation stays possible.
//!
//! `frozen` and `slept` have what the engine makes of it, `interrupted` and `room` what is in its way,
//! `proof` all of it through the daemon. Here CRIU is driven by hand
//! (`hibernate/cycle.py`) on a real sandbox in which a program uses a TCP connection, a terminal and a watch on a folder. After
//! the restore the program goes on where it was, and the guest answers.

mod captured;
mod frozen;
mod interrupted;
mod proof;
mod room;
mod slept;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use guest_proto::client::StartOptions;
use provider::Condition;

use crate::support::{Home, eventually, skip};

#[tokio::test]
async fn a_sandbox_with_tcp_terminal_and_watch_survives_criu() {
    if crate::support::needs_root(
        "a_sandbox_with_tcp_terminal_and_watch_survives_criu",
        "way to dump a sandbox",
    ) {
        return;
    }
    let Ok(criu) = std::env::var("SOMA_CRIU") else {
        let reason = std::env::var("SOMA_CRIU_MISSING")
            .unwrap_or_else(|_| "SOMA_CRIU does not say where CRIU 4.2 is".to_owned());
        return skip("a_sandbox_with_tcp_terminal_and_watch_survives_criu", &reason);
    };
    let home = Home::new();
    let provider = home.provider();
    let id = provider_native::random_id().unwrap();
    provider.create(&id, &domain::SandboxSpec::default()).await.unwrap();

    let guest = provider.guest(&id);
    let options = StartOptions {
        cmd: "python3".to_owned(),
        args: vec!["-c".to_owned(), include_str!("hibernate/program.py").to_owned()],
        ..StartOptions::default()
    };
    // No connection may be open while the sandbox is dumped.
    drop(guest.start(options).await.unwrap());
    drop(guest);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let first = home.first_process(&id);
    eventually("the program does not run", || rounds(first) > 3);

    let mut cycle = Cycle::start(&criu, first);
    let before = rounds(cycle.restored);
    assert!(before > 3, "the log was lost");
    eventually("the program does not go on", || rounds(cycle.restored) > before + 3);
    ask(cycle.restored, "/health").unwrap();
    cycle.end();

    let seen = provider.inspect(&id).await.unwrap();
    assert!(matches!(seen.condition, Condition::Ended(_)), "the engine did not see it go");
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

/// The sandbox between its restore and its end.
struct Cycle {
    python: Child,
    restored: u32,
}

impl Cycle {
    fn start(criu: &str, first: u32) -> Self {
        let mut python = script("cycle.py", &[criu, &first.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(restored) = line.trim().parse() else {
            let mut words = String::new();
            python.stderr.take().unwrap().read_to_string(&mut words).unwrap();
            panic!("{words}");
        };
        Self { python, restored }
    }

    fn end(&mut self) {
        drop(self.python.stdin.take());
        let mut words = String::new();
        self.python.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        assert!(self.python.wait().unwrap().success(), "{words}");
    }
}

impl Drop for Cycle {
    fn drop(&mut self) {
        drop(self.python.stdin.take());
        let _ = self.python.wait();
    }
}

/// How many rounds the program in the sandbox has written down.
fn rounds(first: u32) -> usize {
    let log = ask(first, "/files?path=/workspace/log&username=user");
    log.map_or(0, |log| log.lines().count())
}

fn ask(first: u32, path: &str) -> Result<String, String> {
    let output = script("ask.py", &[&first.to_string(), path]).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn script(name: &str, words: &[&str]) -> Command {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/hibernate"));
    let mut command = sys_linux::command::command("/usr/bin/python3");
    command.arg(folder.join(name)).args(words);
    command
}
