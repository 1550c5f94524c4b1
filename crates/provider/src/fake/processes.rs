//! The process calls of the guest in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use connectrpc::{
    ConnectError, InboundStream, RequestContext, Response, ServiceRequest, ServiceResult,
    ServiceStream,
};
use futures::stream;
use guest_proto::process::__buffa::oneof::process_event::{Event, data_event};
use guest_proto::process::__buffa::oneof::{process_input, process_selector};
use guest_proto::process::{
    CloseStdinRequest, CloseStdinResponse, ConnectRequest, ConnectResponse, ListRequest,
    ListResponse, Process, ProcessConfig, ProcessEvent, ProcessInfo, ProcessSelector,
    SendInputRequest, SendInputResponse, SendSignalRequest, SendSignalResponse, StartRequest,
    StartResponse, StreamInputRequest, StreamInputResponse, UpdateRequest, UpdateResponse,
    process_event,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::programs::{self, Output, Surroundings};
use super::tree::{Tree, resolve};
use super::users::home_of;

/// Pieces of output that wait for a slow listener.
const WAITING: usize = 16;

pub(super) struct Processes {
    tree: Arc<Tree>,
    tasks: TaskTracker,
    ended: CancellationToken,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    last_pid: u32,
    running: BTreeMap<u32, Entry>,
    /// What processes that are gone left, for those who connect late.
    left: BTreeMap<u32, process_event::EndEvent>,
}

struct Entry {
    config: ProcessConfig,
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    signal: watch::Sender<i32>,
    listeners: Vec<Listener>,
}

type Listener = mpsc::Sender<Result<Event, ConnectError>>;
type Listening = mpsc::Receiver<Result<Event, ConnectError>>;

impl Processes {
    pub(super) fn new(tree: Arc<Tree>, tasks: TaskTracker, ended: CancellationToken) -> Self {
        Self { tree, tasks, ended, table: Arc::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Enters a process in the table, starts it, and listens to it from its first moment.
    fn spawn(
        &self,
        config: ProcessConfig,
        stdin: bool,
        folder: String,
        deadline: Option<Instant>,
    ) -> Listening {
        let (listener, listening) = mpsc::channel(WAITING);
        let (feed, stdin_of_program) = mpsc::channel(1);
        let (output, outputs) = mpsc::channel(WAITING);
        let (signal, signalled) = watch::channel(0);
        let surroundings = Surroundings {
            args: config.args.clone(),
            folder,
            tree: Arc::clone(&self.tree),
            stdin: stdin_of_program,
            output,
        };
        let name = programs::bare_name(&config.cmd).to_owned();
        let mut table = self.table();
        table.last_pid += 1;
        let pid = table.last_pid;
        // Nothing has listened before, so there is room for the first event.
        let _ = listener.try_send(Ok(started(pid)));
        let stdin = stdin.then_some(feed);
        table.running.insert(pid, Entry { config, stdin, signal, listeners: vec![listener] });
        drop(table);

        let life =
            live(Arc::clone(&self.table), pid, name, surroundings, outputs, signalled, deadline);
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(life).await;
        });
        listening
    }

    fn with<T>(
        &self,
        selector: Option<ProcessSelector>,
        act: impl FnOnce(&mut Entry) -> Result<T, ConnectError>,
    ) -> Result<T, ConnectError> {
        let pid = pid_of(selector)?;
        let mut table = self.table();
        act(table.running.get_mut(&pid).ok_or_else(|| missing(pid))?)
    }
}

/// The life of one process: its program, its time limit, and what everybody hears of it.
async fn live(
    table: Arc<Mutex<Table>>,
    pid: u32,
    name: String,
    surroundings: Surroundings,
    mut outputs: mpsc::Receiver<Output>,
    mut signalled: watch::Receiver<i32>,
    deadline: Option<Instant>,
) {
    let there = programs::is_there(&name);
    let program = async { if there { programs::run(&name, surroundings).await } else { 127 } };
    let speaking = async {
        while let Some(output) = outputs.recv().await {
            tell(&table, pid, &said(output)).await;
        }
    };
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    let ending = tokio::select! {
        (code, ()) = async { tokio::join!(program, speaking) } => {
            let exec_errno = (!there).then_some(2);
            Ok(process_event::EndEvent { exec_errno, ..exited(code) })
        }
        Ok(signal) = async { signalled.wait_for(|signal| *signal != 0).await.map(|s| *s) } => {
            Ok(killed(signal))
        }
        () = over => Err(ConnectError::deadline_exceeded("the process ran out of time")),
    };
    let listeners = {
        let mut table = lock(&table);
        table.left.insert(pid, ending.clone().unwrap_or_else(|_| killed(9)));
        table.running.remove(&pid).map(|entry| entry.listeners).unwrap_or_default()
    };
    for listener in listeners {
        let _ = listener.send(ending.clone().map(end_event)).await;
    }
}

/// Tells everybody who listens, and waits for those who are slow.
async fn tell(table: &Mutex<Table>, pid: u32, event: &Event) {
    let listeners = match lock(table).running.get_mut(&pid) {
        Some(entry) => {
            entry.listeners.retain(|listener| !listener.is_closed());
            entry.listeners.clone()
        }
        None => return,
    };
    for listener in listeners {
        let _ = listener.send(Ok(event.clone())).await;
    }
}

#[expect(refining_impl_trait, reason = "the service traits leave the type of an answer open")]
impl Process for Processes {
    async fn list(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, ListRequest>,
    ) -> ServiceResult<ListResponse> {
        let table = self.table();
        let info = |(pid, entry): (&u32, &Entry)| ProcessInfo {
            config: entry.config.clone().into(),
            pid: *pid,
            ..Default::default()
        };
        let processes = table.running.iter().map(info).collect();
        Response::ok(ListResponse { processes, ..Default::default() })
    }

    async fn connect(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ConnectRequest>,
    ) -> ServiceResult<ServiceStream<ConnectResponse>> {
        let pid = pid_of(request.to_owned_message().process.into_option())?;
        let (listener, listening) = mpsc::channel(WAITING);
        let _ = listener.try_send(Ok(started(pid)));
        let mut table = self.table();
        let left = table.left.get(&pid).cloned();
        match (table.running.get_mut(&pid), left) {
            (Some(entry), _) => entry.listeners.push(listener),
            (None, Some(left)) => drop(listener.try_send(Ok(end_event(left)))),
            (None, None) => return Err(missing(pid)),
        }
        Response::stream_ok(events(listening, |event| ConnectResponse {
            event: ProcessEvent { event: Some(event), ..Default::default() }.into(),
            ..Default::default()
        }))
    }

    async fn start(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, StartRequest>,
    ) -> ServiceResult<ServiceStream<StartResponse>> {
        let home = home_of(&context)?;
        let request = request.to_owned_message();
        let config = request.process.into_option().unwrap_or_default();
        let folder = resolve(home, config.cwd.as_deref().unwrap_or_default());
        if !self.tree.is_folder(&folder) {
            let message = format!("cwd '{folder}' does not exist");
            return Err(ConnectError::invalid_argument(message));
        }
        let stdin = request.stdin.unwrap_or(true);
        let listening = self.spawn(config, stdin, folder, context.deadline());
        Response::stream_ok(events(listening, |event| StartResponse {
            event: ProcessEvent { event: Some(event), ..Default::default() }.into(),
            ..Default::default()
        }))
    }

    async fn update(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, UpdateRequest>,
    ) -> ServiceResult<UpdateResponse> {
        let message = "the guest in memory has no terminals";
        Err(ConnectError::unimplemented(message))
    }

    async fn stream_input(
        &self,
        _: RequestContext,
        _: InboundStream<StreamInputRequest>,
    ) -> ServiceResult<StreamInputResponse> {
        let message = "the guest in memory takes input piece by piece";
        Err(ConnectError::unimplemented(message))
    }

    async fn send_input(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, SendInputRequest>,
    ) -> ServiceResult<SendInputResponse> {
        let request = request.to_owned_message();
        let closed = || ConnectError::internal("stdin is closed");
        let feed = self
            .with(request.process.into_option(), |entry| entry.stdin.clone().ok_or_else(closed))?;
        let input = request.input.into_option().unwrap_or_default().input;
        let Some(process_input::Input::Stdin(bytes)) = input else { return Err(closed()) };
        feed.send(bytes).await.map_err(|_| closed())?;
        Response::ok(SendInputResponse::default())
    }

    async fn send_signal(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, SendSignalRequest>,
    ) -> ServiceResult<SendSignalResponse> {
        let request = request.to_owned_message();
        let signal = request.signal.to_i32();
        self.with(request.process.into_option(), |entry| {
            let _ = entry.signal.send(signal);
            Ok(())
        })?;
        Response::ok(SendSignalResponse::default())
    }

    async fn close_stdin(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, CloseStdinRequest>,
    ) -> ServiceResult<CloseStdinResponse> {
        let request = request.to_owned_message();
        self.with(request.process.into_option(), |entry| {
            entry.stdin = None;
            Ok(())
        })?;
        Response::ok(CloseStdinResponse::default())
    }
}

fn events<T: Send + 'static>(
    listening: Listening,
    wrap: fn(Event) -> T,
) -> impl futures::Stream<Item = Result<T, ConnectError>> + Send + 'static {
    stream::unfold(listening, move |mut listening| async move {
        let event = listening.recv().await?;
        Some((event.map(wrap), listening))
    })
}

fn end_event(ending: process_event::EndEvent) -> Event {
    Event::End(Box::new(ending))
}

fn started(pid: u32) -> Event {
    process_event::StartEvent { pid, ..Default::default() }.into()
}

fn said(output: Output) -> Event {
    let output = match output {
        Output::Stdout(bytes) => data_event::Output::Stdout(bytes),
        Output::Stderr(bytes) => data_event::Output::Stderr(bytes),
    };
    process_event::DataEvent { output: Some(output), ..Default::default() }.into()
}

fn exited(code: i32) -> process_event::EndEvent {
    let status = format!("exit status {code}");
    let error = (code != 0).then(|| status.clone());
    process_event::EndEvent { exit_code: code, exited: true, status, error, ..Default::default() }
}

fn killed(signal: i32) -> process_event::EndEvent {
    let status = format!("signal: {signal}");
    process_event::EndEvent {
        exit_code: -1,
        error: Some(status.clone()),
        status,
        signal: Some(signal),
        ..Default::default()
    }
}

fn pid_of(selector: Option<ProcessSelector>) -> Result<u32, ConnectError> {
    match selector.and_then(|selector| selector.selector) {
        Some(process_selector::Selector::Pid(pid)) => Ok(pid),
        _ => Err(ConnectError::invalid_argument("no process is named")),
    }
}

fn missing(pid: u32) -> ConnectError {
    ConnectError::not_found(format!("process with pid {pid} not found"))
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
