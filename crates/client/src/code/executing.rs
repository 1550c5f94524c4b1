//! An execution as it is followed.

use std::time::Duration;

use guest_proto::code::{Event, EventKind};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::lines::Lines;
use crate::{Answer, Client, ClientError};

/// How often an execution is asked for again in a row when the connection breaks.
const ATTEMPTS: u32 = 3;

/// How long is waited before it is asked for again.
const PAUSE: Duration = Duration::from_millis(200);

/// What happens in an execution. When the connection breaks, it is read on from where it broke:
/// an execution belongs to its sandbox.
#[derive(Debug)]
pub struct Executing {
    client: Client,
    sandbox: String,
    /// The execution, once it is known.
    id: Option<String>,
    body: Incoming,
    lines: Lines,
    /// The number of the event that comes next.
    next: u64,
    /// Whether it is to be followed to its end.
    follow: bool,
    ended: bool,
    /// How often it was asked for again since the last event.
    again: u32,
}

impl Executing {
    pub(super) fn begun(client: Client, sandbox: &str, answer: Answer) -> Self {
        Self {
            client,
            sandbox: sandbox.to_owned(),
            id: None,
            body: answer.into_body(),
            lines: Lines::default(),
            next: 0,
            follow: true,
            ended: false,
            again: 0,
        }
    }

    pub(super) fn of(
        client: Client,
        sandbox: &str,
        id: &str,
        from: u64,
        follow: bool,
        answer: Answer,
    ) -> Self {
        let begun = Self::begun(client, sandbox, answer);
        Self { id: Some(id.to_owned()), next: from, follow, ..begun }
    }

    /// The execution, once it is known: from its first event on.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The number of the event that comes next.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Waits for the next event; `None` after the last. Signs of life are left out.
    /// Cancellation-safe.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(line) = self.lines.next().map_err(|error| self.client.odd(&error))? {
                if let Some(event) = self.read(&line)? {
                    return Ok(Some(event));
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.lines.push(&piece);
                    }
                }
                None if !self.follow => return Ok(None),
                broken => {
                    let why = broken.and_then(Result::err).map(|error| error.to_string());
                    self.attach_again(why.as_deref().unwrap_or("the answer ended")).await?;
                }
            }
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<Option<Event>, ClientError> {
        let event: Event = serde_json::from_slice(line).map_err(|error| self.client.odd(&error))?;
        self.again = 0;
        match &event.kind {
            EventKind::Keepalive => return Ok(None),
            EventKind::Accepted { execution_id, .. } => self.id = Some(execution_id.clone()),
            EventKind::End { .. } => self.ended = true,
            _ => {}
        }
        self.next = self.next.max(event.n.saturating_add(1));
        Ok(Some(event))
    }

    async fn attach_again(&mut self, why: &str) -> Result<(), ClientError> {
        // Half a line is read again from its beginning.
        drop(self.lines.rest());
        let Some(id) = &self.id else { return Err(self.client.odd(&why)) };
        if self.again >= ATTEMPTS {
            return Err(self.client.odd(&why));
        }
        self.again += 1;
        tokio::time::sleep(PAUSE).await;
        match self.client.events_from(&self.sandbox, id, self.next, true).await {
            Ok(answer) => self.body = answer.into_body(),
            // Nobody there yet: the ended body says so once more.
            Err(ClientError::Away { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
