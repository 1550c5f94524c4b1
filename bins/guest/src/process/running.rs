//! One process from its start until it is forgotten.
//!
//! Two tasks read its pipes and one watches over it. They belong to the process and not to the
//! request that started it, so a client that goes away ends nothing.
//!
//! ```text
//! started ──► the command ended ──► both pipes ended ──► over ──► forgotten
//!    │                                     ▲              after 30 s
//!    └── its time is over: all are killed ─┘
//! ```
//!
//! Between the command's end and the end of its pipes may lie a long time, when children that it
//! left behind still hold them. Nobody waits for those after a deadline or a signal that was
//! meant to end it.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, BytesMut};
use guest_proto::process::ProcessConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::audience::Audience;
use super::ending::{Ending, Exit};
use super::event::Channel;
use super::launch::{Control, Launched};
use super::table::Table;
use crate::keeper::{Order, Report};

/// The largest piece of output that is sent at once.
const CHUNK: usize = 32 << 10;

/// The size of a pipe through which much output flows. The kernel's own default is 64 KiB.
const LARGE_PIPE: usize = 1 << 20;

/// How long a deadline waits for the last of a killed tree to be gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// A process that the guest started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) tag: Option<String>,
    pub(crate) audience: Audience,
    /// As it was asked for. Emptied at the end: nobody asks for it any more, and it may be large.
    config: Mutex<ProcessConfig>,
    stdin: tokio::sync::Mutex<Option<pipe::Sender>>,
    /// None when the process is over.
    control: Mutex<Option<Arc<Control>>>,
    /// Set when nobody shall wait for the pipes of a command that has ended.
    impatient: watch::Sender<bool>,
}

impl Process {
    /// Takes charge of a process that was just started.
    pub(super) fn adopt(
        launched: Launched,
        config: ProcessConfig,
        tag: Option<String>,
    ) -> (Arc<Self>, Watch) {
        let Launched { pid, control, stdin, stdout, stderr, exec_errno } = launched;
        let control = Arc::new(control);
        let process = Arc::new(Self {
            pid,
            tag,
            audience: Audience::default(),
            config: Mutex::new(config),
            stdin: tokio::sync::Mutex::new(stdin),
            control: Mutex::new(Some(Arc::clone(&control))),
            impatient: watch::Sender::new(false),
        });
        let watch = Watch { process: Arc::clone(&process), control, stdout, stderr, exec_errno };
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

    /// Kills the command and everything below it.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.order(Order::Kill)?;
        self.impatient.send_replace(true);
        Ok(())
    }

    /// Sends a signal to the command's process group.
    pub(super) fn signal(&self, signal: i32, ends: bool) -> io::Result<()> {
        self.order(Order::Signal { signal })?;
        if ends {
            self.impatient.send_replace(true);
        }
        Ok(())
    }

    fn order(&self, order: Order) -> io::Result<()> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let over = || io::Error::new(io::ErrorKind::NotFound, "the process is over");
        control.ok_or_else(over)?.order(order)
    }

    fn finish(&self, ending: Ending) {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).take();
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = ProcessConfig::default();
        // Somebody who still writes holds the lock and gets an error from the pipe.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            stdin.take();
        }
        self.audience.finish(ending);
    }
}

/// The watch over one process.
#[derive(Debug)]
pub(super) struct Watch {
    process: Arc<Process>,
    control: Arc<Control>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    exec_errno: Option<i32>,
}

impl Watch {
    /// Sees the process through to its end.
    pub(super) async fn run(self, deadline: Option<Instant>, table: &Table) {
        let Self { process, control, stdout, stderr, mut exec_errno } = self;
        let (hurry, hurried) = watch::channel(false);
        let pumps =
            [(Channel::Stdout, stdout), (Channel::Stderr, stderr)].map(|(channel, pipe)| {
                crate::spawn(pump(Arc::clone(&process), channel, pipe, hurried.clone()))
            });
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
        let mut impatient = process.impatient.subscribe();
        tokio::select! {
            () = &mut pumped => {}
            () = set(&mut impatient) => {
                hurry.send_replace(true);
                pumped.await;
            }
            () = &mut expiry, if !expired => {
                expired = true;
                let _ = process.kill();
                hurry.send_replace(true);
                pumped.await;
            }
        }
        if expired {
            // Whoever hears of the deadline may count on the tree being gone.
            let gone = async { while let Ok(Some(_)) = control.report().await {} };
            let _ = timeout(PATIENCE, gone).await;
        }
        drop(control);
        process.finish(Ending { exit, exec_errno, expired });
        table.ended(process);
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
        buffer.reserve(CHUNK);
        let mut space = (&mut buffer).limit(CHUNK);
        let read = tokio::select! {
            biased;
            read = pipe.read_buf(&mut space) => read,
            () = set(&mut hurried) => break,
        };
        let Ok(length @ 1..) = read else { return };
        process.audience.publish(channel, buffer.split().freeze()).await;
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
