//! Commands: run to their end, streamed, or left to run and come back to.

mod finished;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use control::{Control, Execution};
use guest_proto::client::{Event, StartOptions};
use guest_proto::process::Signal;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::RunningRefusals;
use crate::extract::{Asked, Asking, Body, LARGEST_BODY, Which, WhichProcess};
use crate::room::whole_body;
use crate::sandboxes::seconds;
use crate::{ApiError, stream};
pub use finished::{Finished, Reason};

/// How long a command may take when nobody says.
const USUAL: Duration = Duration::from_secs(30);

/// The code of a command that was ended because its time was over, as `timeout` has it.
const TIMED_OUT: i32 = 124;

/// A command for `/bin/sh -c`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Command {
    /// What the shell runs.
    pub command: String,
    /// Where; the user's home unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables for this command alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envs: Option<BTreeMap<String, String>>,
    /// When it is ended with all below it, in seconds. For `execute` 30 unless said, else never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub timeout: Option<u64>,
    /// Who runs it; the sandbox's user unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it reads; nothing unless said. Only for `execute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Whether it has a standard input that can be written to. Not for `execute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
    /// A name by which it can be told among others. Not for `execute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Run a command to its end.
///
/// Answers when the command itself has exited and its output was quiet for a tenth of a second;
/// what it left running goes on.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/process/execute", tag = "processes", operation_id = "execute",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Command,
    responses(
        (status = 200, description = "it ended", body = Finished),
        RunningRefusals,
    ),
)]
pub(crate) async fn execute(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(command): Body<Command>,
) -> Result<Json<Finished>, ApiError> {
    let options = command.options(Some(USUAL))?;
    let execution = Execution {
        program: options.cmd,
        arguments: options.args,
        environment: options.env,
        folder: options.cwd,
        user: options.user,
        timeout: options.timeout,
        input: command.input.map(Into::into),
    };
    let executed = control.execute(&caller, &which, execution).await?;
    let reason = executed.cause().map(Reason::from);
    let (stdout, stderr) = (executed.stdout.to_text(), executed.stderr.to_text());
    Ok(Json(Finished {
        exit_code: executed.ended.as_ref().map_or(TIMED_OUT, stream::exit_code),
        timed_out: executed.ended.is_none(),
        dropped_bytes: executed.stdout.dropped() + executed.stderr.dropped(),
        result: stdout.clone(),
        stdout,
        stderr,
        reason,
    }))
}

/// A process that runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Process {
    /// Its number inside the sandbox.
    pub pid: u32,
    /// What it was started with, without its arguments' values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The name it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Start a command and leave it running.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/process", tag = "processes", operation_id = "start_process",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Command,
    responses(
        (status = 201, description = "it runs", body = Process),
        RunningRefusals,
    ),
)]
pub(crate) async fn start(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(command): Body<Command>,
) -> Result<(StatusCode, Json<Process>), ApiError> {
    let guest = control.guest(&caller, &which).await?;
    let options = command.options(None)?;
    let (program, tag) = (Some(options.cmd.clone()), options.tag.clone());
    let mut running = guest.start(options).await?;
    match running.next().await? {
        Some(Event::Started { pid }) => {
            Ok((StatusCode::CREATED, Json(Process { pid, program, tag })))
        }
        _ => Err(no_start()),
    }
}

/// One server-sent event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Told {
    /// A JSON object whose `type` says what happened.
    pub data: String,
}

/// Start a command and follow what it does, as server-sent events.
///
/// Each event is a JSON object with a `type`: `started`, `stdout`, `stderr`, `exited` (the command
/// ended, children may go on writing), `exit` (all of it ended, the last), `timeout`, `error`.
/// `exited`, `exit` and `timeout` have a `reason` as `execute` has, where it is known.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/process/stream", tag = "processes",
    operation_id = "stream_process",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Command,
    responses(
        (status = 200, description = "what it does", body = Told,
         content_type = "text/event-stream"),
        RunningRefusals,
    ),
)]
pub(crate) async fn stream(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(command): Body<Command>,
) -> Result<Response, ApiError> {
    let guest = control.guest(&caller, &which).await?;
    let options = StartOptions { tells_exit: true, ..command.options(None)? };
    let mut running = guest.start(options).await?;
    let begun = running.next().await?;
    Ok(stream::process_events(running, begun))
}

/// Processes that run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Processes {
    /// All that were started through the API and still run.
    pub items: Vec<Process>,
}

/// List the processes that were started and still run.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/processes", tag = "processes", operation_id = "list_processes",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    responses(
        (status = 200, description = "all of them", body = Processes),
        RunningRefusals,
    ),
)]
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<Processes>, ApiError> {
    let running = control.guest(&caller, &which).await?.list().await?;
    let items = running.into_iter().map(|process| Process {
        pid: process.pid,
        program: process.config.into_option().map(|config| config.cmd),
        tag: process.tag,
    });
    Ok(Json(Processes { items: items.collect() }))
}

/// Where to read from.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct From {
    /// An offset in its output, such as `next_offset` of an event; its beginning unless said.
    pub offset: Option<u64>,
}

/// Follow a process that was started, from an offset in its output, as server-sent events.
///
/// Of each process the last MiB is kept, and for 15 minutes after its end; what is no longer
/// there is told by an event `dropped`.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/process/{pid}/output", tag = "processes",
    operation_id = "follow_process",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("pid" = u32, Path, description = "the number of the process"),
        From,
    ),
    responses(
        (status = 200, description = "what it does", body = Told,
         content_type = "text/event-stream"),
        RunningRefusals,
    ),
)]
pub(crate) async fn output(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    WhichProcess(pid): WhichProcess,
    Asked(From { offset }): Asked<From>,
) -> Result<Response, ApiError> {
    let guest = control.guest(&caller, &which).await?;
    let mut running = guest.connect_from(pid, offset.unwrap_or(0)).await?;
    let begun = running.next().await?;
    Ok(stream::process_events(running, begun))
}

/// What to do after writing.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct After {
    /// Whether that was all.
    pub close: Option<bool>,
}

/// Write to the standard input of a process.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/process/{pid}/stdin", tag = "processes",
    operation_id = "write_stdin",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("pid" = u32, Path, description = "the number of the process"),
        After,
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "it was written"),
        RunningRefusals,
    ),
)]
pub(crate) async fn write(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    WhichProcess(pid): WhichProcess,
    Asked(After { close }): Asked<After>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let guest = control.guest(&caller, &which).await?;
    let (parts, body) = request.into_parts();
    let bytes = whole_body(&parts.headers, body, LARGEST_BODY).await?;
    let written = !bytes.is_empty();
    if written {
        guest.send_input(pid, bytes.bytes()).await.map_err(no_input)?;
    }
    if close == Some(true) {
        match guest.close_stdin(pid).await {
            // It took all that was written and ended: nothing is left to close.
            Err(guest_proto::GuestError::NotFound { .. }) if written => {}
            other => other.map_err(no_input)?,
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A standard input that is closed, or never was, is a matter of the process's state.
fn no_input(error: guest_proto::GuestError) -> ApiError {
    match error {
        guest_proto::GuestError::Refused { message, .. } => {
            ApiError::new(StatusCode::CONFLICT, format!("nothing can be written to it: {message}"))
        }
        other => other.into(),
    }
}

/// A signal for a process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct Signalled {
    /// Which.
    pub signal: SignalName,
}

/// The signals that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum SignalName {
    /// Please end.
    #[serde(rename = "SIGTERM")]
    Terminate,
    /// End, with all below it.
    #[serde(rename = "SIGKILL")]
    Kill,
}

/// Send a signal to a process.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/process/{pid}/signal", tag = "processes",
    operation_id = "signal_process",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("pid" = u32, Path, description = "the number of the process"),
    ),
    request_body = Signalled,
    responses(
        (status = 204, description = "it was sent"),
        RunningRefusals,
    ),
)]
pub(crate) async fn signal(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    WhichProcess(pid): WhichProcess,
    Body(Signalled { signal }): Body<Signalled>,
) -> Result<StatusCode, ApiError> {
    let signal = match signal {
        SignalName::Terminate => Signal::SIGNAL_SIGTERM,
        SignalName::Kill => Signal::SIGNAL_SIGKILL,
    };
    control.guest(&caller, &which).await?.signal(pid, signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Command {
    fn options(&self, usual: Option<Duration>) -> Result<StartOptions, ApiError> {
        if self.command.is_empty() {
            return Err(ApiError::wrong("command", "there is nothing to run"));
        }
        if self.command.contains('\0') {
            return Err(ApiError::wrong(
                "command",
                "it has a NUL in it, which no command can have",
            ));
        }
        let timeout = match self.timeout {
            Some(timeout) => Some(seconds("timeout", timeout)?),
            None => usual,
        };
        Ok(StartOptions {
            cmd: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), self.command.clone()],
            env: self.envs.clone().unwrap_or_default(),
            cwd: self.cwd.clone().filter(|folder| !folder.is_empty()),
            user: self.user.clone(),
            timeout,
            stdin: self.stdin.unwrap_or(self.input.is_some()),
            tag: self.tag.clone(),
            ..StartOptions::default()
        })
    }
}

fn no_start() -> ApiError {
    let message = "the sandbox does not say that the command started: look at `soma logs`";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
}
