//! Running code in kernels: what is asked of a guest under `/code`, and what it answers.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /code/healthz` | | `{"status": "ok"}` |
//! | `GET /code/contexts` | | [`Items`] of [`Context`] |
//! | `POST /code/contexts` | [`NewContext`] | 201, [`Context`] |
//! | `GET /code/contexts/{id}` | | [`Context`] |
//! | `DELETE /code/contexts/{id}` | | 204 |
//! | `POST /code/contexts/{id}/restart`, `/interrupt` | | [`Context`] |
//! | `POST /code/contexts/{id}/complete` | [`Complete`] | [`Completions`] |
//! | `POST /code/execute` | [`Execute`] | [`Execution`] when it is over |
//! | `POST /code/execute/async` | [`Execute`] | events for browsers (SSE) of a fresh process |
//! | `POST /code/executions` | [`Execute`] | lines of [`Event`]; with `detach` 201 and [`Begun`] |
//! | `GET /code/executions` | | [`Items`] of [`Summary`] |
//! | `GET /code/executions/{id}?from=N&follow=BOOL` | | lines of [`Event`] |
//! | `DELETE /code/executions/{id}` | | 204: it is cancelled |
//! | `POST /code/executions/{id}/input` | [`Answer`] | 204 |
//! | `POST /code/packages` | [`Install`] | [`Installed`] |
//!
//! The same for E2B's clients, in their words, lies under `/code/e2b`. Errors are
//! `{"code": STATUS, "message": TEXT}`, there plain text. Every line and every answer is ASCII:
//! all other characters are escaped.

mod event;
mod language;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use event::{Bundle, CHART, DATA, Event, EventKind, Failure, Status};
pub use language::{Language, UnknownLanguage};

/// As long as an execution may take when nobody says otherwise, in milliseconds. Zero is for
/// ever.
pub const USUAL_TIMEOUT_MS: u64 = 30_000;

/// What a context is to be.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewContext {
    /// The language; Python where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The working folder; the user's home where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables of the context, beside those of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Packages to install before. A failure does not fail the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<String>>,
}

/// State that outlives executions: an interpreter, or the promise of one.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Its name.
    pub id: String,
    /// Its language.
    pub language: Language,
    /// Where it began.
    pub cwd: String,
    /// How it stands.
    pub state: ContextState,
    /// Why it is dead, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// As many executions as it had since its start.
    pub execution_count: u64,
    /// When it was made, as RFC 3339.
    pub created_at: String,
    /// How the installation of its dependencies went; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Installed>,
}

/// How a context stands.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContextState {
    /// Its kernel is being started, or will be with its first execution.
    Starting,
    /// It waits for something to do.
    Idle,
    /// It runs something.
    Busy,
    /// Its kernel has ended. The next execution starts another.
    Dead,
}

/// A list.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items<T> {
    /// What is in it.
    pub items: Vec<T>,
}

/// Code to run.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Execute {
    /// The code.
    pub code: String,
    /// Its language; that of the context, or Python, where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Where it runs; a new context where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// Variables for this execution alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// As long as it may take, see [`USUAL_TIMEOUT_MS`]. Time in the queue does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// As much as is told of what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The caller answers what the code asks with `input()`. Only for `/code/executions`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_stdin: bool,
    /// The answer comes at once; the events are read later. Only for `/code/executions`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub detach: bool,
}

/// As much as is told of what an execution says, in characters. Zero is without end; a field
/// that is missing is [the usual](Limits::USUAL).
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Standard output. What is over it stays readable in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<u64>,
    /// Standard error. What is over it stays readable in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<u64>,
    /// Each form of a value that is text: plain, Markdown, LaTeX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<u64>,
    /// The traceback of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceback: Option<u64>,
}

impl Limits {
    /// What applies where nothing is said.
    pub const USUAL: Self = Self {
        stdout: Some(50_000),
        stderr: Some(120_000),
        result: Some(30_000),
        traceback: Some(8_000),
    };

    /// Nothing is cut.
    pub const NONE: Self =
        Self { stdout: Some(0), stderr: Some(0), result: Some(0), traceback: Some(0) };

    /// These, and the usual for what they leave open.
    #[must_use]
    pub fn or_usual(self) -> Self {
        Self {
            stdout: self.stdout.or(Self::USUAL.stdout),
            stderr: self.stderr.or(Self::USUAL.stderr),
            result: self.result.or(Self::USUAL.result),
            traceback: self.traceback.or(Self::USUAL.traceback),
        }
    }
}

/// An execution that was begun.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The execution.
    pub id: String,
    /// The context that it runs in.
    pub context_id: String,
}

/// An execution among others.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The execution.
    pub id: String,
    /// The context that it runs in, which may be gone.
    pub context_id: String,
    /// The language of the code.
    pub language: Language,
    /// How it stands.
    pub status: Status,
    /// As many events as there are so far.
    pub events: u64,
    /// When it was asked for, as RFC 3339.
    pub created_at: String,
}

/// What came of an execution, all at once.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Execution<V = Value> {
    /// The execution.
    pub execution_id: String,
    /// The context that it ran in.
    pub context_id: String,
    /// How it ended.
    pub status: Status,
    /// More about the end, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the cell in its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_count: Option<u64>,
    /// Values and what was shown, in order.
    pub items: Vec<Item<V>>,
    /// What was written.
    pub logs: Logs,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// What was written, in lines.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logs {
    /// Standard output.
    pub stdout: Vec<String>,
    /// Standard error.
    pub stderr: Vec<String>,
}

/// A value, or something that was shown, in all its forms.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item<V = Value> {
    /// It is the value of the cell.
    #[serde(default)]
    pub is_primary: bool,
    /// Its forms: `text`, `html`, `markdown`, `svg`, `png`, `jpeg`, `pdf`, `latex`, `json`,
    /// `javascript`, `chart`, `data`; all others by their MIME types in `extra`.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub forms: BTreeMap<String, V>,
}

/// The answer to a question of the code.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The line, without its end.
    pub text: String,
}

/// Asks what could stand at a place.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    /// The code.
    pub code: String,
    /// The place, in characters from the start; the end where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

/// What could stand there.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// What could.
    #[serde(default)]
    pub matches: Vec<String>,
    /// The first character that a match replaces.
    #[serde(default)]
    pub start: u64,
    /// The character after the last that a match replaces.
    #[serde(default)]
    pub end: u64,
}

/// Packages to install.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Install {
    /// The language; Python where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Names, with versions where wanted.
    pub packages: Vec<String>,
    /// `pip`, `uv`, `npm` or `r`; what fits the language where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// As long as it may take; ten minutes where it is missing or zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How an installation went.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// It worked.
    pub success: bool,
    /// What installed them.
    pub manager: String,
    /// The exit code; missing where it was ended by a signal or could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What it said, standard error included; the end of it, when it is long.
    pub output: String,
}
