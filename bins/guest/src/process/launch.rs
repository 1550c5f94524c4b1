//! Starts a process through the spawner.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Uid;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;

use super::terminal::{Opened, Size, Terminal};
use crate::keeper::{Order, Report};
use crate::spawner::{Body, Command, Request};

/// As many requests as are on their way at once. Each has five descriptors in the socket, and
/// the kernel allows a user no more of those than open files.
const MOST_AT_ONCE: usize = 32;

/// The guest's ends of the sockets to the spawners.
#[derive(Debug)]
pub(crate) struct Spawner {
    workload: UnixDatagram,
    /// The one with processes of its own, where there is one.
    reserve: Option<UnixDatagram>,
    turns: Semaphore,
}

/// A process that was just started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: u32,
    /// Its keeper, by process id.
    pub(crate) keeper: i32,
    pub(crate) control: Control,
    pub(crate) ends: Ends,
    /// The program could not be executed, as far as is known yet.
    pub(crate) exec_errno: Option<i32>,
}

/// What a process is given for its input and output.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish<'a> {
    /// Pipes. Without an open standard input it reads from `/dev/null`.
    Pipes { stdin: bool },
    /// A terminal.
    Terminal(Size),
    /// An input that is there already, pipes for output, and what it finds at 3, 4, 5.
    Given { stdin: BorrowedFd<'a>, further: &'a [BorrowedFd<'a>] },
}

/// The guest's ends of it.
#[derive(Debug)]
pub(crate) enum Ends {
    Pipes { stdin: Option<pipe::Sender>, stdout: pipe::Receiver, stderr: pipe::Receiver },
    Terminal { size: Size, opened: Opened },
}

impl Spawner {
    /// Takes over the guest's ends of the sockets.
    pub(crate) fn new(workload: OwnedFd, reserve: Option<OwnedFd>) -> io::Result<Self> {
        let (workload, reserve) = (watched(workload)?, reserve.map(watched).transpose()?);
        Ok(Self { workload, reserve, turns: Semaphore::new(MOST_AT_ONCE) })
    }

    /// Waits until the workload's spawner is gone. It never says anything, so this is all it is
    /// read for. A sandbox whose reserve is gone does without.
    pub(crate) async fn gone(&self) {
        loop {
            let read = self.workload.async_io(Interest::READABLE, || {
                Ok(rustix::io::read(&self.workload, &mut [0; 16])?)
            });
            if !matches!(read.await, Ok(1..)) {
                return;
            }
        }
    }

    /// Starts a command; in the reserve when the workload is at its limit of processes.
    pub(crate) async fn launch(&self, command: &Command, wish: Wish<'_>) -> io::Result<Launched> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let body = command.to_file()?;
        let full = match (launch_at(&self.workload, command, &body, wish).await, &self.reserve) {
            (Err(full), Some(_)) if Errno::from_io_error(&full) == Some(Errno::AGAIN) => full,
            (other, _) => return other,
        };
        let Some(reserve) = &self.reserve else { return Err(full) };
        // Why the reserve cannot either is of no use to anybody: it has no limits to be told of.
        launch_at(reserve, command, &body, wish).await.map_err(|_| full)
    }
}

/// Starts a command through one spawner.
async fn launch_at(
    spawner: &UnixDatagram,
    command: &Command,
    body: &Body,
    wish: Wish<'_>,
) -> io::Result<Launched> {
    let mut further: &[BorrowedFd<'_>] = &[];
    let (ends, [child_stdin, child_stdout, child_stderr]) = match wish {
        Wish::Pipes { stdin } => pipes(stdin)?,
        Wish::Given { stdin, further: given } => {
            further = given;
            let (ends, [_, stdout, stderr]) = pipes(false)?;
            for end in [&stdout, &stderr] {
                // So that it can open them by name; what fails here fails only there.
                let _ = rustix::fs::fchown(end, Some(Uid::from_raw(command.uid)), None);
            }
            (ends, [fcntl_dupfd_cloexec(stdin, 0)?, stdout, stderr])
        }
        Wish::Terminal(size) => terminal(size, command.uid)?,
    };
    let (control, keepers) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let control = Control::new(control)?;
    let child = [child_stdin.as_fd(), child_stdout.as_fd(), child_stderr.as_fd(), keepers.as_fd()];
    spawner.async_io(Interest::WRITABLE, || Request::send(spawner, body, child, further)).await?;
    drop((child_stdin, child_stdout, child_stderr, keepers));

    let mut exec_errno = None;
    let mut keeper = 0;
    loop {
        match control.report().await? {
            Some(Report::Started { pid }) => {
                let pid = u32::try_from(pid).map_err(io::Error::other)?;
                return Ok(Launched { pid, keeper, control, ends, exec_errno });
            }
            Some(Report::Keeper { pid }) => keeper = pid,
            Some(Report::NotExecuted { errno }) => exec_errno = Some(errno),
            Some(Report::Failed { errno }) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Some(Report::Exited { .. } | Report::Signalled { .. }) | None => {
                return Err(io::Error::other("its keeper is gone"));
            }
        }
    }
}

/// The guest's end of the socket to a command's keeper.
#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixDatagram,
}

impl Control {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: watched(socket)? })
    }

    /// The next report; none when the keeper has left.
    pub(crate) async fn report(&self) -> io::Result<Option<Report>> {
        let report = self.socket.async_io(Interest::READABLE, || Report::receive(&self.socket));
        match report.await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            other => other,
        }
    }

    /// Tells the keeper what to do.
    pub(crate) fn order(&self, order: Order) -> io::Result<()> {
        order.send(&self.socket, &[])
    }

    /// Whether the keeper has left.
    pub(crate) fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_err() || !polled[0].revents().is_empty()
    }

    /// Has the keeper run what one of its processes asked for with `sudo`.
    pub(crate) fn pass_on(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        Order::Sudo.send(&self.socket, descriptors)
    }
}

/// Lets the runtime watch a socket. It is one of packets in sequence, for which tokio has no
/// type; that for datagrams differs in nothing but the calls to connect, which are not made.
fn watched(socket: OwnedFd) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(nonblocking(socket)?.into())
}

/// Pipes: our ends, and the three of the child.
fn pipes(stdin: bool) -> io::Result<(Ends, [OwnedFd; 3])> {
    let (child_stdin, stdin) = if stdin {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        (reader, Some(pipe::Sender::from_owned_fd_unchecked(nonblocking(writer)?)?))
    } else {
        (File::open("/dev/null")?.into(), None)
    };
    let (stdout, child_stdout) = output_pipe()?;
    let (stderr, child_stderr) = output_pipe()?;
    Ok((Ends::Pipes { stdin, stdout, stderr }, [child_stdin, child_stdout, child_stderr]))
}

/// A terminal: our end, and three times the child's.
fn terminal(size: Size, uid: u32) -> io::Result<(Ends, [OwnedFd; 3])> {
    let opened = Terminal::open(size, uid)?;
    let child = || fcntl_dupfd_cloexec(&opened.commands, 0);
    let child = [child()?, child()?, child()?];
    Ok((Ends::Terminal { size, opened }, child))
}

/// A pipe: our end, which does not block, and the child's, which does.
fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((pipe::Receiver::from_owned_fd_unchecked(nonblocking(reader)?)?, writer))
}

fn nonblocking(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    Ok(descriptor)
}
