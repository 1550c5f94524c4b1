//! The daemon as this program uses it: found, started when there is none, asked.
//!
//! `SOMA_API_URL` and `SOMA_API_KEY` name one somewhere else; then nothing is started here.
//! Otherwise it is the one of the home, at the socket `daemon/soma.sock` in it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use client::{Client, ClientError, Place};
use domain::Token;
use provider_native::PROGRAM_ID;
use rustix::fs::OFlags;

use crate::failure::{Failure, SOMA_FAILED};

/// Where a home has its daemon's socket.
const FOLDER: &str = "daemon";
const SOCKET: &str = "soma.sock";

/// What belongs to a user's session.
const SESSION: [&str; 3] = ["HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// How long a daemon that somebody else has started is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Finds the daemon of this home, or starts one, and gives up root's powers if it had them: what
/// comes from a sandbox is read by nobody who could harm the host.
///
/// Blocks while the daemon starts. Nothing is made yet, so Ctrl-C may simply end the program.
pub(crate) fn client(home: &Path) -> Result<Client, Failure> {
    let client = privileged_client(home)?;
    give_up_root()?;
    Ok(client)
}

/// Gives up root's powers if this program has them.
pub(crate) fn give_up_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        sys_linux::process::become_user(PROGRAM_ID, PROGRAM_ID, &[])
            .and_then(|()| Ok(rustix::thread::set_no_new_privs(true)?))
            .map_err(|error| Failure::own(&error))?;
    }
    Ok(())
}

/// Finds or starts it for a command that has to stay whoever called it, because it reads or writes the
/// caller's own files.
pub(crate) fn privileged_client(home: &Path) -> Result<Client, Failure> {
    if let Some(client) = remote(|name| std::env::var(name).ok())? {
        return Ok(client);
    }
    let folder = home.join(FOLDER);
    if UnixStream::connect(folder.join(SOCKET)).is_err() {
        start(home)?;
    }
    Ok(Client::new(Place::Socket(reachable(&folder)?), None))
}

/// Where the daemon of this home listens, if it runs.
pub(crate) fn socket(home: &Path) -> PathBuf {
    home.join(FOLDER).join(SOCKET)
}

/// Asks the daemon of this home something, to the end.
pub(crate) fn ask<T>(
    home: &Path,
    question: impl AsyncFnOnce(Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let client = client(home)?;
    block_on(question(client))
}

/// Runs one thing to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::own(&error))?;
    let outcome = runtime.block_on(future);
    // Nothing is left that is worth waiting for.
    runtime.shutdown_background();
    outcome
}

/// A daemon somewhere else, when one is named.
fn remote(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Client>, Failure> {
    let Some(url) = variable("SOMA_API_URL").filter(|url| !url.is_empty()) else {
        return Ok(None);
    };
    let address = url.strip_prefix("http://").unwrap_or(&url);
    let address = address.strip_suffix('/').unwrap_or(address);
    let port = address.rsplit_once(':').map(|(_, port)| port);
    let fine =
        !address.contains(['/', '@']) && port.is_some_and(|port| port.parse::<u16>().is_ok());
    if !fine {
        // It may have a password in it, so it is not repeated.
        return Err(Failure::usage("SOMA_API_URL is no address of a daemon")
            .hint("write host:port or http://host:port"));
    }
    let key = variable("SOMA_API_KEY").filter(|key| !key.is_empty()).map(Token::new);
    Ok(Some(Client::new(Place::Address(address.to_owned()), key)))
}

/// Starts a daemon in the background, and returns when it answers. Of two at once, the second
/// finds the first and leaves.
fn start(home: &Path) -> Result<(), Failure> {
    let own = |error: std::io::Error| Failure::own(&error);
    let program = std::env::current_exe().map_err(own)?;
    let mut word = std::ffi::OsString::from("--home=");
    word.push(home);
    let mut command = sys_linux::command::command(program);
    command.arg("serve").arg(word).arg("--detach").stdin(Stdio::null()).stdout(Stdio::null());
    // Its settings, and what a user's daemon is given by its session.
    for (name, value) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("SOMA_") || SESSION.contains(&name)) {
            command.env(name, value);
        }
    }
    sys_linux::process::wait_for_children();
    let output = command.stderr(Stdio::piped()).output().map_err(own)?;
    if output.status.success() || (is_taken(&output.stderr) && comes(home)) {
        return Ok(());
    }
    match unwritable(&home.join("daemon.log")) {
        // What it had to say is lost with it.
        Some(failure) => Err(failure),
        None => Err(why(&String::from_utf8_lossy(&output.stderr))),
    }
}

/// Why nothing can be written to a log that is there, such as on a full disk.
fn unwritable(log: &Path) -> Option<Failure> {
    let written = File::options().append(true).open(log).and_then(|mut log| log.write_all(b"\n"));
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Some(Failure::new(
            SOMA_FAILED,
            format!("`{}` cannot be written: {error}", log.display()),
        )),
        _ => None,
    }
}

/// Whether another daemon was quicker, and may not answer yet.
fn is_taken(words: &[u8]) -> bool {
    String::from_utf8_lossy(words).contains("a daemon of this home runs already")
}

/// Waits for a daemon that somebody else has started.
fn comes(home: &Path) -> bool {
    let socket = home.join(FOLDER).join(SOCKET);
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// What a daemon that did not start said, as our own failure.
fn why(words: &str) -> Failure {
    let line = |prefix: &str| words.lines().find_map(|line| line.strip_prefix(prefix));
    let message = line("soma: ").or_else(|| words.lines().rfind(|line| !line.trim().is_empty()));
    let message = message.unwrap_or("the daemon does not start, and does not say why");
    let failure = Failure::new(SOMA_FAILED, message);
    match line("hint: ") {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The socket by a path that still leads there when root's powers are given up, and that is short
/// enough however long the home's is: through a descriptor of its folder, which stays open as
/// long as this program runs.
fn reachable(folder: &Path) -> Result<PathBuf, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = File::options().read(true).custom_flags(flags).open(folder);
    let opened = opened.map_err(|error| {
        Failure::new(SOMA_FAILED, format!("`{}` cannot be opened: {error}", folder.display()))
    })?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd());
    std::mem::forget(opened);
    Ok(path.into())
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Refused { status, message } => match status.as_u16() {
                400 => Self::usage(message.clone()),
                501 if message.contains("to its limits") => Self::new(SOMA_FAILED, message.clone())
                    .hint("to run it without those limits, say --allow-unenforced"),
                401 => Self::new(SOMA_FAILED, message.clone())
                    .hint("SOMA_API_KEY has to be a key of that daemon"),
                _ => Self::new(SOMA_FAILED, message.clone()),
            },
            ClientError::Away { place, source } if place.starts_with("/proc/") => {
                Self::new(SOMA_FAILED, format!("the daemon went away: {source}"))
            }
            ClientError::Odd { place, reason } if place.starts_with("/proc/") => {
                Self::new(SOMA_FAILED, format!("the daemon went away: {reason}"))
            }
            error => Self::own(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_somewhere_else_is_named_by_an_address() {
        for (url, place) in [
            ("box:4060", "http://box:4060"),
            ("http://box:4060/", "http://box:4060"),
            ("[::1]:4060", "http://[::1]:4060"),
        ] {
            let found = remote(|name| (name == "SOMA_API_URL").then(|| url.to_owned()));
            assert_eq!(found.unwrap().unwrap().place().to_string(), place);
        }
        for url in ["box", "https://box:4060", "http://me:secret@box:1", "box:4060/path", "box:x"] {
            let failure = remote(|_| Some(url.to_owned())).unwrap_err();
            assert_eq!(failure.code, 2, "{url}");
            assert!(!failure.message.contains("secret"));
        }
        assert!(remote(|_| Some(String::new())).unwrap().is_none());
    }

    #[test]
    fn what_a_daemon_says_that_does_not_start_is_passed_on() {
        let failure = why("soma: no room\nhint: make some\n");
        assert_eq!((failure.message.as_str(), failure.code), ("no room", 125));
        assert_eq!(failure.hint.as_deref(), Some("make some"));
        assert_eq!(why("thread panicked\nat x\n\n").message, "at x");
        assert!(why("").message.contains("does not start"));
    }
}
