//! One process from its start until it is forgotten.
//!
//! Two tasks read its pipes, or one its terminal, and one watches over it. They belong to the process and not to the
//! request that started it, so a client that goes away ends nothing.
//!
//! ```text
//! started ──► the command ended ──► both pipes ended ──► over ──► forgotten
//!    │                                     ▲              after a while
//!    └── its time is over: all are killed ─┘
//! ```
//!
//! Between the command's end and the end of its pipes may lie a long time, when children that it
//! left behind still hold them. Nobody waits for those after a deadline or a signal that was
//! meant to end it, nor where there is a terminal: that hangs up with its command, and children
//! which held it are told so by the kernel.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::buf::Limit;
use bytes::{BufMut as _, BytesMut};
use guest_proto::process::ProcessConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use super::audience::Audience;
use super::blame::Before;
use super::ending::{Ending, Exit};
use super::event::Channel;
use super::felling::fell;
use super::launch::{Control, Ends, Launched};
use super::table::Table;
use super::terminal::{Opened, Size, Terminal};
use crate::keeper::{Order, Report};

/// The largest piece of output that is sent at once.
const CHUNK: usize = 32 << 10;

/// The same for a pipe through which much flows: every piece wakes everybody on its way.
const LARGE_CHUNK: usize = 128 << 10;

/// The same for a terminal.
const TERMINAL_CHUNK: usize = 16 << 10;

/// The size of a pipe through which much output flows. The kernel's own default is 64 KiB.
const LARGE_PIPE: usize = 1 << 20;

/// How long a deadline waits for the last of a killed tree to be gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long after the end of a command its terminal is still read, when others hold it too: the
/// last of what the command wrote may be on its way.
const HANG_UP: Duration = Duration::from_millis(100);

/// A process that the guest started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) tag: Option<String>,
    /// Its keeper, by process id.
    keeper: i32,
    pub(crate) audience: Audience,
    /// As it was asked for. Emptied at the end: nobody asks for it any more, and it may be large.
    config: Mutex<ProcessConfig>,
    stdin: tokio::sync::Mutex<Option<pipe::Sender>>,
    /// None when the process is over, or has pipes.
    terminal: Mutex<Option<Arc<Terminal>>>,
    has_terminal: bool,
    /// None when the process is over.
    control: Mutex<Option<Arc<Control>>>,
    /// Set when nobody shall wait for the pipes of a command that has ended.
    impatient: watch::Sender<bool>,
    /// How the command ended, once it has; its pipes may still be open.
    pub(super) exited: watch::Sender<Option<Ending>>,
}

impl Process {
    /// Takes charge of a process that was just started.
    pub(super) fn adopt(
        launched: Launched,
        config: ProcessConfig,
        tag: Option<String>,
        before: Before,
        table: &Table,
    ) -> (Arc<Self>, Watch) {
        let Launched { pid, keeper, control, ends, exec_errno } = launched;
        let control = Arc::new(control);
        table.keepers.add(keeper, &control);
        let (stdin, terminal, size, outputs, held) = match ends {
            Ends::Pipes { stdin, stdout, stderr } => {
                let outputs = vec![(Channel::Stdout, stdout), (Channel::Stderr, stderr)];
                (stdin, None, None, outputs, None)
            }
            Ends::Terminal { size, opened: Opened { terminal, reader, commands } } => {
                let outputs = vec![(Channel::Terminal, reader)];
                (None, Some(Arc::new(terminal)), Some(size), outputs, Some(commands))
            }
        };
        let process = Arc::new(Self {
            pid,
            tag,
            keeper,
            audience: Audience::new(Arc::clone(&table.budget), size),
            config: Mutex::new(config),
            stdin: tokio::sync::Mutex::new(stdin),
            has_terminal: terminal.is_some(),
            terminal: Mutex::new(terminal),
            control: Mutex::new(Some(Arc::clone(&control))),
            impatient: watch::Sender::new(false),
            exited: watch::Sender::new(None),
        });
        let watch = Watch {
            process: Arc::clone(&process),
            keeper,
            control,
            outputs,
            held,
            exec_errno,
            before,
        };
        (process, watch)
    }

    /// What was asked for.
    pub(super) fn config(&self) -> ProcessConfig {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes to standard input, waiting until the process has taken it.
    ///
    /// Not cancellation-safe: part of it may have been written.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdin = self.stdin.lock().await;
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "standard input is closed");
        stdin.as_mut().ok_or_else(closed)?.write_all(bytes).await
    }

    /// Ends standard input, after what is being written. Does nothing the second time.
    pub(super) async fn close_stdin(&self) {
        self.stdin.lock().await.take();
    }

    /// Whether it has, or had, a terminal instead of pipes.
    pub(super) fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// Types into the terminal, waiting until there is room.
    ///
    /// Not cancellation-safe: part of it may have been typed.
    pub(super) async fn type_in(&self, bytes: &[u8]) -> io::Result<()> {
        self.terminal()?.write(bytes).await
    }

    /// Changes the size of the terminal.
    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        self.terminal()?.resize(size)?;
        self.audience.resize(size);
        Ok(())
    }

    fn terminal(&self) -> io::Result<Arc<Terminal>> {
        let terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        terminal.ok_or_else(|| {
            let problem = if self.has_terminal { "is closed" } else { "is not there" };
            io::Error::new(io::ErrorKind::BrokenPipe, format!("its terminal {problem}"))
        })
    }

    /// Kills the command and everything below it.
    pub(super) fn kill(&self) -> io::Result<()> {
        let control = self.control()?;
        control.order(Order::Kill)?;
        self.impatient.send_replace(true);
        crate::spawn(fell(self.keeper, control));
        Ok(())
    }

    /// Sends a signal to the command's process group.
    pub(super) fn signal(&self, signal: i32, ends: bool) -> io::Result<()> {
        self.control()?.order(Order::Signal { signal })?;
        if ends {
            self.impatient.send_replace(true);
        }
        Ok(())
    }

    fn control(&self) -> io::Result<Arc<Control>> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner).clone();
        control.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the process is over"))
    }

    fn finish(&self, ending: Ending) {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).take();
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = ProcessConfig::default();
        // Somebody who still writes holds the lock and gets an error from the pipe.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            stdin.take();
        }
        if let Some(terminal) = self.terminal.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            terminal.close();
        }
        self.audience.finish(ending);
    }
}

/// The watch over one process.
#[derive(Debug)]
pub(super) struct Watch {
    process: Arc<Process>,
    keeper: i32,
    control: Arc<Control>,
    outputs: Vec<(Channel, pipe::Receiver)>,
    /// The command's end of a terminal.
    held: Option<OwnedFd>,
    exec_errno: Option<i32>,
    /// What was counted before it began.
    before: Before,
}

impl Watch {
    /// Sees the process through to its end.
    pub(super) async fn run(self, deadline: Option<Instant>, table: &Table) {
        let Self { process, keeper, control, outputs, held, mut exec_errno, before } = self;
        let (hurry, hurried) = watch::channel(false);
        let pumps: Vec<_> = outputs
            .into_iter()
            .map(|(channel, pipe)| {
                crate::spawn(pump(Arc::clone(&process), channel, pipe, hurried.clone()))
            })
            .collect();
        let pumped = async {
            for pump in pumps {
                // A pump has no reason to fail, and if it did its output would be over.
                let _ = pump.await;
            }
        };
        let mut pumped = pin!(pumped);
        let mut expiry = pin!(expire(deadline));
        let mut expired = false;

        let exit = loop {
            tokio::select! {
                report = control.report() => match report {
                    Ok(Some(Report::Exited { code })) => break Exit::Code(code),
                    Ok(Some(Report::Signalled { signal })) => break Exit::Signal(signal),
                    Ok(Some(Report::NotExecuted { errno })) => exec_errno = Some(errno),
                    Ok(Some(_)) => {}
                    // Only a kill without a choice, as at the end of memory, takes a keeper.
                    Ok(None) | Err(_) => break Exit::Signal(9),
                },
                () = &mut expiry, if !expired => {
                    expired = true;
                    let _ = process.kill();
                }
            }
        };
        let cause = before.blame(exit);
        // Of one whose time is over only the end is told, which says so.
        if !expired {
            process.exited.send_replace(Some(Ending { exit, exec_errno, expired, cause }));
        }
        let mut impatient = process.impatient.subscribe();
        let lingers = held.is_some();
        drop(held);
        let mut is_timed = !expired;
        loop {
            tokio::select! {
                () = &mut pumped => break,
                () = set(&mut impatient) => {}
                () = sleep(HANG_UP), if lingers => {}
                () = &mut expiry, if is_timed => {
                    is_timed = false;
                    if !process.audience.is_followed() {
                        // The command ended in its time, and whoever had asked for it has gone with
                        // that answer: what it left running is nobody's to end.
                        continue;
                    }
                    expired = true;
                    let _ = process.kill();
                }
            }
            hurry.send_replace(true);
            pumped.await;
            break;
        }
        if expired {
            // Whoever hears of the deadline may count on the tree being gone.
            let gone = async { while let Ok(Some(_)) = control.report().await {} };
            let _ = timeout(PATIENCE, gone).await;
        }
        process.finish(Ending { exit, exec_errno, expired, cause });
        table.ended(process);
        table.keepers.see_off(keeper, control).await;
    }
}

/// Waits until the flag is set.
async fn set(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|set| *set).await;
}

/// Waits for the deadline, or forever.
async fn expire(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Reads what is there, or waits for it.
async fn read(
    pipe: &mut pipe::Receiver,
    channel: Channel,
    space: &mut Limit<&mut BytesMut>,
) -> io::Result<usize> {
    if channel != Channel::Terminal {
        return pipe.read_buf(space).await;
    }
    // A short read from a pipe means that it is empty now, and the runtime counts on it. From a
    // terminal it means nothing.
    loop {
        match pipe.try_read_buf(space) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => pipe.readable().await?,
            other => return other,
        }
    }
}

/// Carries output from a pipe to the audience, until the pipe ends or there is a hurry.
async fn pump(
    process: Arc<Process>,
    channel: Channel,
    mut pipe: pipe::Receiver,
    mut hurried: watch::Receiver<bool>,
) {
    let mut buffer = BytesMut::new();
    let mut large = false;
    loop {
        // Small pieces share a buffer, large ones get their own: nothing is copied either way.
        let most = match channel {
            Channel::Terminal => TERMINAL_CHUNK,
            _ if large => LARGE_CHUNK,
            _ => CHUNK,
        };
        buffer.reserve(most);
        let mut space = (&mut buffer).limit(most);
        let read = tokio::select! {
            biased;
            read = read(&mut pipe, channel, &mut space) => read,
            () = set(&mut hurried) => break,
        };
        // The end of a terminal is an error.
        let Ok(length @ 1..) = read else { return };
        process.audience.publish(channel, buffer.split().freeze()).await;
        if channel == Channel::Terminal {
            // What a screen does with it may take a while: the others get their turn.
            tokio::task::yield_now().await;
        }
        if length == CHUNK && !large {
            large = true;
            // It may be refused when the user's pipes are large already; then it stays small.
            let _ = rustix::pipe::fcntl_setpipe_size(&pipe, LARGE_PIPE);
        }
    }
    // What is in the pipe already is still carried, and no more than fits into one: somebody
    // may go on writing.
    let mut left = LARGE_PIPE;
    while left > 0 {
        buffer.reserve(CHUNK);
        let mut space = (&mut buffer).limit(CHUNK);
        let Ok(length @ 1..) = pipe.try_read_buf(&mut space) else { return };
        left = left.saturating_sub(length);
        process.audience.publish(channel, buffer.split().freeze()).await;
    }
}
