//! What a launcher makes, and the engine keeps until it is swept away.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::{Limits, SandboxId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use sys_linux::descriptors::close_all_but;
use sys_linux::fdpass;
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::process::unblock_signals;

use super::clients::Waiter;
use super::hibernate::Sleeping;
use super::pause::Pausing;
use crate::cgroup::Group;
use crate::failure::{Failure, Step};
use crate::ids::IdRange;
use crate::remove::remove;
use crate::template::Ground;

/// A supervisor that takes longer than this for an order does not do its work.
const LONGEST_ORDER: Duration = Duration::from_secs(10);

/// A launcher that takes longer than this will not come to an end.
pub(super) const LONGEST_LAUNCH: Duration = Duration::from_secs(30);

/// The same for one that copies an image's files first.
pub(super) const LONGEST_COPY: Duration = Duration::from_mins(15);

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Body {
    /// The name of its cgroups.
    pub(super) slot: String,
    pub(super) folder: PathBuf,
    /// Whether the folder is that of a sandbox which ran before, and stays when this body ends.
    pub(super) again: bool,
    /// The file in there that says why it ended.
    pub(super) ended: String,
    /// Whether whoever it was launched for was told that it is not theirs.
    pub(super) disowned: bool,
    pub(super) ids: IdRange,
    pub(super) ground: Ground,
    pub(super) guest: String,
    /// Some limits cannot be changed once a body stands.
    pub(super) made_for: Limits,
    pub(super) group: Group,
    /// The launcher's report comes here; later it tells the supervisor what to do.
    pub(super) link: Option<OwnedFd>,
    pub(super) supervisor: Pid,
    /// Gone once it was reaped.
    pub(super) supervisor_descriptor: Option<OwnedFd>,
    pub(super) stage: Stage,
    pub(super) owner: Option<SandboxId>,
    /// The orders that its supervisor has not answered yet, as they were given.
    pub(super) unanswered: VecDeque<Given>,
    /// Who hears why it ended.
    pub(super) until_end: Vec<Waiter>,
    /// Whether it stands still.
    pub(super) frozen: bool,
    /// It is about to.
    pub(super) pausing: Option<Pausing>,
    /// It is being put on the disk.
    pub(super) sleeping: Option<Sleeping>,
    /// It is on the disk, and what is left of it ends.
    pub(super) dumped: bool,
    /// It was restored, and does nothing before a byte is written here.
    pub(super) hold: Option<OwnedFd>,
    /// Its images were used up, and are to be removed.
    pub(super) used_up: bool,
}

/// An order that was given.
pub(super) struct Given {
    /// Who is to hear that it was obeyed.
    waiter: Option<Waiter>,
    /// Whether the sandbox is frozen once it was.
    then_freeze: bool,
    since: Instant,
}

/// What a supervisor says to an order, for whoever waits for it.
#[derive(Clone, Copy)]
pub(super) enum Obeyed {
    /// It holds.
    Yes(Waiter),
    /// The sandbox is ending.
    TooLate(Waiter),
    /// It could not be done.
    No(Waiter),
    /// Its clock is switched off, so that it can be frozen; or it is not.
    ClockOff(bool),
}

pub(super) enum Stage {
    /// It will not come to stand any more once this moment is over.
    Launching {
        until: Instant,
    },
    Ready(Reach),
    /// It is being killed, or ended by itself; swept when its processes are gone.
    Ending {
        since: Instant,
    },
}

/// How a body that stands is reached.
pub(super) struct Reach {
    pub(super) first: Pid,
    pub(super) first_descriptor: OwnedFd,
    pub(super) network: File,
    pub(super) names: File,
}

impl Reach {
    /// Opens the namespaces of a first process.
    pub(super) fn open(first: Pid, first_descriptor: OwnedFd) -> Result<Self, Failure> {
        let open = |name: &str| {
            File::open(format!("/proc/{}/ns/{name}", first.as_raw_pid()))
                .step("open the sandbox's namespaces")
        };
        Ok(Self { first, first_descriptor, network: open("net")?, names: open("uts")? })
    }
}

impl Body {
    /// Whether the loop must look again soon without being told.
    pub(super) fn wants_attention(&self) -> bool {
        matches!(self.stage, Stage::Ending { .. })
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.owner.is_none() && matches!(self.stage, Stage::Ready(_))
    }

    pub(super) fn is_launching(&self) -> bool {
        matches!(self.stage, Stage::Launching { .. })
    }

    /// Gives an order to the supervisor. It is obeyed also when the engine dies now: what was
    /// sent is read before the end of the connection is.
    pub(super) fn order(&mut self, order: &[u8]) -> Result<(), Failure> {
        self.give(order, None)
    }

    /// Lets its time be over so long from now, or never. Whoever waits is answered when the
    /// supervisor has it: its time may be over in this moment.
    pub(super) fn order_time(
        &mut self,
        timeout: Option<Duration>,
        waiter: Option<Waiter>,
    ) -> Result<(), Failure> {
        // Zero is never, so what is over at once is over in a moment.
        let milliseconds = timeout
            .map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1));
        self.give(&[b"T".as_slice(), &milliseconds.to_le_bytes()].concat(), waiter)
    }

    /// Has the supervisor switch its clock off. It is frozen too, and would find its time to be over
    /// when it goes on.
    pub(super) fn order_no_time(&mut self) -> Result<(), Failure> {
        self.order_time(None, None)?;
        self.unanswered.back_mut().into_iter().for_each(|given| given.then_freeze = true);
        Ok(())
    }

    fn give(&mut self, order: &[u8], waiter: Option<Waiter>) -> Result<(), Failure> {
        let step = "give the supervisor an order";
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from);
        let link = link.step(step)?;
        fdpass::send(link, order, &[], SendFlags::DONTWAIT).step(step)?;
        let given = Given { waiter, then_freeze: false, since: Instant::now() };
        self.unanswered.push_back(given);
        Ok(())
    }

    /// Takes the supervisor's answer to the oldest order.
    pub(super) fn hear_answer(&mut self, answer: &[u8]) -> Option<Obeyed> {
        let given = self.unanswered.pop_front()?;
        if given.then_freeze {
            return Some(Obeyed::ClockOff(answer == b"."));
        }
        let waiter = given.waiter?;
        Some(match answer {
            b"." => Obeyed::Yes(waiter),
            b"x" => Obeyed::TooLate(waiter),
            _ => Obeyed::No(waiter),
        })
    }

    /// Somebody hears of its end when that is known.
    pub(super) fn wait_for_end(&mut self, waiter: Waiter) {
        self.until_end.push(waiter);
    }

    /// Who waits for a supervisor's answer, which will not come any more or takes too long.
    pub(super) fn give_up_orders(&mut self, is_over: bool) -> Vec<Waiter> {
        let is_late = |given: &Given| given.since.elapsed() > LONGEST_ORDER;
        let given = self.unanswered.iter_mut().filter(|given| is_over || is_late(given));
        let mut waiting: Vec<Waiter> = given.filter_map(|given| given.waiter.take()).collect();
        if is_over {
            waiting.append(&mut self.until_end);
        }
        waiting
    }

    /// Whether somebody waits for the supervisor.
    pub(super) fn is_waited_for(&self) -> bool {
        self.pausing.is_some() || self.unanswered.iter().any(|given| given.waiter.is_some())
    }

    /// Whether it stands and is about to fall: its first process or its supervisor ended, and
    /// nobody took note yet.
    pub(super) fn is_falling(&self) -> bool {
        let Stage::Ready(reach) = &self.stage else { return false };
        self.has_ended() || is_readable(&reach.first_descriptor)
    }

    /// Whether the supervisor ended, be it noted or not.
    pub(super) fn has_ended(&self) -> bool {
        self.supervisor_descriptor.as_ref().is_none_or(is_readable)
    }

    /// It does not become its owner's, whose id is returned. One that was launched for a sandbox
    /// that ran before stays known as that one's, because it works in its folder.
    pub(super) fn disown(&mut self) -> Option<SandboxId> {
        self.disowned = true;
        if self.again { self.owner.clone() } else { self.owner.take() }
    }

    /// Starts its end. The supervisor notices and ends too, and then the body is swept.
    pub(super) fn kill(&mut self) {
        match &self.stage {
            Stage::Ready(reach) => {
                let _ = pidfd_send_signal(&reach.first_descriptor, Signal::KILL);
                self.let_go();
            }
            Stage::Launching { .. } => self.kill_all(),
            Stage::Ending { .. } => return,
        }
        self.stage = Stage::Ending { since: Instant::now() };
    }

    /// Lets it go on if it stands still: to end, since it was told so.
    pub(super) fn let_go(&mut self) {
        if std::mem::take(&mut self.frozen) || self.pausing.is_some() {
            // Where this fails it is tried again with every kill.
            let _ = self.group.thaw();
        }
    }

    /// What takes too long is helped along.
    pub(super) fn hurry(&mut self) {
        match self.stage {
            Stage::Launching { until } if Instant::now() > until => self.kill(),
            Stage::Ending { since } if since.elapsed() > Duration::from_secs(2) => self.kill_all(),
            _ => {}
        }
    }

    fn kill_all(&self) {
        self.group.kill();
        if let Some(supervisor) = &self.supervisor_descriptor {
            let _ = pidfd_send_signal(supervisor, Signal::KILL);
        }
    }

    /// Takes note that the supervisor ended.
    pub(super) fn reap(&mut self) {
        if let Some(supervisor) = &self.supervisor_descriptor {
            // One that an earlier engine started is not ours to reap.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(supervisor.as_fd()), options);
        }
        self.supervisor_descriptor = None;
        self.link = None;
        if !matches!(self.stage, Stage::Ending { .. }) {
            self.stage = Stage::Ending { since: Instant::now() };
        }
    }

    /// Whether nothing of its processes and cgroups is left.
    pub(super) fn is_dead(&self) -> bool {
        if self.supervisor_descriptor.is_some() {
            return false;
        }
        let removed = self.group.remove().is_ok();
        if !removed {
            // Somebody is still in there: dying, or forked in the last moment.
            self.group.kill();
        }
        removed
    }
}

/// Whether a process ended, by its descriptor.
fn is_readable(process: &OwnedFd) -> bool {
    let mut look = [PollFd::new(process, PollFlags::IN)];
    poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Removes a folder in a process of its own: the host's file system may take its time for it,
/// and everybody else would wait. The descriptor becomes readable when it is done.
pub(super) fn remove_folder(folder: &Path) -> io::Result<OwnedFd> {
    match fork(Namespaces::NONE)? {
        Side::Child => {
            let _ = close_all_but(&[]);
            let _ = unblock_signals();
            let removed = remove(folder);
            leave(i32::from(removed.is_err() && folder.exists()))
        }
        Side::Parent(sweeper) => Ok(pidfd_open(sweeper, PidfdFlags::empty())?),
    }
}
