//! Holds process 1 of a sandbox from outside.
//!
//! The supervisor is its parent, so it alone learns why it ended, and it writes that down. It
//! enforces the sandbox's time also when the engine and the daemon are gone. It runs as the
//! sandbox's own base id, which is enough to kill process 1, and takes nothing from inside.
//!
//! Descriptors at the start: 3 listens for engines that were started later, 4 is the record,
//! 5 leads to the engine that launched it. An [`Order`] may come on either. Until the sandbox
//! is [kept](Order::Keep), it ends when that engine does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use domain::Ending;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sys_linux::fdpass;

/// What an engine can order: one byte, and a number where one is needed. The answer is `.` when it
/// holds, `x` when the sandbox is ending, `!` when it failed and `?` when it was not understood.
enum Order {
    /// `K`: the sandbox goes on when the engine that launched it is gone.
    Keep,
    /// `T` and milliseconds: its time is over so long from now; zero is never.
    Time(u64),
    /// `S`: end it.
    Stop,
    /// `F`: end it, for want of room on the host's disk.
    Full,
}

impl Order {
    fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            b"K" => Some(Self::Keep),
            b"S" => Some(Self::Stop),
            b"F" => Some(Self::Full),
            [b'T', number @ ..] => Some(Self::Time(u64::from_le_bytes(number.try_into().ok()?))),
            _ => None,
        }
    }
}

/// Runs the supervisor of the process whose id is the argument.
pub(crate) fn run(arguments: &[OsString]) -> io::Result<ExitCode> {
    // It was executed by the number of a descriptor, which says little in a list of processes.
    rustix::thread::set_name(c"soma-supervisor")?;
    let listener = fdpass::inherited(3)?;
    let record = fdpass::inherited(4)?;
    let engine = fdpass::inherited(5)?;
    // Our own program: it was kept open to be executed, and is not needed any more.
    drop(fdpass::inherited(6));
    let first = arguments
        .first()
        .and_then(|text| text.to_str()?.parse().ok())
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("supervise needs the id of process 1"))?;
    let mut supervisor = Supervisor {
        first: pidfd_open(first, PidfdFlags::empty())?,
        timer: timerfd_create(
            // Counts while the host sleeps, and does not move with the wall clock.
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?,
        listener,
        engines: vec![engine],
        kept: false,
        killed: None,
    };
    let ending = supervisor.watch()?;
    File::from(record).write_all(serde_json::to_string(&ending)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

struct Supervisor {
    first: OwnedFd,
    timer: OwnedFd,
    listener: OwnedFd,
    /// The launching engine first, as long as it is there; then those that came later.
    engines: Vec<OwnedFd>,
    kept: bool,
    killed: Option<Ending>,
}

impl Supervisor {
    /// Serves until process 1 ended, and says why it did.
    fn watch(&mut self) -> io::Result<Ending> {
        loop {
            let mut descriptors = vec![
                PollFd::new(&self.first, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            let engines = self.engines.iter();
            descriptors.extend(engines.map(|engine| PollFd::new(engine, PollFlags::IN)));
            match poll(&mut descriptors, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> =
                descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
            if ready[0] {
                return self.reap();
            }
            if ready[1] {
                self.end(Ending::TimedOut);
            }
            if ready[2] {
                self.accept();
            }
            // From the back, so that removing one does not move those still to be served.
            for index in (0..ready.len() - 3).rev().filter(|index| ready[index + 3]) {
                self.serve(index);
            }
        }
    }

    fn accept(&mut self) {
        if let Ok(engine) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
            self.engines.push(engine);
        }
    }

    fn serve(&mut self, index: usize) {
        let mut bytes = [0; 16];
        let received = fdpass::receive(&self.engines[index], &mut bytes, RecvFlags::DONTWAIT);
        match received {
            Ok((0, _)) | Err(_) => {
                self.engines.remove(index);
                if self.engines.is_empty() && !self.kept {
                    self.end(Ending::Stopped);
                }
            }
            Ok((length, _)) => {
                let answer: &[u8] = match Order::parse(&bytes[..length]) {
                    Some(order) => self.obey(&order),
                    None => b"?",
                };
                let engine = self.engines[index].as_fd();
                let _ = fdpass::send(engine, answer, &[], SendFlags::DONTWAIT);
            }
        }
    }

    fn obey(&mut self, order: &Order) -> &'static [u8] {
        match order {
            Order::Keep => self.kept = true,
            Order::Stop => self.end(Ending::Stopped),
            // Its time is over, or somebody stopped it: no more of it can be had.
            Order::Time(_) if self.killed.is_some() => return b"x",
            Order::Full => self.end(Ending::HostFull),
            Order::Time(milliseconds) => {
                if self.set_timer(Duration::from_millis(*milliseconds)).is_err() {
                    return b"!";
                }
            }
        }
        b"."
    }

    fn set_timer(&self, after: Duration) -> io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(after.subsec_nanos()),
        };
        let times = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }

    /// Kills process 1, and with it everything in its namespace. The first reason counts.
    fn end(&mut self, why: Ending) {
        self.killed.get_or_insert(why);
        // It may have ended in this moment: then there is nothing to kill.
        let _ = pidfd_send_signal(&self.first, Signal::KILL);
        let _ = self.set_timer(Duration::ZERO);
    }

    fn reap(&mut self) -> io::Result<Ending> {
        let status = waitid(WaitId::PidFd(self.first.as_fd()), WaitIdOptions::EXITED)?;
        if let Some(why) = self.killed.take() {
            return Ok(why);
        }
        let status = status.ok_or_else(|| io::Error::other("process 1 did not end"))?;
        if let Some(code) = status.exit_status() {
            return Ok(Ending::Exited { code });
        }
        Ok(Ending::Signalled { signal: status.terminating_signal().unwrap_or_default() })
    }
}
