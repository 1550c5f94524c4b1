//! A context in a sandbox, and what is asked of it.

use std::time::Duration;

use client::{Client, ClientError, Executing};
use guest_proto::code::{Complete, Completions, Execute, Language, Limits, NewContext};
use http::StatusCode;

use super::Wish;
use crate::failure::{FAILED, Failure, SOMA_FAILED, refused};
use crate::session::{Entered, Existing, Fresh, Ground};

/// How long the end of a context or of a sandbox is waited for.
const DESTRUCTION: Duration = Duration::from_secs(20);

/// A context in a sandbox.
pub(crate) struct Workplace {
    client: Client,
    ground: Box<dyn Ground>,
    entered: Entered,
    context: String,
    language: Language,
    /// Whether the context has to be deleted when this is left.
    is_ours: bool,
}

/// A cell as it shall run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(crate) code: String,
    /// As long as it may take; as long as it likes where it is missing.
    pub(crate) timeout: Option<Duration>,
    /// As much as is told of what it says.
    pub(crate) limits: Option<Limits>,
    /// Whether somebody answers what it asks.
    pub(crate) answers: bool,
}

impl Workplace {
    /// Goes there, and makes what is not there yet. Without a language it is that of the context
    /// that was named, or Python. When this future is dropped, what it made goes with the program.
    pub(crate) async fn open(
        client: Client,
        wish: Wish,
        language: Option<Language>,
    ) -> Result<Self, Failure> {
        let ground: Box<dyn Ground> = match &wish.which {
            None => Box::new(Fresh::new(client.clone(), wish.network)),
            Some(which) => {
                let found = Existing::find(client.clone(), which).await;
                Box::new(found.map_err(Failure::into_refusal)?.0)
            }
        };
        let entered = ground.enter(&wish.spec).await?;
        let id = &entered.id;
        // That of a fresh sandbox goes with the sandbox.
        let is_ours = wish.which.is_some() && wish.context.is_none();
        let context = if let Some(context) = wish.context {
            client.context(id, &context).await.map_err(refused)?
        } else {
            let variables = wish.environment;
            let wish = NewContext {
                language: language.map(|language| language.kernel().to_string()),
                cwd: wish.workdir,
                env_vars: (!variables.is_empty()).then_some(variables),
                dependencies: None,
            };
            let made = client.create_context(id, &wish).await;
            made.map_err(|error| not_made(error, id))?
        };
        let language = language.unwrap_or(context.language);
        if language.kernel() != context.language.kernel() {
            let there = context.language;
            let message = format!("context `{}` is for {there}, not for {language}", context.id);
            return Err(Failure::usage(message));
        }
        Ok(Self { client, ground, entered, context: context.id, language, is_ours })
    }

    /// The sandbox.
    pub(crate) fn sandbox(&self) -> &str {
        &self.entered.id
    }

    /// The language of the cells.
    pub(crate) fn language(&self) -> Language {
        self.language
    }

    /// Runs a cell.
    pub(crate) async fn execute(&self, cell: Cell) -> Result<Executing, ClientError> {
        let time = cell.timeout.map_or(0, |time| {
            // Zero is for ever.
            u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
        });
        let code = Execute {
            code: cell.code,
            language: Some(self.language.to_string()),
            context_id: Some(self.context.clone()),
            timeout_ms: Some(time),
            limits: cell.limits,
            allow_stdin: cell.answers,
            ..Execute::default()
        };
        self.client.execute(&self.entered.id, &code).await
    }

    /// Interrupts what runs; the state is kept.
    pub(crate) async fn interrupt(&self) -> Result<(), ClientError> {
        self.client.interrupt_context(&self.entered.id, &self.context).await.map(drop)
    }

    /// Ends an execution, whatever it takes.
    pub(crate) async fn cancel(&self, execution: &str) -> Result<(), ClientError> {
        self.client.cancel_execution(&self.entered.id, execution).await
    }

    /// Answers what an execution asks.
    pub(crate) async fn answer(&self, execution: &str, text: &str) -> Result<(), ClientError> {
        self.client.answer_execution(&self.entered.id, execution, text).await
    }

    /// What could stand at a place.
    pub(crate) async fn complete(&self, asked: &Complete) -> Result<Completions, ClientError> {
        self.client.complete_code(&self.entered.id, &self.context, asked).await
    }

    /// Leaves nothing behind but what was there before.
    pub(crate) async fn leave(&self) -> Result<(), Failure> {
        let left = async {
            if self.is_ours {
                // A sandbox that is gone has no context either.
                let _ = self.client.delete_context(&self.entered.id, &self.context).await;
            }
            self.ground.leave(&self.entered, None).await
        };
        tokio::time::timeout(DESTRUCTION, left).await.unwrap_or_else(|_| {
            let id = &self.entered.id;
            let message = format!("sandbox `{id}` takes long to leave; the daemon goes on with it");
            Err(Failure::new(SOMA_FAILED, message))
        })
    }
}

/// Why there is no context, in a sandbox that is there.
fn not_made(error: ClientError, sandbox: &str) -> Failure {
    if error.status() == Some(StatusCode::NOT_FOUND) {
        let message = format!("sandbox `{sandbox}` has no kernels: an earlier version made it");
        return Failure::new(FAILED, message)
            .hint("make a new one, and copy the files with soma cp");
    }
    refused(error)
}
