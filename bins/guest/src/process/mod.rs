//! Processes: the service that starts, follows and ends them.
//!
//! A command goes through [`prepare`] (who, where, with what) and [`launch`] (the spawner) and is
//! then a [`running`] process with an [`audience`], which keeps the last of its output in a
//! [`transcript`]. One with a [`terminal`] has a [`screen`] too. This file only translates between
//! the protocol and those.

mod audience;
mod blame;
mod ending;
mod event;
mod felling;
mod keepers;
mod launch;
mod prepare;
mod running;
mod screen;
mod stream;
mod table;
mod terminal;
mod transcript;

use std::io;
use std::sync::Arc;

use connectrpc::{
    ConnectError, Encodable, ErrorCode, InboundStream, RequestContext, Response, ServiceRequest,
    ServiceResult, ServiceStream,
};
use futures::StreamExt as _;
use guest_proto::process::__buffa::oneof::process_input::Input;
use guest_proto::process::__buffa::oneof::process_selector::Selector as SelectorKind;
use guest_proto::process::__buffa::oneof::stream_input_request::Event as InputEvent;
use guest_proto::process::{
    CloseStdinRequest, CloseStdinResponse, ConnectRequest, ConnectResponse, ListRequest,
    ListResponse, PTY, Process as ProcessService, ProcessInfo, ProcessInput, ProcessSelector,
    SendInputRequest, SendInputResponse, SendSignalRequest, SendSignalResponse, Signal,
    StartRequest, StartResponse, StreamInputRequest, StreamInputResponse, UpdateRequest,
    UpdateResponse,
};

pub(crate) use blame::Before;
pub(crate) use ending::Exit;
pub(crate) use felling::fell;
pub(crate) use launch::{Control, Ends, Launched, Spawner, Wish};
pub(crate) use prepare::{OOM_SCORE_ADJUSTMENT, command};
pub(crate) use stream::keepalive;
pub(crate) use table::Table;
pub(crate) use transcript::Budget;

use crate::state::State;
use running::Process;
use stream::Until;
use table::Selector;
use terminal::Size;

/// The service `process.Process`.
#[derive(Debug)]
pub(crate) struct Processes {
    state: Arc<State>,
}

impl Processes {
    /// The service over the guest's state.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// Finds a process that runs or ended a short while ago.
    fn find(&self, selector: Option<&ProcessSelector>) -> Result<Arc<Process>, ConnectError> {
        let selector = selector.and_then(|selector| selector.selector.as_ref());
        let (selector, missing) = match selector {
            Some(SelectorKind::Pid(pid)) => {
                (Selector::Pid(*pid), format!("process with pid {pid} not found"))
            }
            Some(SelectorKind::Tag(tag)) => {
                (Selector::Tag(tag.clone()), format!("process with tag {tag} not found"))
            }
            None => return Err(ConnectError::invalid_argument("no process is named")),
        };
        self.state.processes.find(&selector).ok_or_else(|| ConnectError::not_found(missing))
    }

    /// Finds a process that is not over.
    fn find_running(
        &self,
        selector: Option<&ProcessSelector>,
    ) -> Result<Arc<Process>, ConnectError> {
        let process = self.find(selector)?;
        if process.audience.ending().is_some() {
            let pid = process.pid;
            return Err(ConnectError::not_found(format!("process with pid {pid} not found")));
        }
        Ok(process)
    }
}

#[expect(refining_impl_trait, reason = "our event type says more than the generated trait asks")]
impl ProcessService for Processes {
    async fn list(
        &self,
        _context: RequestContext,
        _request: ServiceRequest<'_, ListRequest>,
    ) -> ServiceResult<ListResponse> {
        let processes = self.state.processes.running().into_iter().map(|process| ProcessInfo {
            config: process.config().into(),
            pid: process.pid,
            tag: process.tag.clone(),
            ..ProcessInfo::default()
        });
        Response::ok(ListResponse { processes: processes.collect(), ..ListResponse::default() })
    }

    async fn connect(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, ConnectRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<ConnectResponse> + Send + use<>>> {
        let request = request.to_owned_message();
        let process = self.find(request.process.as_option())?;
        let until = Until::Deadline(context.deadline());
        let events = stream::follow(process, request.from, until, context.headers());
        Response::ok(events.map_err(|ahead| ConnectError::invalid_argument(ahead.to_string()))?)
    }

    async fn start(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, StartRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<StartResponse> + Send + use<>>> {
        let request = request.to_owned_message();
        let wish = match request.pty.as_option() {
            Some(terminal) => Wish::Terminal(size(terminal)),
            None => Wish::Pipes { stdin: request.stdin.unwrap_or(true) },
        };
        let Some(config) = request.process.into_option() else {
            return Err(ConnectError::invalid_argument("no process is described"));
        };
        let defaults = self.state.defaults().clone();
        let terminal = matches!(wish, Wish::Terminal(_));
        let command = command(&config, context.headers(), &defaults, terminal)?;
        let state = Arc::clone(&self.state);
        let deadline = context.deadline();
        // A task of its own: when the client goes away at this moment, the process is still
        // either not started or known.
        let started = crate::spawn(async move {
            let before = Before::now();
            let launched = state.spawner.launch(&command, wish).await?;
            let (process, watch) =
                Process::adopt(launched, config, request.tag, before, &state.processes);
            state.processes.add(Arc::clone(&process));
            let from_the_start = Some(0);
            let events = stream::follow(process, from_the_start, Until::Ended, context.headers())
                .map_err(io::Error::other)?;
            crate::spawn(async move { watch.run(deadline, &state.processes).await });
            io::Result::Ok(events)
        });
        let events = started.await.map_err(io::Error::other).flatten();
        Response::ok(events.map_err(|error| not_started(&error))?)
    }

    async fn update(
        &self,
        _context: RequestContext,
        request: ServiceRequest<'_, UpdateRequest>,
    ) -> ServiceResult<UpdateResponse> {
        let request = request.to_owned_message();
        let process = self.find_running(request.process.as_option())?;
        if let Some(terminal) = request.pty.as_option() {
            process.resize(size(terminal)).map_err(|error| {
                ConnectError::internal(format!("cannot resize the terminal: {error}"))
            })?;
        }
        Response::ok(UpdateResponse::default())
    }

    async fn stream_input(
        &self,
        _context: RequestContext,
        mut requests: InboundStream<StreamInputRequest>,
    ) -> ServiceResult<StreamInputResponse> {
        let mut process = None;
        while let Some(request) = requests.next().await {
            match request?.to_owned_message().event {
                Some(InputEvent::Start(start)) => {
                    process = Some(self.find_running(start.process.as_option())?);
                }
                Some(InputEvent::Data(data)) => {
                    let process = process.as_deref().ok_or_else(|| {
                        ConnectError::invalid_argument("input came before its process was named")
                    })?;
                    feed(process, data.input.into_option()).await?;
                }
                Some(InputEvent::Keepalive(_)) | None => {}
            }
        }
        Response::ok(StreamInputResponse::default())
    }

    async fn send_input(
        &self,
        _context: RequestContext,
        request: ServiceRequest<'_, SendInputRequest>,
    ) -> ServiceResult<SendInputResponse> {
        let request = request.to_owned_message();
        let process = self.find_running(request.process.as_option())?;
        feed(&process, request.input.into_option()).await?;
        Response::ok(SendInputResponse::default())
    }

    async fn send_signal(
        &self,
        _context: RequestContext,
        request: ServiceRequest<'_, SendSignalRequest>,
    ) -> ServiceResult<SendSignalResponse> {
        let request = request.to_owned_message();
        let process = self.find_running(request.process.as_option())?;
        let sent = match request.signal.as_known() {
            Some(Signal::SIGNAL_SIGKILL) => process.kill(),
            Some(Signal::SIGNAL_SIGTERM) => process.signal(15, true),
            Some(Signal::SIGNAL_SIGINT) => process.signal(2, false),
            Some(Signal::SIGNAL_UNSPECIFIED) | None => {
                let number = request.signal.to_i32();
                let problem = format!("signal {number} cannot be sent");
                return Err(ConnectError::unimplemented(problem));
            }
        };
        sent.map_err(|error| match error.kind() {
            // It ended in this moment, and nobody took note yet.
            io::ErrorKind::NotFound
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => ConnectError::not_found("the process is over"),
            _ => ConnectError::internal(format!("cannot send the signal: {error}")),
        })?;
        Response::ok(SendSignalResponse::default())
    }

    async fn close_stdin(
        &self,
        _context: RequestContext,
        request: ServiceRequest<'_, CloseStdinRequest>,
    ) -> ServiceResult<CloseStdinResponse> {
        let process = self.find_running(request.to_owned_message().process.as_option())?;
        if process.has_terminal() {
            let problem = "a terminal has no standard input to close; type the end of file instead";
            return Err(ConnectError::new(ErrorCode::Unknown, problem));
        }
        process.close_stdin().await;
        Response::ok(CloseStdinResponse::default())
    }
}

/// Gives input to a process and waits until it is taken.
async fn feed(process: &Process, input: Option<ProcessInput>) -> Result<(), ConnectError> {
    match input.and_then(|input| input.input) {
        Some(Input::Stdin(_)) if process.has_terminal() => {
            Err(ConnectError::internal("the process has a terminal and no standard input"))
        }
        Some(Input::Stdin(bytes)) => process.write(&bytes).await.map_err(|error| {
            ConnectError::internal(format!("cannot write to standard input: {error}"))
        }),
        Some(Input::Pty(bytes)) => process.type_in(&bytes).await.map_err(|error| {
            ConnectError::internal(format!("cannot type into the terminal: {error}"))
        }),
        None => Err(ConnectError::invalid_argument("no input is given")),
    }
}

/// The size that is asked for, as far as it makes sense.
fn size(terminal: &PTY) -> Size {
    let asked = terminal.size.as_option();
    Size::bounded(asked.map_or(0, |size| size.cols), asked.map_or(0, |size| size.rows))
}

fn not_started(error: &io::Error) -> ConnectError {
    use rustix::io::Errno;
    let message = match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => {
            let cause = domain::Cause::ProcessLimit;
            format!("cannot start a process: the sandbox is at its limit of them: {}", cause.hint())
        }
        Some(Errno::NOMEM) => {
            let cause = domain::Cause::OutOfMemory;
            format!("cannot start a process: the sandbox is out of memory: {}", cause.hint())
        }
        _ => format!("cannot start a process: {error}"),
    };
    match Errno::from_io_error(error) {
        // At the limit of processes, memory or descriptors: later it may work.
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
            ConnectError::resource_exhausted(message)
        }
        Some(Errno::TOOBIG) => ConnectError::invalid_argument(message),
        _ => ConnectError::internal(message),
    }
}
