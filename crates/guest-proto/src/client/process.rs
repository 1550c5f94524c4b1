//! Calls on processes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::client::{CallOptions, ServerStream};
use tokio::time::{Instant, timeout_at};

use super::error::harmless;
use super::terminal::TerminalSize;
use super::transport::GuestBody;
use super::{EVENT_LIMIT, GuestClient, GuestError, as_user, short};
use crate::process::__buffa::oneof::{process_input, process_selector};
use crate::process::__buffa::view::oneof::process_event as seen;
use crate::process::__buffa::view::process_event::EndEventView;
use crate::process::{
    CloseStdinRequest, ConnectRequest, ConnectResponseView, ListRequest, PTY, ProcessConfig,
    ProcessEventView, ProcessInfo, ProcessInput, ProcessSelector, SendInputRequest,
    SendSignalRequest, Signal, StartRequest, StartResponseView,
};
use crate::version::OFFSETS;

/// How much longer than the process's own time limit its stream is waited for. The guest ends
/// the process and says so; this is for a guest that does not.
const GRACE: Duration = Duration::from_secs(3);

/// What to start, and how.
#[derive(Clone, Default)]
pub struct StartOptions {
    /// The program: a path, or a name that is looked up in the sandbox.
    pub cmd: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables on top of the sandbox's own.
    pub env: BTreeMap<String, String>,
    /// Where it starts; the user's home when unset.
    pub cwd: Option<String>,
    /// Whose process it is; the sandbox's default user when unset.
    pub user: Option<String>,
    /// Whether it has a standard input that can be fed.
    pub stdin: bool,
    /// When the guest ends it and all below it; never when unset.
    pub timeout: Option<Duration>,
    /// Gives it a terminal of this size instead of pipes.
    pub terminal: Option<TerminalSize>,
    /// A name by which it can be found beside its id.
    pub tag: Option<String>,
    /// Whether to hear that it ended ([`Event::Exited`]) although children hold its output open.
    /// A guest of an earlier version does not tell.
    pub tells_exit: bool,
}

impl fmt::Debug for StartOptions {
    /// Arguments and values may hold secrets: only their number is shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StartOptions")
            .field("cmd", &self.cmd)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .field("user", &self.user)
            .field("stdin", &self.stdin)
            .field("timeout", &self.timeout)
            .field("terminal", &self.terminal)
            .field("tag", &self.tag)
            .field("tells_exit", &self.tells_exit)
            .finish()
    }
}

/// What happened to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It runs. Always the first event.
    Started {
        /// Its id inside the sandbox.
        pid: u32,
    },
    /// It wrote to its standard output.
    Stdout(Bytes),
    /// It wrote to its standard error.
    Stderr(Bytes),
    /// It wrote to its terminal, or its screen is drawn anew for somebody who connects.
    Terminal(Bytes),
    /// Some of the output that was asked for by offset is no longer there.
    Dropped {
        /// The offset of the first byte that is missing.
        from: u64,
        /// The offset at which the output goes on.
        to: u64,
    },
    /// It ended, and children that it left behind may go on writing. For those who asked.
    Exited(Ended),
    /// It ended, and its output is complete. Always the last event.
    Ended(Ended),
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// What it left with; -1 when a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The ending in words, such as `exit status 1`.
    pub status: String,
    /// What went wrong, when something did.
    pub error: Option<String>,
    /// The error number with which the program could not be executed at all.
    pub exec_errno: Option<i32>,
    /// What the guest knows of why it failed, as a word. A guest of an earlier version tells none.
    pub cause: Option<String>,
}

/// A process that is followed. Dropping this stops following it; the process goes on.
#[derive(Debug)]
pub struct Running {
    stream: Stream,
    deadline: Option<Instant>,
    offset: Option<u64>,
    ended: bool,
}

#[derive(Debug)]
enum Stream {
    Started(ServerStream<GuestBody, StartResponseView<'static>>),
    Connected(ServerStream<GuestBody, ConnectResponseView<'static>>),
}

impl Running {
    /// The next thing that happens; `None` after the process ended.
    ///
    /// Cancellation-safe: an event that was not returned comes with the next call.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        while !self.ended {
            let step = self.stream.step();
            let seen = match self.deadline {
                None => step.await?,
                Some(deadline) => timeout_at(deadline, step).await.map_err(|_| {
                    let message = "the guest did not end the process in time".to_owned();
                    GuestError::DeadlineExceeded { message }
                })??,
            };
            match seen {
                Step::Event { event, offset } => {
                    self.offset = offset.or(self.offset);
                    self.ended = matches!(event, Event::Ended(_));
                    return Ok(Some(event));
                }
                Step::Nothing => {}
                Step::Over => {
                    let message = "its stream was over before the process was".to_owned();
                    return Err(GuestError::Unavailable { message });
                }
            }
        }
        Ok(None)
    }

    /// Where in the process's output the next event begins: what to give to
    /// [`GuestClient::connect_from`] when this stream is lost. Unknown before the first event.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

enum Step {
    Event {
        event: Event,
        /// Where in the output the events after this one begin, if it says so.
        offset: Option<u64>,
    },
    /// A sign of life, or an event of a newer guest.
    Nothing,
    Over,
}

impl Stream {
    async fn step(&mut self) -> Result<Step, GuestError> {
        match self {
            Self::Started(stream) => Ok(match stream.message().await? {
                None => Step::Over,
                Some(message) => read(&message.view().event, message.bytes()),
            }),
            Self::Connected(stream) => Ok(match stream.message().await? {
                None => Step::Over,
                Some(message) => read(&message.view().event, message.bytes()),
            }),
        }
    }
}

/// Reads an event without copying what the process wrote: it stays in the buffer it came in.
fn read(event: &ProcessEventView<'_>, buffer: &Bytes) -> Step {
    let (event, offset) = match &event.event {
        Some(seen::Event::Start(start)) => (Event::Started { pid: start.pid }, start.offset),
        Some(seen::Event::Data(data)) => {
            let (event, length) = match data.output {
                Some(seen::data_event::Output::Stdout(bytes)) => {
                    (Event::Stdout(buffer.slice_ref(bytes)), bytes.len())
                }
                Some(seen::data_event::Output::Stderr(bytes)) => {
                    (Event::Stderr(buffer.slice_ref(bytes)), bytes.len())
                }
                Some(seen::data_event::Output::Pty(bytes)) => {
                    (Event::Terminal(buffer.slice_ref(bytes)), bytes.len())
                }
                None => return Step::Nothing,
            };
            (event, data.offset.and_then(|offset| offset.checked_add(length as u64)))
        }
        Some(seen::Event::Dropped(dropped)) => {
            (Event::Dropped { from: dropped.from, to: dropped.to }, Some(dropped.to))
        }
        Some(seen::Event::Exited(end)) => (Event::Exited(ended(end)), None),
        Some(seen::Event::End(end)) => (Event::Ended(ended(end)), None),
        Some(seen::Event::Keepalive(_)) | None => return Step::Nothing,
    };
    Step::Event { event, offset }
}

fn ended(end: &EndEventView<'_>) -> Ended {
    Ended {
        code: end.exit_code,
        signal: end.signal,
        status: harmless(end.status),
        error: end.error.map(harmless),
        exec_errno: end.exec_errno,
        cause: end.cause.map(harmless),
    }
}

impl GuestClient {
    /// Starts a process and follows it. The process outlives what is returned.
    pub async fn start(&self, options: StartOptions) -> Result<Running, GuestError> {
        let mut call = CallOptions::default().with_max_message_size(EVENT_LIMIT);
        // Only the guest's clock ends the process: with a clock of our own, set to the same
        // time, the last of its output would be lost whenever ours ran first.
        if let Some(timeout) = options.timeout {
            call = call.with_header("connect-timeout-ms", timeout.as_millis().max(1).to_string());
        }
        if options.tells_exit {
            call = call.with_header("soma-exit", "told");
        }
        let call = as_user(call, options.user.as_deref())?;
        let request = StartRequest {
            process: ProcessConfig {
                cmd: options.cmd,
                args: options.args,
                envs: options.env.into_iter().collect(),
                cwd: options.cwd,
                ..Default::default()
            }
            .into(),
            stdin: Some(options.stdin),
            pty: options.terminal.map(PTY::from).into(),
            tag: options.tag,
            ..Default::default()
        };
        let deadline =
            options.timeout.and_then(|timeout| Instant::now().checked_add(timeout + GRACE));
        let stream = self.processes.start_with_options(request, call).await?;
        Ok(Running { stream: Stream::Started(stream), deadline, offset: None, ended: false })
    }

    /// Follows a process that runs, or ended a short while ago, from now on. For one with a
    /// terminal, what its screen shows comes first.
    pub async fn connect(&self, pid: u32) -> Result<Running, GuestError> {
        self.follow(pid, None).await
    }

    /// Follows a process that runs, or ended a short while ago, from an offset in its output on:
    /// what is still there of it, then what comes. What is not is told by [`Event::Dropped`].
    pub async fn connect_from(&self, pid: u32, offset: u64) -> Result<Running, GuestError> {
        self.require(OFFSETS).await?;
        self.follow(pid, Some(offset)).await
    }

    async fn follow(&self, pid: u32, from: Option<u64>) -> Result<Running, GuestError> {
        let request = ConnectRequest { process: select(pid).into(), from, ..Default::default() };
        let call = CallOptions::default().with_max_message_size(EVENT_LIMIT);
        let stream = self.processes.connect_with_options(request, call).await?;
        let stream = Stream::Connected(stream);
        Ok(Running { stream, deadline: None, offset: None, ended: false })
    }

    /// Every process that was started through the guest and still runs.
    pub async fn list(&self) -> Result<Vec<ProcessInfo>, GuestError> {
        let answer = self.processes.list_with_options(ListRequest::default(), short()).await?;
        Ok(answer.into_owned().processes)
    }

    /// Feeds a process's standard input, and waits until it has room for it.
    ///
    /// Not cancellation-safe: a call that is given up may have fed some of the bytes.
    pub async fn send_input(&self, pid: u32, bytes: impl Into<Vec<u8>>) -> Result<(), GuestError> {
        self.feed(pid, process_input::Input::Stdin(bytes.into())).await
    }

    pub(super) async fn feed(
        &self,
        pid: u32,
        input: process_input::Input,
    ) -> Result<(), GuestError> {
        let input = ProcessInput { input: Some(input), ..Default::default() };
        let request = SendInputRequest {
            process: select(pid).into(),
            input: input.into(),
            ..Default::default()
        };
        self.processes.send_input(request).await?;
        Ok(())
    }

    /// Ends a process's standard input.
    pub async fn close_stdin(&self, pid: u32) -> Result<(), GuestError> {
        let request = CloseStdinRequest { process: select(pid).into(), ..Default::default() };
        self.processes.close_stdin_with_options(request, short()).await?;
        Ok(())
    }

    /// Sends a signal to a process.
    pub async fn signal(&self, pid: u32, signal: Signal) -> Result<(), GuestError> {
        let request = SendSignalRequest {
            process: select(pid).into(),
            signal: signal.into(),
            ..Default::default()
        };
        self.processes.send_signal_with_options(request, short()).await?;
        Ok(())
    }
}

pub(super) fn select(pid: u32) -> ProcessSelector {
    ProcessSelector { selector: Some(process_selector::Selector::Pid(pid)), ..Default::default() }
}
