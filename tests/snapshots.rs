//! Whole outputs beside those that were recorded in `tests/snapshots/`.
//!
//! `SOMA_RECORD=1` writes them anew; what changed is then looked at as a change of the code is.

use std::path::PathBuf;

use serde_json::Value;

/// Compares with what was recorded under a name.
#[track_caller]
pub(crate) fn compare(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/snapshots").join(name);
    if std::env::var_os("SOMA_RECORD").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    if recorded == text {
        return;
    }
    let (recorded, seen): (Vec<&str>, Vec<&str>) =
        (recorded.lines().collect(), text.lines().collect());
    let first = recorded.iter().zip(&seen).position(|(old, new)| old != new);
    let line = first.unwrap_or(recorded.len().min(seen.len()));
    panic!(
        "{name} is not as it was recorded, from line {}:\n- {}\n+ {}\nIf that is right, run with \
         SOMA_RECORD=1 and look at the change.",
        line + 1,
        recorded.get(line).unwrap_or(&"(the end)"),
        seen.get(line).unwrap_or(&"(the end)"),
    );
}

/// A document without what differs from run to run: ids, moments, tokens and measured figures.
pub(crate) fn settled(document: &Value) -> String {
    let mut document = document.clone();
    settle(&mut document, "");
    format!("{}\n", serde_json::to_string_pretty(&document).unwrap())
}

fn settle(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let is_measured = name == "metrics" || field == "metrics";
                settle(value, if is_measured { "metrics" } else { field });
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, name)),
        Value::Number(_) if matches!(name, "metrics" | "running_seconds") => {
            *value = "[figure]".into();
        }
        Value::Null => {}
        _ if matches!(name, "id" | "sandbox" | "sandbox_id") => *value = "[id]".into(),
        _ if name == "at" || name == "until" || name == "mtime" || name.ends_with("_percent") => {
            *value = "[figure]".into();
        }
        _ if name.ends_with("_at") || name.ends_with("_time") => {
            *value = "[moment]".into();
        }
        _ if name.ends_with("token") => *value = "[token]".into(),
        _ if name == "request" => *value = "[request]".into(),
        _ if name == "sequence" || name == "newest" => *value = "[number]".into(),
        _ if name == "pid" => *value = "[pid]".into(),
        _ => {}
    }
}
