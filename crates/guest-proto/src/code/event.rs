//! What happens in an execution, in order: one JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Language;

/// Forms of one value by their MIME types. Text types are strings, binary ones base64, JSON is
/// JSON.
pub type Bundle<V = Value> = BTreeMap<String, V>;

/// The form of a chart as data.
pub const CHART: &str = "application/vnd.soma.chart+json";

/// The form of a table as columns.
pub const DATA: &str = "application/vnd.soma.data+json";

/// Something that happened in an execution.
///
/// `V` is how the values of bundles are held; whoever only passes them on may keep their text.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event<V = Value> {
    /// Its number: the first event of an execution is 0. Whoever reads again asks from the
    /// number after the last that it has.
    pub n: u64,
    /// When it happened, as RFC 3339 in UTC with microseconds.
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind<V>,
}

/// What happened.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum EventKind<V = Value> {
    /// The execution is known and waits for its turn. Always the first event.
    Accepted {
        /// The execution.
        execution_id: String,
        /// The context that it runs in.
        context_id: String,
        /// The language of the code.
        language: Language,
    },
    /// A fresh kernel was started although the context had one before: variables are lost.
    Restarted {
        /// What ended the one before.
        reason: String,
    },
    /// The code runs.
    Started {
        /// The number of the cell in its context.
        execution_count: u64,
    },
    /// Standard output.
    Stdout {
        /// The text, never cut inside of a character.
        text: String,
    },
    /// Standard error.
    Stderr {
        /// The text, never cut inside of a character.
        text: String,
    },
    /// A value of the code.
    Result {
        /// Its forms.
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        bundle: Bundle<V>,
        /// What goes with the forms.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        metadata: Option<V>,
        /// It is the value of the cell.
        main: bool,
    },
    /// Something that was shown.
    Display {
        /// Its forms.
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        bundle: Bundle<V>,
        /// What goes with the forms.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        metadata: Option<V>,
        /// The name by which it can be replaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display_id: Option<String>,
        /// It replaces what was shown by that name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        update: bool,
    },
    /// What was shown so far shall be cleared.
    Clear,
    /// The code failed, or was ended.
    Error(Failure),
    /// The code asks for a line. The answer goes to `POST /code/executions/{id}/input`.
    Input {
        /// What it asks.
        prompt: String,
        /// The answer is not to be shown.
        #[serde(default)]
        password: bool,
    },
    /// Something that the guest has to say.
    Note {
        /// What it is.
        text: String,
    },
    /// Events that this reader missed because it was too slow or came too late. Made for this
    /// reader alone: its number is that of the last event that is missing.
    Dropped {
        /// As many events.
        count: u64,
    },
    /// Nothing, for a while. Has the number of the event that comes next.
    Keepalive,
    /// It is over. Always the last event.
    End {
        /// How it ended.
        status: Status,
        /// More about it, where there is more to say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Why code failed.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of error: `ValueError`, `KernelDied`, `TimeoutError`.
    pub name: String,
    /// What it says.
    pub value: String,
    /// Where it happened, without colours. May be empty.
    pub traceback: String,
}

/// How an execution stands.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It waits for its turn. Never the status of an end.
    Queued,
    /// It runs. Never the status of an end.
    Running,
    /// It ended without an error.
    Ok,
    /// It raised an error.
    Error,
    /// It was interrupted, and the context keeps its state.
    Interrupted,
    /// Its time was over and it stopped when it was interrupted; the context keeps its state.
    Timeout,
    /// It did not stop when it was told to, so its kernel was killed: the state is lost.
    Killed,
    /// Its kernel ended: the state is lost.
    Died,
    /// It never ran.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event: Event = Event {
            n: 3,
            time: "2026-01-02T03:04:05.000006Z".to_owned(),
            kind: EventKind::Error(Failure { name: "E".to_owned(), ..Failure::default() }),
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(
            text,
            r#"{"n":3,"time":"2026-01-02T03:04:05.000006Z","type":"error","name":"E","value":"","traceback":""}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }

    #[test]
    fn values_can_be_kept_as_text() {
        let line = r#"{"n":1,"time":"","type":"result","bundle":{"text/plain":"2"},"main":true}"#;
        let event: Event = serde_json::from_str(line).unwrap();
        let EventKind::Result { bundle, main: true, .. } = event.kind else { panic!() };
        assert_eq!(bundle["text/plain"], "2");
    }
}
