//! What is in a notebook. Anybody may have made it.

use std::path::Path;

use guest_proto::code::Language;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{DEEPEST, Object, depth, lay_out};
use crate::failure::Failure;
use crate::output::one_line;

/// A notebook. What is not output stays as it is.
#[derive(Debug)]
pub(super) struct Document {
    top: Object,
    cells: Vec<Slot>,
}

#[derive(Debug)]
enum Slot {
    Code(CodeCell),
    /// A text, or something that we do not know.
    Other(Box<RawValue>),
}

/// A cell with code.
#[derive(Debug)]
pub(super) struct CodeCell {
    object: Object,
    pub(super) source: String,
    tags: Vec<String>,
}

impl Document {
    /// Reads one, and says what is wrong with it and where.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::usage(format!("`{}` {what}", path.display()));
        let bad = |error: &serde_json::Error| wrong(&format!("is no notebook: {error}"));
        let top: Object = serde_json::from_str(text).map_err(|error| bad(&error))?;
        if depth(text) > DEEPEST {
            return Err(wrong(&format!("is nested deeper than {DEEPEST} levels")));
        }
        match top.get::<Value>("nbformat").as_ref().and_then(Value::as_u64) {
            Some(4) => {}
            Some(older @ ..4) => {
                let name = path.display();
                return Err(wrong(&format!("is of nbformat {older}, and only 4 is understood"))
                    .hint(format!("`jupyter nbconvert --to notebook {name}` upgrades it")));
            }
            Some(newer) => {
                return Err(wrong(&format!("is of nbformat {newer}, and only 4 is understood")));
            }
            None => return Err(wrong("is no notebook: it does not say its nbformat")),
        }
        let cells = top.text("cells").ok_or_else(|| wrong("is no notebook: it has no cells"))?;
        let cells: Vec<&RawValue> = serde_json::from_str(cells.get())
            .map_err(|_| wrong("is no notebook: its cells are no list"))?;
        let read = |(index, cell): (usize, &&RawValue)| {
            Slot::read(cell).ok_or_else(|| wrong(&format!("has no cell as cell {}", index + 1)))
        };
        let cells = cells.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { top, cells })
    }

    /// The language that it says it is in; Python where it says nothing.
    pub(super) fn language(&self) -> Result<Language, Failure> {
        let metadata: Object = self.top.get("metadata").unwrap_or_default();
        let part = |name: &str| metadata.get::<Object>(name).unwrap_or_default();
        let (kernel, info) = (part("kernelspec"), part("language_info"));
        let names = [kernel.get("language"), info.get("name"), kernel.get("name")];
        let names: Vec<String> = names.into_iter().flatten().collect();
        if names.is_empty() {
            return Ok(Language::Python);
        }
        names.iter().find_map(|name| known(name)).ok_or_else(|| {
            let name: String = one_line(&names[0]).chars().take(40).collect();
            Failure::usage(format!("the notebook is in `{name}`, for which there is no kernel"))
                .hint("--kernel names another: python, node, typescript, r or bash")
        })
    }

    /// The places of the cells that are to be run, in order.
    pub(super) fn to_run(&self) -> Vec<usize> {
        let is_to_run = |slot: &Slot| match slot {
            Slot::Code(cell) => !cell.source.trim().is_empty() && !cell.has("skip-execution"),
            Slot::Other(_) => false,
        };
        (0..self.cells.len()).filter(|index| is_to_run(&self.cells[*index])).collect()
    }

    /// A cell with code.
    pub(super) fn code(&self, index: usize) -> Option<&CodeCell> {
        match self.cells.get(index)? {
            Slot::Code(cell) => Some(cell),
            Slot::Other(_) => None,
        }
    }

    /// Gives a cell its outputs.
    pub(super) fn set(
        &mut self,
        index: usize,
        outputs: &[Value],
        count: Option<u64>,
    ) -> serde_json::Result<()> {
        if let Some(Slot::Code(cell)) = self.cells.get_mut(index) {
            cell.object.set("execution_count", &count)?;
            cell.object.set("outputs", &outputs)?;
        }
        Ok(())
    }

    /// The notebook as it is written.
    pub(super) fn text(&mut self) -> Result<String, Failure> {
        let raw = |slot: &Slot| match slot {
            Slot::Code(cell) => serde_json::value::to_raw_value(&cell.object),
            Slot::Other(text) => Ok(text.clone()),
        };
        let cells: Result<Vec<_>, _> = self.cells.iter().map(raw).collect();
        let text = cells
            .and_then(|cells| self.top.set("cells", &cells))
            .and_then(|()| serde_json::to_string(&self.top));
        text.map(|text| lay_out(&text)).map_err(|error| Failure::own(&error))
    }
}

impl CodeCell {
    /// Whether it may fail.
    pub(super) fn may_fail(&self) -> bool {
        self.has("raises-exception")
    }

    fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|known| known == tag)
    }
}

impl Slot {
    /// `None` for what is no cell.
    fn read(text: &RawValue) -> Option<Self> {
        let object: Object = serde_json::from_str(text.get()).ok()?;
        let kind: String = object.get("cell_type")?;
        if kind != "code" {
            return Some(Self::Other(text.to_owned()));
        }
        let source = match object.get::<Value>("source")? {
            Value::String(source) => source,
            Value::Array(lines) => {
                lines.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.concat()
            }
            _ => return None,
        };
        let metadata: Object = object.get("metadata").unwrap_or_default();
        let tags = metadata.get("tags").unwrap_or_default();
        Some(Self::Code(CodeCell { object, source, tags }))
    }
}

/// The language of a kernel by its name, also where that is the kernel's own.
fn known(name: &str) -> Option<Language> {
    match name.to_ascii_lowercase().as_str() {
        "ir" => Some(Language::R),
        "jslab" | "ijavascript" => Some(Language::Javascript),
        "tslab" | "deno" => Some(Language::Typescript),
        name => name.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Document, Failure> {
        Document::parse(text, Path::new("a.ipynb"))
    }

    fn notebook(cells: &Value, metadata: &Value) -> String {
        json!({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})
            .to_string()
    }

    #[test]
    fn only_outputs_and_counts_change() {
        let text = "{\n \"nbformat\": 4,\n \"strange\": 1.50,\n \"cells\": [\n  {\n   \
                    \"outputs\": [],\n   \"cell_type\": \"code\",\n   \"id\": \"x\",\n   \
                    \"source\": [\n    \"1 +\\n\",\n    \" 1\"\n   ],\n   \
                    \"execution_count\": null,\n   \"own\": {\n    \"b\": 1,\n    \"a\": 2\n   }\n  \
                    },\n  {\n   \"cell_type\": \"markdown\",\n   \"source\": \"é\"\n  }\n ]\n}\n";
        let mut document = parse(text).unwrap();
        assert_eq!(document.text().unwrap(), text);
        assert_eq!(document.to_run(), [0]);
        assert_eq!(document.code(0).unwrap().source, "1 +\n 1");
        document.set(0, &[json!("new")], Some(7)).unwrap();
        let changed = text.replace("\"outputs\": []", "\"outputs\": [\n    \"new\"\n   ]");
        let changed = changed.replace("null", "7");
        assert_eq!(document.text().unwrap(), changed);
    }

    #[test]
    fn cells_that_are_empty_or_marked_are_not_run() {
        let code = |source: &str, tags: &[&str]| json!({"cell_type": "code", "source": source, "metadata": {"tags": tags}});
        let cells = json!([
            code("1", &[]),
            code(" \n", &[]),
            code("2", &["skip-execution"]),
            {"cell_type": "raw", "source": "3"},
            code("4", &["raises-exception"]),
        ]);
        let document = parse(&notebook(&cells, &json!({}))).unwrap();
        assert_eq!(document.to_run(), [0, 4]);
        assert!(document.code(4).unwrap().may_fail() && !document.code(0).unwrap().may_fail());
    }

    #[test]
    fn the_language_is_what_the_notebook_says() {
        for (metadata, language) in [
            (json!({}), Language::Python),
            (json!({"kernelspec": {"name": "python3"}}), Language::Python),
            (json!({"kernelspec": {"name": "ir", "language": "R"}}), Language::R),
            (json!({"kernelspec": {"name": "ir"}}), Language::R),
            (json!({"language_info": {"name": "javascript"}}), Language::Javascript),
            (
                json!({"kernelspec": {"name": "mine"}, "language_info": {"name": "bash"}}),
                Language::Bash,
            ),
        ] {
            let document = parse(&notebook(&json!([]), &metadata)).unwrap();
            assert_eq!(document.language(), Ok(language), "{metadata}");
        }
        let metadata = json!({"kernelspec": {"language": "julia\u{1b}"}});
        let failure = parse(&notebook(&json!([]), &metadata)).unwrap().language().unwrap_err();
        assert_eq!(failure.message, "the notebook is in `julia `, for which there is no kernel");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let deep =
            format!("{{\"nbformat\":4,\"cells\":[],\"x\":{}{}}}", "[".repeat(300), "]".repeat(300));
        for (text, words) in [
            ("{\n\"nbformat\": 4,\n\"cells\": [}\n", "line 3"),
            ("", "line 1"),
            ("[]", "expected an object"),
            ("{}", "does not say its nbformat"),
            (r#"{"nbformat": 4}"#, "no cells"),
            (r#"{"nbformat": 4, "cells": 1}"#, "no list"),
            (r#"{"nbformat": 4, "cells": [{"cell_type": "raw"}, 1]}"#, "cell 2"),
            (r#"{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}"#, "cell 1"),
            (r#"{"nbformat": 5, "cells": []}"#, "nbformat 5"),
            (&deep, "deeper than 200"),
        ] {
            let failure = parse(text).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains(words), "{text:?}: {}", failure.message);
        }
        let failure = parse(r#"{"nbformat": 3, "worksheets": []}"#).unwrap_err();
        assert!(failure.hint.unwrap().contains("jupyter nbconvert --to notebook a.ipynb"));
    }
}
