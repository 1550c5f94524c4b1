//! A daemon in the background.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use provider_native::Home;

use crate::failure::{Failure, SOMA_FAILED};

/// A first start builds the template, which takes a moment.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a daemon unless one answers, and returns when one does.
pub(super) fn run(home: &Path) -> Result<u8, Failure> {
    let own = |error: io::Error| Failure::own(&error);
    if answers(home) {
        return Ok(0);
    }
    let program = std::env::current_exe().map_err(own)?;
    make_home(home).map_err(own)?;
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(home.join("daemon.log"))
        .map_err(own)?;
    let begun_at = log.seek(io::SeekFrom::End(0)).map_err(own)?;
    let mut words = std::ffi::OsString::from("--home=");
    words.push(home);
    let mut command = sys_linux::command::command(program);
    for (name, value) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("SOMA_") || name == "HOME") {
            command.env(name, value);
        }
    }
    let mut child = command
        .args(["serve", "--alone", "--listen=off"])
        .arg(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.try_clone().map_err(own)?)
        .spawn()
        .map_err(own)?;
    let begun = Instant::now();
    loop {
        if answers(home) {
            return Ok(0);
        }
        if let Some(status) = child.try_wait().map_err(own)? {
            // Another one may have been quicker.
            if answers(home) {
                return Ok(0);
            }
            log.seek(io::SeekFrom::Start(begun_at)).map_err(own)?;
            let mut text = String::new();
            let _ = log.take(64 << 10).read_to_string(&mut text);
            let said = text.lines().filter_map(|line| line.strip_prefix("soma: ")).next_back();
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            let message = said.unwrap_or("the daemon left without a word").to_owned();
            return Err(Failure::new(
                code.filter(|code| *code > 0).unwrap_or(SOMA_FAILED),
                message,
            ));
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(SOMA_FAILED, "the daemon does not answer")
                .hint(format!("see {}", home.join("daemon.log").display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether somebody listens at the daemon's socket.
fn answers(home: &Path) -> bool {
    UnixStream::connect(Home::at(home).daemon().join("soma.sock")).is_ok()
}

fn make_home(home: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(home)
}
