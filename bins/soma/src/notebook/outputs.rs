//! What happens in executions, as outputs of nbformat 4.

use std::collections::BTreeMap;

use guest_proto::code::{Bundle, CHART, DATA, EventKind, Failure};
use serde_json::{Map, Value, json};

use super::document::Document;

/// The most that all outputs of a notebook may have together.
const LARGEST: usize = 256 << 20;

/// What is said in the place of all that is more.
const TOO_MUCH: &str = "soma: there was more output, and a notebook takes 256 MiB of it\n";

/// The outputs of a notebook's cells.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    cells: BTreeMap<usize, CellOutputs>,
    /// As much as there is in all of them.
    size: usize,
}

#[derive(Debug, Default)]
struct CellOutputs {
    outputs: Vec<Output>,
    count: Option<u64>,
}

#[derive(Debug)]
enum Output {
    Stream { name: &'static str, text: String },
    Shown(Shown),
    Error(Failure),
}

#[derive(Debug)]
struct Shown {
    data: Bundle,
    metadata: Option<Value>,
    /// It is the value of the cell.
    is_value: bool,
    /// The name by which it can be replaced, also from later cells.
    id: Option<String>,
}

impl Outputs {
    /// A cell begins: what it had before is gone.
    pub(super) fn begin(&mut self, cell: usize) {
        self.cells.insert(cell, CellOutputs::default());
    }

    /// Something happens in a cell.
    pub(super) fn see(&mut self, cell: usize, kind: EventKind) {
        match kind {
            EventKind::Started { execution_count } => {
                self.cells.entry(cell).or_default().count = Some(execution_count);
            }
            EventKind::Stdout { text } => self.write(cell, "stdout", &text),
            EventKind::Stderr { text } => self.write(cell, "stderr", &text),
            EventKind::Note { text } => self.write(cell, "stderr", &format!("soma: {text}\n")),
            EventKind::Restarted { reason } => {
                let words = format!("soma: a fresh kernel, variables are lost: {reason}\n");
                self.write(cell, "stderr", &words);
            }
            EventKind::Dropped { count } => {
                let words = format!("soma: {count} events came too fast and are missing here\n");
                self.write(cell, "stderr", &words);
            }
            EventKind::Result { mut bundle, metadata, main } => {
                if is_plain(&bundle) {
                    bundle.remove("application/json");
                }
                let shown = Shown { data: bundle, metadata, is_value: main, id: None };
                self.show(cell, shown);
            }
            EventKind::Display { bundle, metadata, display_id, update: true } => {
                self.replace(display_id.as_deref(), &bundle, metadata.as_ref());
            }
            EventKind::Display { bundle, metadata, display_id, update: false } => {
                let shown = Shown { data: bundle, metadata, is_value: false, id: display_id };
                self.show(cell, shown);
            }
            EventKind::Clear => self.cells.entry(cell).or_default().outputs.clear(),
            EventKind::Error(failure) => self.push(cell, Output::Error(failure)),
            EventKind::Accepted { .. }
            | EventKind::Input { .. }
            | EventKind::Keepalive
            | EventKind::End { .. } => {}
        }
    }

    /// Whether a cell failed in words.
    pub(super) fn error(&self, cell: usize) -> Option<&Failure> {
        self.cells.get(&cell)?.outputs.iter().rev().find_map(|output| match output {
            Output::Error(failure) => Some(failure),
            _ => None,
        })
    }

    /// Writes them into the notebook.
    pub(super) fn put_into(&self, document: &mut Document) -> serde_json::Result<()> {
        for (index, cell) in &self.cells {
            let outputs: Vec<Value> =
                cell.outputs.iter().map(|output| output.value(cell.count)).collect();
            document.set(*index, &outputs, cell.count)?;
        }
        Ok(())
    }

    fn write(&mut self, cell: usize, stream: &'static str, text: &str) {
        if text.is_empty() || !self.fits(cell, text.len()) {
            return;
        }
        let outputs = &mut self.cells.entry(cell).or_default().outputs;
        match outputs.last_mut() {
            Some(Output::Stream { name, text: before }) if *name == stream => before.push_str(text),
            _ => outputs.push(Output::Stream { name: stream, text: text.to_owned() }),
        }
    }

    fn show(&mut self, cell: usize, mut shown: Shown) {
        shown.data.retain(|kind, _| is_for_notebooks(kind));
        if self.fits(cell, size_of(&shown.data)) {
            self.push(cell, Output::Shown(shown));
        }
    }

    fn push(&mut self, cell: usize, output: Output) {
        self.cells.entry(cell).or_default().outputs.push(output);
    }

    /// Replaces all that was shown by a name.
    fn replace(&mut self, id: Option<&str>, data: &Bundle, metadata: Option<&Value>) {
        let Some(id) = id else { return };
        let mut data = data.clone();
        data.retain(|kind, _| is_for_notebooks(kind));
        let mut size = self.size;
        let all = self.cells.values_mut().flat_map(|cell| &mut cell.outputs);
        for output in all {
            if let Output::Shown(shown) = output
                && shown.id.as_deref() == Some(id)
            {
                size = (size + size_of(&data)).saturating_sub(size_of(&shown.data));
                if size > LARGEST {
                    return;
                }
                self.size = size;
                shown.data.clone_from(&data);
                shown.metadata = metadata.cloned();
            }
        }
    }

    /// Whether so much more may be kept. The first time that it may not, that is said.
    fn fits(&mut self, cell: usize, more: usize) -> bool {
        if self.size > LARGEST {
            return false;
        }
        self.size += more;
        if self.size > LARGEST {
            self.push(cell, Output::Stream { name: "stderr", text: TOO_MUCH.to_owned() });
            return false;
        }
        true
    }
}

impl Output {
    fn value(&self, count: Option<u64>) -> Value {
        match self {
            Self::Stream { name, text } => {
                json!({"name": name, "output_type": "stream", "text": lines(text)})
            }
            Self::Shown(shown) => {
                let form = |(kind, value): (&String, &Value)| (kind.clone(), written(kind, value));
                let data: Map<String, Value> = shown.data.iter().map(form).collect();
                let metadata = shown.metadata.clone().filter(Value::is_object);
                let metadata = metadata.unwrap_or_else(|| json!({}));
                if shown.is_value {
                    json!({
                        "data": data,
                        "execution_count": count,
                        "metadata": metadata,
                        "output_type": "execute_result",
                    })
                } else {
                    json!({"data": data, "metadata": metadata, "output_type": "display_data"})
                }
            }
            Self::Error(failure) => {
                let traceback: Vec<&str> = failure.traceback.lines().collect();
                json!({
                    "ename": failure.name,
                    "evalue": failure.value,
                    "output_type": "error",
                    "traceback": traceback,
                })
            }
        }
    }
}

/// Whether a value is a list or the like, whose JSON our kernels tell beside its text. A notebook
/// shows JSON in a way of its own, which is for whoever asked for it.
fn is_plain(bundle: &Bundle) -> bool {
    let text = bundle.get("text/plain").and_then(Value::as_str).unwrap_or_default();
    bundle.contains_key("application/json") && text.starts_with(['[', '{', '('])
}

/// Our own forms are for programs that know them, and double what others show.
fn is_for_notebooks(kind: &str) -> bool {
    kind != CHART && kind != DATA
}

/// A form as files have it: texts are lists of lines.
fn written(kind: &str, value: &Value) -> Value {
    let is_text =
        kind.starts_with("text/") || ["image/svg+xml", "application/javascript"].contains(&kind);
    match value {
        Value::String(text) if is_text => json!(lines(text)),
        value => value.clone(),
    }
}

/// The lines of a text, each with its end.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn size_of(data: &Bundle) -> usize {
    let size = |value: &Value| value.as_str().map_or_else(|| value.to_string().len(), str::len);
    data.values().map(size).sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn text(text: &str) -> EventKind {
        EventKind::Stdout { text: text.to_owned() }
    }

    fn shown(value: Value, id: Option<&str>, update: bool) -> EventKind {
        let Value::Object(forms) = value else { panic!() };
        EventKind::Display {
            bundle: forms.into_iter().collect(),
            metadata: None,
            display_id: id.map(ToOwned::to_owned),
            update,
        }
    }

    /// The outputs of two cells after these events.
    fn after(first: Vec<EventKind>, second: Vec<EventKind>) -> [Value; 2] {
        let cell = json!({"cell_type": "code", "source": "1", "outputs": ["old"]});
        let notebook = json!({"nbformat": 4, "cells": [cell, cell]}).to_string();
        let mut document = Document::parse(&notebook, Path::new("a")).unwrap();
        let mut outputs = Outputs::default();
        for (index, events) in [first, second].into_iter().enumerate() {
            outputs.begin(index);
            for event in events {
                outputs.see(index, event);
            }
        }
        outputs.put_into(&mut document).unwrap();
        let whole: Value = serde_json::from_str(&document.text().unwrap()).unwrap();
        [0, 1].map(|index| whole["cells"][index].clone())
    }

    #[test]
    fn streams_join_until_something_comes_between() {
        let stderr = EventKind::Stderr { text: "e".to_owned() };
        let [cell, _] = after(vec![text("a\nb"), text("c\n"), stderr, text("d")], vec![]);
        assert_eq!(
            cell["outputs"],
            json!([
                {"name": "stdout", "output_type": "stream", "text": ["a\n", "bc\n"]},
                {"name": "stderr", "output_type": "stream", "text": ["e"]},
                {"name": "stdout", "output_type": "stream", "text": ["d"]},
            ])
        );
    }

    #[test]
    fn a_value_carries_the_count_of_its_cell() {
        let bundle = [
            ("text/plain".to_owned(), json!("a\nb")),
            ("image/png".to_owned(), json!("AA\n")),
            ("application/json".to_owned(), json!({"x": "1\n2"})),
            (CHART.to_owned(), json!({})),
        ];
        let value = EventKind::Result {
            bundle: bundle.into_iter().collect(),
            metadata: Some(json!({"k": 1})),
            main: true,
        };
        let [cell, _] = after(vec![EventKind::Started { execution_count: 3 }, value], vec![]);
        assert_eq!(cell["execution_count"], 3);
        assert_eq!(
            cell["outputs"],
            json!([{
                "data": {
                    "application/json": {"x": "1\n2"},
                    "image/png": "AA\n",
                    "text/plain": ["a\n", "b"],
                },
                "execution_count": 3,
                "metadata": {"k": 1},
                "output_type": "execute_result",
            }])
        );
    }

    #[test]
    fn a_list_is_its_text_and_json_is_for_whoever_asked_for_it() {
        for (text, forms) in [("[1]", 1), ("<IPython.core.display.JSON object>", 2)] {
            let bundle = [("text/plain", json!(text)), ("application/json", json!([1]))];
            let bundle = bundle.map(|(kind, value)| (kind.to_owned(), value)).into();
            let value = EventKind::Result { bundle, metadata: None, main: true };
            let [cell, _] = after(vec![value], vec![]);
            assert_eq!(cell["outputs"][0]["data"].as_object().unwrap().len(), forms, "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_replaced_from_a_later_cell_and_cleared() {
        let first = vec![
            shown(json!({"text/plain": "one"}), Some("a"), false),
            shown(json!({"text/plain": "two"}), None, false),
        ];
        let second = vec![
            text("gone"),
            shown(json!({"text/plain": "x"}), Some("a"), false),
            EventKind::Clear,
            shown(json!({"text/plain": "new"}), Some("a"), true),
            shown(json!({"text/plain": "nobody"}), Some("b"), true),
        ];
        let [one, two] = after(first, second);
        let texts: Vec<&Value> = one["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|output| &output["data"]["text/plain"][0])
            .collect();
        assert_eq!(texts, ["new", "two"]);
        assert_eq!(two["outputs"], json!([]));
    }

    #[test]
    fn an_error_has_its_traceback_in_lines() {
        let failure =
            Failure { name: "E".to_owned(), value: "v".to_owned(), traceback: "a\nb".to_owned() };
        let [cell, _] = after(vec![EventKind::Error(failure)], vec![]);
        assert_eq!(
            cell["outputs"],
            json!([{"ename": "E", "evalue": "v", "output_type": "error", "traceback": ["a", "b"]}])
        );
    }

    #[test]
    fn outputs_do_not_grow_without_end() {
        let mut outputs = Outputs::default();
        let piece = "x".repeat(LARGEST / 4);
        for _ in 0..8 {
            outputs.see(0, text(&piece));
        }
        assert!(outputs.size <= LARGEST + piece.len());
        let Some(Output::Stream { text, .. }) = outputs.cells[&0].outputs.last() else { panic!() };
        assert_eq!(text, TOO_MUCH);
    }
}
