//! The program `sudo`: asks, and stands in for what was started until that ends.
//!
//! It runs as its caller and can do nothing that the caller could not. Signals that it gets are
//! passed on; it ends as the program ended. A program whose output goes to a terminal gets a
//! terminal of its own, which is relayed ([`Terminal`]); in every other case the program has the
//! caller's own descriptors, and no byte passes through here.

use std::ffi::{CString, OsString};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, getpid, kill_process, umask};
use rustix::termios::isatty;
use sys_linux::command::SYSTEM_PATH;
use sys_linux::fdpass;
use sys_linux::process::{ignores, next_signal, reset_signals, signals_descriptor};

use super::arguments::{self, Asked, Options};
use super::environment::{self, Caller};
use super::request::{ASK, Parts, Reply, Wish};
use super::target;
use super::terminal::Terminal;
use crate::keeper::candidates;

const USAGE: &str = "\
usage: sudo -h | -V | -k | -K | -l | -v
usage: sudo [-ABbEHnPS] [-D folder] [-g group] [-p prompt] [-u user] [VAR=value] command [argument ...]
usage: sudo [-ABbEHnPS] [-D folder] [-g group] [-p prompt] [-u user] [VAR=value] -i|-s [command]
";

/// What new files of programs started with `sudo` never get, whatever the caller's mask.
const LEAST_MASK: u32 = 0o022;

/// What is passed on to the program.
const PASSED_ON: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::TSTP,
    Signal::CONT,
    Signal::WINCH,
];

/// Does what was typed, and returns the code to leave with.
pub(super) fn run(typed: Vec<OsString>, door: &SocketAddr) -> ExitCode {
    let done = match arguments::parse(typed) {
        Err(misuse) => {
            if let Some(message) = misuse.message {
                complain(&message);
            }
            let _ = io::stderr().write_all(USAGE.as_bytes());
            return ExitCode::FAILURE;
        }
        Ok(Asked::Help) => print(&format!("sudo - run a command as another user\n\n{USAGE}")),
        Ok(Asked::Version) => {
            print(&format!("Sudo of a Soma sandbox, version {}\n", env!("CARGO_PKG_VERSION")))
        }
        Ok(Asked::Forget) => Ok(ExitCode::SUCCESS),
        Ok(Asked::Validate) => ask(door).map(|()| ExitCode::SUCCESS),
        Ok(Asked::List) => ask(door).and_then(|()| {
            let name = target::caller().name;
            let rights = "    (ALL : ALL) NOPASSWD: ALL";
            print(&format!("User {name} may run the following commands here:\n{rights}\n"))
        }),
        Ok(Asked::Run(options)) => start(&options, door).and_then(Standing::wait),
    };
    done.unwrap_or_else(|why| {
        complain(&why);
        ExitCode::FAILURE
    })
}

fn print(text: &str) -> Result<ExitCode, String> {
    let written = io::stdout().write_all(text.as_bytes());
    written.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
}

fn complain(why: &str) {
    // Nobody may be listening, and there is nobody else to tell.
    let _ = writeln!(io::stderr(), "sudo: {why}");
}

/// Asks whether the caller may use `sudo`.
fn ask(door: &SocketAddr) -> Result<(), String> {
    let (conversation, theirs) = new_conversation()?;
    let socket = reach(door)?;
    fdpass::send(&socket, ASK, &[theirs.as_fd()], SendFlags::empty())
        .map_err(|error| no_guest(&error))?;
    drop(theirs);
    match Reply::receive(&conversation) {
        Ok(Some(Reply::Allowed)) => Ok(()),
        Ok(Some(Reply::Refused(why))) => Err(why),
        _ => Err("the guest gave no answer".to_owned()),
    }
}

/// Has the program started.
fn start(options: &Options, door: &SocketAddr) -> Result<Standing, String> {
    let (mut wish, mut stdio) = (describe(options)?, own_stdio().map_err(|e| e.to_string())?);
    let terminal = if !options.background && isatty(&stdio[1]) {
        Terminal::open(&stdio[1]).ok()
    } else {
        None
    };
    let terminal = terminal.map(|(terminal, inner)| {
        // What is no terminal stays as it is: a pipe is read and written by the program itself.
        for descriptor in stdio.iter_mut().filter(|one| isatty(one)) {
            if let Ok(copy) = inner.try_clone() {
                *descriptor = copy;
            }
        }
        terminal
    });
    wish.terminal = terminal.is_some();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, ".", flags, Mode::empty())
        .or_else(|_| openat(CWD, "/", flags, Mode::empty()))
        .map_err(|errno| errno.to_string())?;
    let (conversation, theirs) = new_conversation()?;
    // What the caller ignores stays ignored, as after `nohup`.
    let heeded: Vec<i32> =
        PASSED_ON.iter().map(|signal| signal.as_raw()).filter(|signal| !ignores(*signal)).collect();
    let signals = signals_descriptor(&heeded).map_err(|error| error.to_string())?;
    let wish = wish.to_file().map_err(|error| format!("the command is too long: {error}"))?;
    let parts = Parts { conversation: theirs, wish, folder, stdio };
    parts.send(reach(door)?).map_err(|error| no_guest(&error))?;
    Ok(Standing { conversation, signals, terminal, background: options.background })
}

fn new_conversation() -> Result<(OwnedFd, OwnedFd), String> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| format!("cannot make a socket: {errno}"))
}

fn reach(door: &SocketAddr) -> Result<UnixDatagram, String> {
    let socket = UnixDatagram::unbound().map_err(|error| no_guest(&error))?;
    socket.connect_addr(door).map_err(|error| no_guest(&error))?;
    Ok(socket)
}

fn no_guest(error: &io::Error) -> String {
    format!("the sandbox's guest cannot be asked: {error}")
}

/// Standard input, output and error; nothing in place of one that is closed.
fn own_stdio() -> io::Result<[OwnedFd; 3]> {
    fn own(descriptor: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match fcntl_dupfd_cloexec(descriptor, 3) {
            Err(Errno::BADF) => {
                Ok(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into())
            }
            other => Ok(other?),
        }
    }
    Ok([own(io::stdin().as_fd())?, own(io::stdout().as_fd())?, own(io::stderr().as_fd())?])
}

/// Puts what was typed into words that the monitor follows.
fn describe(options: &Options) -> Result<Wish, String> {
    let caller = target::caller();
    let target = target::find(options)?;
    let (program, arguments) = target::command(options, &caller, &target);
    let shown = Caller {
        name: &caller.name,
        uid: caller.uid,
        gid: caller.gid,
        command: in_one_line(&program, &arguments),
    };
    let environment = environment::make(std::env::vars_os(), options, &target, shown);
    let home = if target.home.is_dir() { target.home.as_path() } else { Path::new("/") };
    let workdir = match &options.folder {
        Some(folder) => Some(folder.clone()),
        None if options.login => Some(home.as_os_str().to_owned()),
        None => None,
    };
    let mask = umask(Mode::from_raw_mode(LEAST_MASK));
    umask(mask);
    Ok(Wish {
        program: c_string(program)?,
        arguments: arguments.into_iter().map(c_string).collect::<Result<_, _>>()?,
        environment: environment.into_iter().map(c_string).collect::<Result<_, _>>()?,
        workdir: workdir.map(c_string).transpose()?,
        uid: target.uid,
        gid: target.gid,
        groups: target.groups,
        mask: mask.as_raw_mode() | LEAST_MASK,
        terminal: false,
        background: options.background,
    })
}

fn c_string(text: OsString) -> Result<CString, String> {
    CString::new(text.into_vec()).map_err(|_| "a word holds a NUL byte".to_owned())
}

/// What is run, with the path of the program as far as the caller can see it.
fn in_one_line(program: &OsString, arguments: &[OsString]) -> OsString {
    let places = CString::new(program.as_bytes())
        .map_or_else(|_| Vec::new(), |name| candidates(&name, SYSTEM_PATH.as_bytes()));
    let exists =
        |place: &CString| Path::new(std::ffi::OsStr::from_bytes(place.as_bytes())).exists();
    let mut line = match places.into_iter().find(exists) {
        Some(path) => OsString::from_vec(path.into_bytes()),
        None => program.clone(),
    };
    for argument in arguments.iter().skip(1) {
        line.push(" ");
        line.push(argument);
    }
    line
}

/// Stands in for a program that was asked for.
struct Standing {
    conversation: OwnedFd,
    signals: OwnedFd,
    terminal: Option<Terminal>,
    background: bool,
}

impl Standing {
    /// Waits for the program's end, and ends the same way.
    fn wait(mut self) -> Result<ExitCode, String> {
        loop {
            let [spoken_to, signalled] = self.wait_for_news()?;
            if signalled {
                self.pass_on();
            }
            if !spoken_to {
                continue;
            }
            match Reply::receive(&self.conversation).map_err(|error| error.to_string())? {
                Some(Reply::Started) if self.background => return Ok(ExitCode::SUCCESS),
                Some(Reply::Started) => self.terminal.iter_mut().for_each(Terminal::take),
                // Without a terminal, whoever stopped it knows how to continue it.
                Some(Reply::Stopped) if self.terminal.is_none() => {}
                Some(Reply::Stopped) => self.stop(),
                Some(Reply::Exited(code)) => {
                    self.finish();
                    return Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
                }
                Some(Reply::Signalled(signal)) => {
                    self.finish();
                    return Ok(die_of(signal));
                }
                Some(Reply::Refused(why)) => return Err(why),
                Some(Reply::Allowed) => {}
                None => {
                    self.finish();
                    return Err("whoever watched over the program is gone".to_owned());
                }
            }
        }
    }

    /// Waits until there is a reply or a signal, and moves what is in the terminal.
    fn wait_for_news(&mut self) -> Result<[bool; 2], String> {
        let mut polled = vec![
            PollFd::from_borrowed_fd(self.conversation.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        if let Some(terminal) = &self.terminal {
            polled.extend(terminal.interests());
        }
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok([false, false]),
            Err(errno) => return Err(errno.to_string()),
        }
        let news = [!polled[0].revents().is_empty(), !polled[1].revents().is_empty()];
        drop(polled);
        if let Some(terminal) = &mut self.terminal
            && terminal.relay().is_err()
        {
            // The caller's terminal is gone: what ran in it hears so.
            self.tell(Signal::HUP);
        }
        Ok(news)
    }

    fn pass_on(&mut self) {
        while let Ok(Some(number)) = next_signal(&self.signals) {
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            match (&mut self.terminal, signal) {
                // Its own terminal tells the program.
                (Some(terminal), Signal::WINCH) => terminal.resize(),
                (Some(terminal), Signal::CONT) => {
                    terminal.take();
                    terminal.resize();
                    self.tell(signal);
                }
                (None, Signal::TSTP) => {
                    self.tell(signal);
                    self.stop();
                }
                _ => self.tell(signal),
            }
        }
    }

    fn tell(&self, signal: Signal) {
        if let Ok(number) = u8::try_from(signal.as_raw()) {
            let _ = fdpass::send(&self.conversation, &[number], &[], SendFlags::DONTWAIT);
        }
    }

    /// Stops with the program, so that the caller's shell can go on. A signal to continue
    /// continues both.
    fn stop(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.give_back();
        }
        let _ = kill_process(getpid(), Signal::STOP);
    }

    fn finish(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.finish();
        }
        self.terminal = None;
    }
}

/// Ends this process by a signal, as the program ended; by a code where that is not possible.
fn die_of(number: i32) -> ExitCode {
    if let Some(signal) = Signal::from_named_raw(number)
        && reset_signals().is_ok()
    {
        let _ = kill_process(getpid(), signal);
    }
    ExitCode::from(u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX))
}
