//! Everything that came of an execution, in one answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use guest_proto::code::{CHART, DATA, EventKind, Execution as Answer, Item, Logs, Status};

use super::super::bundle::raw;
use super::super::execution::Execution;
use super::super::log::{Read, Reader, Value, encoded};
use super::super::room::{GOING, Held};
use super::stream::PATIENCE;

/// As much as is gathered of output without a limit: an answer is held in memory.
const MOST_OUTPUT: usize = 16 << 20;

/// As many values as are gathered, in bytes.
const MOST_VALUES: usize = 32 << 20;

/// Waits for the end of an execution and gathers what it told, with the room that this takes.
pub(super) async fn collect(
    execution: &Arc<Execution>,
    mut reader: Reader,
) -> (Answer<Value>, Vec<Held>) {
    let mut answer = Answer {
        execution_id: execution.id.clone(),
        context_id: execution.context_id.clone(),
        status: Status::Died,
        reason: None,
        execution_count: None,
        items: Vec::new(),
        logs: Logs::default(),
        error: None,
    };
    let (mut stdout, mut stderr) = (Output::default(), Output::default());
    let (mut shown, mut held) = (0, Vec::new());
    while let Some(read) = reader.next().await {
        let event = match read {
            Read::Event(event) => event,
            Read::Missed { count, .. } => {
                stderr.add(&format!("[{count} events had to go before they were read]\n"));
                continue;
            }
        };
        match &event.kind {
            EventKind::Started { execution_count } => {
                answer.execution_count = Some(*execution_count);
            }
            EventKind::Stdout { text } => stdout.add(text),
            EventKind::Stderr { text } => stderr.add(text),
            EventKind::Result { bundle, .. } | EventKind::Display { bundle, .. } => {
                shown += super::super::log::weight(&event.kind);
                if shown > MOST_VALUES {
                    stderr.add("[more was shown than fits into one answer]\n");
                    continue;
                }
                // As it is gathered, and as it is sent.
                let Ok(room) = GOING.wait_for(2 * encoded(&event.kind), PATIENCE).await else {
                    stderr.add("[a value is left out: others that are large are being sent]\n");
                    continue;
                };
                held.extend(room);
                let is_primary = matches!(event.kind, EventKind::Result { main: true, .. });
                answer.items.push(Item { is_primary, forms: forms(bundle) });
            }
            EventKind::Error(failure) => answer.error = Some(failure.clone()),
            EventKind::End { status, reason } => {
                answer.status = *status;
                answer.reason.clone_from(reason);
            }
            _ => {}
        }
    }
    answer.logs = Logs { stdout: stdout.lines(), stderr: stderr.lines() };
    (answer, held)
}

/// The forms of a value by their short names.
pub(super) fn forms(bundle: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut forms = BTreeMap::new();
    let mut extra = BTreeMap::new();
    for (mime, form) in bundle {
        match short_name(mime) {
            Some(name) => drop(forms.insert(name.to_owned(), form.clone())),
            None => drop(extra.insert(mime, form)),
        }
    }
    if !extra.is_empty() {
        forms.insert("extra".to_owned(), raw(&extra));
    }
    forms
}

fn short_name(mime: &str) -> Option<&'static str> {
    Some(match mime {
        "text/plain" => "text",
        "text/html" => "html",
        "text/markdown" => "markdown",
        "image/svg+xml" => "svg",
        "image/png" => "png",
        "image/jpeg" => "jpeg",
        "application/pdf" => "pdf",
        "text/latex" => "latex",
        "application/json" => "json",
        "application/javascript" => "javascript",
        CHART => "chart",
        DATA => "data",
        _ => return None,
    })
}

#[derive(Default)]
struct Output {
    text: String,
    left_out: usize,
}

impl Output {
    fn add(&mut self, text: &str) {
        if self.text.len() + text.len() > MOST_OUTPUT {
            self.left_out += text.len();
        } else {
            self.text.push_str(text);
        }
    }

    fn lines(self) -> Vec<String> {
        let mut lines: Vec<String> = self.text.lines().map(ToOwned::to_owned).collect();
        if self.left_out > 0 {
            lines.push(format!("[{} bytes do not fit into one answer]", self.left_out));
        }
        lines
    }
}
