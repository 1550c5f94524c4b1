//! From a key to what it shows: the way of every letter that somebody types.
//!
//! In each terminal a program reads byte for byte and writes each back, as the line editor of a
//! shell does. What is measured is the time until the byte is back.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use guest_proto::client::{self, Event, StartOptions, TerminalInput, TerminalSize};
use provider_native::random_id;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use sys_linux::command::command;

use crate::contest::{Allowance, Contest, Settings};
use crate::engine::Running;
use crate::home::BenchHome;

/// Gives every byte back, and says when it begins.
const ECHO: &str = "stty raw -echo; printf ready; exec cat";

/// What a key may take on top of a terminal of the host.
const MOST_ABOVE: Duration = Duration::from_millis(1);

/// A key through the guest, and through `soma shell` as a whole, beside a terminal of the host.
pub(crate) fn key_to_echo(settings: &Settings) {
    let mut local = Local::start(command("sh").args(["-c", ECHO]));
    let mut far = Far::start(settings);
    let home = BenchHome::new();
    let mut shell = home
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error:#}"))
        .and_then(|home| Local::start(home.soma(settings).args(["shell", "--", "sh", "-c", ECHO])));

    let mut contest = Contest::new("From a key to its echo, in a terminal");
    let name = "a terminal of the host";
    let peer = match &mut local {
        Ok(local) => contest.row(name, &[], || local.key()),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let allowance = Allowance { peer, most: MOST_ABOVE };
    let name = "soma, through the guest";
    match &mut far {
        Ok(far) => contest.row_above(name, allowance, || far.key()),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let name = "soma shell, as a whole";
    match &mut shell {
        Ok(shell) => contest.row_above(name, allowance, || shell.key()),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    contest.run(settings);
}

/// A program on a terminal of the host.
struct Local {
    terminal: File,
    program: Child,
}

impl Local {
    fn start(program: &mut Command) -> anyhow::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags)?;
        unlockpt(&terminal)?;
        let its = || ioctl_tiocgptpeer(&terminal, flags);
        let program = program.stdin(its()?).stdout(its()?).stderr(Stdio::null()).spawn()?;
        let mut local = Self { terminal: terminal.into(), program };
        local.wait_for(b"ready")?;
        Ok(local)
    }

    fn key(&mut self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.terminal.write_all(b"k")?;
        self.wait_for(b"k")?;
        Ok(begin.elapsed())
    }

    fn wait_for(&mut self, wanted: &[u8]) -> anyhow::Result<()> {
        let mut seen = Vec::new();
        while !seen.ends_with(wanted) {
            let mut piece = [0; 256];
            let length = self.terminal.read(&mut piece)?;
            seen.extend_from_slice(&piece[..length]);
            ensure!(seen.len() < 4096, "the program says something else");
        }
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The same program on a terminal in a sandbox.
struct Far {
    input: TerminalInput,
    running: client::Running,
    // Last: the connections go before the engine does.
    engine: Running,
}

impl Far {
    fn start(settings: &Settings) -> anyhow::Result<Self> {
        let engine = Running::start(settings, 0)?;
        let (input, running) = engine.home.runtime.block_on(async {
            let id = random_id()?;
            engine.create(&id).await?;
            let guest = engine.guest(&id)?;
            let mut running = guest
                .start(StartOptions {
                    cmd: "sh".into(),
                    args: vec!["-c".into(), ECHO.into()],
                    terminal: Some(TerminalSize { columns: 80, rows: 24 }),
                    ..StartOptions::default()
                })
                .await?;
            let Some(Event::Started { pid }) = running.next().await? else {
                bail!("the guest does not say that the program started");
            };
            let input = guest.terminal_input(pid);
            wait_for(&mut running, b"ready").await?;
            Ok((input, running))
        })?;
        Ok(Self { input, running, engine })
    }

    fn key(&mut self) -> anyhow::Result<Duration> {
        let Self { input, running, engine } = self;
        engine.home.runtime.block_on(async {
            let begin = Instant::now();
            input.send(b"k").await?;
            wait_for(running, b"k").await?;
            Ok(begin.elapsed())
        })
    }
}

async fn wait_for(running: &mut client::Running, wanted: &[u8]) -> anyhow::Result<()> {
    let mut seen = Vec::new();
    while !seen.ends_with(wanted) {
        match running.next().await? {
            Some(Event::Terminal(bytes)) => seen.extend_from_slice(&bytes),
            other => bail!("the program does not answer: {other:?}"),
        }
        ensure!(seen.len() < 4096, "the program says something else");
    }
    Ok(())
}
