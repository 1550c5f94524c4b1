//! Finding the engine, or starting one.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use provider::ProviderError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};

use super::backend;
use crate::home::Home;
use crate::verbs::{Answer, Reply, Request, Verb, version};

/// An engine's first start on a host builds its template, which takes a moment.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connects to the engine that is there.
pub(super) fn connect(home: &Home) -> io::Result<OwnedFd> {
    link::dial(home.path(), Home::SOCKET)
}

/// Connects to the engine of a home, starting `program engine --home HOME` when none answers.
///
/// The connection is for [`NativeProvider::over`](crate::NativeProvider::over), also in a process
/// without the privileges that it takes to get one. Blocks while an engine starts.
pub fn connect_engine(home: &Home, program: &Path) -> Result<OwnedFd, ProviderError> {
    match connect(home) {
        Ok(socket) if agrees(&socket) => return Ok(socket),
        Ok(_) => {
            if let Some(socket) = agree_or_replace(home) {
                return Ok(socket);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(no_permission(home));
        }
        Err(_) => {}
    }
    let mut child = start(home, program)?;
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Ok(socket) = connect(home)
            && agrees(&socket)
        {
            attend(child);
            return Ok(socket);
        }
        if let Ok(Some(status)) = child.try_wait() {
            // One that was killed had nothing against this host, and the next may live.
            if !status.success() && status.signal().is_none() {
                return Err(ProviderError::Unsupported { reason: last_words(&mut child) });
            }
            // Another engine has the home: one that was quicker and is about to answer, or one
            // that is dying and will not. Only trying again tells which.
            thread::sleep(pause);
            if let Ok(socket) = connect(home)
                && agrees(&socket)
            {
                return Ok(socket);
            }
            child = start(home, program)?;
        }
        if begun.elapsed() > PATIENCE {
            let error = io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
            return Err(backend("start the engine", error));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Whether the engine at the other end is of our own version. An earlier one does not know the
/// question; what it would make of others nobody knows.
fn agrees(socket: &OwnedFd) -> bool {
    let question = Request { number: 0, verb: Verb::Version };
    let asked = link::send(socket, &question, &[], SendFlags::empty());
    if asked.is_err() {
        return false;
    }
    if !has_answer(socket) {
        // Ours or not, it is at something: that it is slow does not make it another.
        return true;
    }
    let reply = link::receive::<Reply>(socket, RecvFlags::DONTWAIT);
    let Ok(Some((Reply { answer: Ok(Answer::Version(theirs)), .. }, _))) = reply else {
        return false;
    };
    theirs == version()
}

/// Finds out whether the engine is of another version or was about to die: one that dies takes no
/// more connections. One of another version is ended; its sandboxes go on, and the next one finds
/// them.
fn agree_or_replace(home: &Home) -> Option<OwnedFd> {
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(20));
        let socket = connect(home).ok()?;
        if agrees(&socket) {
            return Some(socket);
        }
    }
    // What cannot be ended is met again by whoever starts the next one.
    let _ = end(home);
    None
}

fn end(home: &Home) -> io::Result<()> {
    let socket = connect(home)?;
    let leave = Request { number: 0, verb: Verb::Leave };
    link::send(&socket, &leave, &[], SendFlags::empty())?;
    // Its answer, and then its end.
    while has_answer(&socket) {
        match link::receive::<Reply>(&socket, RecvFlags::DONTWAIT) {
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            _ => {}
        }
    }
    Ok(())
}

fn has_answer(socket: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(socket, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    poll(&mut waiting, Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// Starts an engine that outlives this process.
fn start(home: &Home, program: &Path) -> Result<Child, ProviderError> {
    let mut command = sys_linux::command::command(program);
    if let Some(criu) = std::env::var_os("SOMA_CRIU") {
        command.env("SOMA_CRIU", criu);
    }
    command
        .arg("engine")
        .arg(word("--home=", home.path()))
        .arg("--detach")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| backend("start the engine", error))
}

/// Waits for an engine's end in the background: a process that lives longer than its engine, and
/// perhaps than many, would keep what is left of each.
fn attend(mut engine: Child) {
    // It says nothing more here, and a pipe that nobody reads could hold it up.
    drop(engine.stderr.take());
    let waiting = thread::Builder::new().name("engine's end".into());
    let _ = waiting.spawn(move || engine.wait());
}

/// What the engine said before it left.
fn last_words(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_string(&mut text);
    }
    // Behind it may be a hint, which is for whoever types the engine's command.
    let said = text.lines().filter_map(|line| line.strip_prefix("soma: ")).next_back();
    said.unwrap_or("the engine left without a word").to_owned()
}

/// An option and its value as one word, which no value can be taken for another option.
fn word(option: &str, value: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push(value);
    word
}

fn no_permission(home: &Home) -> ProviderError {
    let reason = format!(
        "the home `{}` is somebody else's; use another with SOMA_HOME or --home, or run it as \
         its owner",
        home.path().display()
    );
    ProviderError::Unsupported { reason }
}
