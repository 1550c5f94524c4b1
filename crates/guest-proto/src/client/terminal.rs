//! Calls on processes with a terminal.
//!
//! What is typed goes through one long request ([`TerminalInput`]), so that a key press costs a
//! frame on a connection that is open and not a call with an answer to wait for.

use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot};

use super::process::select;
use super::{GuestClient, GuestError, short};
use crate::process::__buffa::oneof::{process_input, stream_input_request};
use crate::process::stream_input_request::{DataEvent, StartEvent};
use crate::process::{PTY, ProcessInput, StreamInputRequest, UpdateRequest, pty};

/// As many pieces of input as wait for the connection.
const QUEUE: usize = 16;

/// The largest piece of input that is sent at once. A guest takes larger ones, but is then
/// slower to say that nobody reads.
const LARGEST_PIECE: usize = 64 << 10;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// How many fit into a line.
    pub columns: u32,
    /// How many lines there are.
    pub rows: u32,
}

impl From<TerminalSize> for PTY {
    fn from(TerminalSize { columns, rows }: TerminalSize) -> Self {
        let size = pty::Size { cols: columns, rows, ..Default::default() };
        Self { size: size.into(), ..Default::default() }
    }
}

/// A way to type into a terminal, open until it is dropped.
#[derive(Debug)]
pub struct TerminalInput {
    queue: mpsc::Sender<StreamInputRequest>,
    /// How the request ended. It ends before the input only when the guest refuses it. None when
    /// that was told.
    outcome: Option<oneshot::Receiver<Result<(), GuestError>>>,
}

impl TerminalInput {
    /// Types these bytes. Waits for room, when the program does not read.
    ///
    /// Returns before the program has read them, so a failure may show with a later call; after
    /// one, no further input is taken.
    ///
    /// Not cancellation-safe: a call that is given up may have typed some of the bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        for piece in bytes.chunks(LARGEST_PIECE) {
            let input = process_input::Input::Pty(piece.to_vec());
            let input = ProcessInput { input: Some(input), ..Default::default() };
            let data = DataEvent { input: input.into(), ..Default::default() };
            if self.queue.send(event(data)).await.is_err() {
                return finished(self.outcome.take()).await.and(Err(over()));
            }
        }
        Ok(())
    }

    /// Ends the input and waits until the terminal has taken all of it.
    pub async fn close(self) -> Result<(), GuestError> {
        drop(self.queue);
        finished(self.outcome).await
    }
}

async fn finished(
    outcome: Option<oneshot::Receiver<Result<(), GuestError>>>,
) -> Result<(), GuestError> {
    match outcome {
        Some(outcome) => outcome.await.unwrap_or_else(|_| Err(over())),
        None => Err(over()),
    }
}

fn over() -> GuestError {
    GuestError::Unavailable { message: "the terminal takes no more input".to_owned() }
}

fn event(event: impl Into<stream_input_request::Event>) -> StreamInputRequest {
    StreamInputRequest { event: Some(event.into()), ..Default::default() }
}

impl GuestClient {
    /// Opens a way to type into a process's terminal. Whether the process is there shows with
    /// what is typed.
    pub fn terminal_input(&self, pid: u32) -> TerminalInput {
        let (queue, mut queued) = mpsc::channel(QUEUE);
        let (finished, outcome) = oneshot::channel();
        // When the guest answers early, the request ends too: its connection is not left to a
        // body that nobody takes.
        let (answered, answer) = oneshot::channel::<()>();
        let start = StartEvent { process: select(pid).into(), ..Default::default() };
        let typed = futures::stream::poll_fn(move |context| queued.poll_recv(context));
        let requests = futures::stream::iter([event(start)]).chain(typed).take_until(answer);
        let processes = self.processes.clone();
        self.transport.spawn(async move {
            let result = processes.stream_input(requests).await;
            drop(answered);
            let _ = finished.send(result.map(|_| ()).map_err(GuestError::from));
        });
        TerminalInput { queue, outcome: Some(outcome) }
    }

    /// Types bytes into a process's terminal once, and waits until it has taken them.
    ///
    /// Not cancellation-safe: a call that is given up may have typed some of the bytes.
    pub async fn send_terminal(
        &self,
        pid: u32,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), GuestError> {
        self.feed(pid, process_input::Input::Pty(bytes.into())).await
    }

    /// Changes the size of a process's terminal.
    pub async fn resize(&self, pid: u32, size: TerminalSize) -> Result<(), GuestError> {
        let request = UpdateRequest {
            process: select(pid).into(),
            pty: PTY::from(size).into(),
            ..Default::default()
        };
        self.processes.update_with_options(request, short()).await?;
        Ok(())
    }
}
