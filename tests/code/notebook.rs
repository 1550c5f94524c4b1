//! `soma notebook run`: cells executed in a sandbox, and their outputs written back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::Home;

/// A notebook with these cells in a folder of its own.
struct Book {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Book {
    fn new(sources: &[&str]) -> Self {
        let cell = |source: &&str| {
            json!({
                "cell_type": "code", "execution_count": null, "metadata": {"own": 1},
                "outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}],
                "source": source,
            })
        };
        let mut cells: Vec<Value> = sources.iter().map(cell).collect();
        cells.push(json!({"cell_type": "markdown", "metadata": {}, "source": "words"}));
        Self::of(&json!({
            "cells": cells, "nbformat": 4, "nbformat_minor": 5, "unknown": {"stays": 1.5},
            "metadata": {"kernelspec": {"name": "python3", "language": "python"}},
        }))
    }

    fn of(notebook: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book.ipynb");
        fs::write(&path, notebook.to_string()).unwrap();
        Self { folder, path }
    }

    fn run(&self, home: &Home, words: &[&str]) -> Output {
        let mut command = home.soma(["notebook", "run"]);
        command.arg(&self.path).args(words).output().unwrap()
    }

    fn read(&self) -> Value {
        read(&self.path)
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn outputs_are_written_back_and_all_else_stays() {
    let home = Home::new();
    let book = Book::new(&["x = 20\nprint('one')\nprint('two')", "x + 1", ""]);
    fs::set_permissions(&book.path, fs::Permissions::from_mode(0o640)).unwrap();
    let output = book.run(&home, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0), "{output:?}");
    let written = book.read();
    let cells = &written["cells"];
    assert_eq!(
        cells[0]["outputs"],
        json!([{"name": "stdout", "output_type": "stream", "text": ["one\n", "two\n"]}])
    );
    let value = &cells[1]["outputs"][0];
    assert_eq!(value["output_type"], "execute_result", "{written}");
    assert_eq!(value["data"]["text/plain"], json!(["21"]), "{written}");
    assert_eq!(
        (&cells[0]["execution_count"], &cells[1]["execution_count"]),
        (&json!(1), &json!(2))
    );
    // An empty cell is not run, and keeps what it has.
    assert_eq!(cells[2]["outputs"][0]["text"], "old");
    assert_eq!((&cells[0]["metadata"], &cells[3]["source"]), (&json!({"own": 1}), &json!("words")));
    assert_eq!(written["unknown"], json!({"stays": 1.5}));
    assert_eq!(book.path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(book.folder.path()).unwrap().count(), 1);
    home.assert_nothing_left();
}

#[test]
fn the_first_error_ends_it_unless_errors_are_allowed() {
    let home = Home::new();
    let sources = ["print('before')", "raise ValueError('no')", "print('after')"];
    let book = Book::new(&sources);
    let output = book.run(&home, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(words, "soma: cell 2 failed: ValueError: no\n");
    let cells = &book.read()["cells"];
    assert_eq!(cells[0]["outputs"][0]["text"], json!(["before\n"]));
    let error = &cells[1]["outputs"][0];
    assert_eq!((&error["ename"], &error["evalue"]), (&json!("ValueError"), &json!("no")));
    assert_eq!(cells[2]["outputs"][0]["text"], "old");
    let book = Book::new(&sources);
    let output = book.run(&home, &["--allow-errors"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(book.read()["cells"][2]["outputs"][0]["text"], json!(["after\n"]));
}

#[test]
fn another_file_or_standard_output_leaves_the_notebook_as_it_is() {
    let home = Home::new();
    let book = Book::new(&["1 + 1"]);
    let before = fs::read(&book.path).unwrap();
    let other = book.folder.path().join("done.ipynb");
    let output = book.run(&home, &["--output", other.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(read(&other)["cells"][0]["outputs"][0]["data"]["text/plain"], json!(["2"]));
    let output = book.run(&home, &["--output", "-"]);
    let written: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(written, read(&other));
    assert_eq!(fs::read(&book.path).unwrap(), before);
}

#[test]
fn a_cell_that_takes_too_long_is_an_error_of_its_own() {
    let home = Home::new();
    let book = Book::new(&["import time; time.sleep(1000)"]);
    let output = book.run(&home, &["--timeout", "1s"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cell = &book.read()["cells"][0];
    assert_eq!(
        cell["outputs"].as_array().unwrap().last().unwrap()["output_type"],
        "error",
        "{cell}"
    );
}

#[test]
fn a_sandbox_that_is_there_has_the_files_afterwards() {
    let home = Home::new();
    let made = home.soma(["new", "--name", "lab"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let book = Book::new(&["open('left', 'w').write('here')"]);
    let output = book.run(&home, &["--in", "lab"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found = home.soma(["exec", "lab", "--", "cat", "left"]).output().unwrap();
    assert_eq!(found.stdout, b"here", "{found:?}");
    assert!(home.soma(["rm", "lab"]).status().unwrap().success());
    home.assert_nothing_left();
}

#[test]
fn what_is_no_notebook_is_refused_before_anything_is_made() {
    let home = Home::new();
    for (text, words) in [
        ("{\n\"nbformat\": 4,\n\"cells\": [}", "line 3"),
        ("{\"nbformat\": 3, \"worksheets\": []}", "jupyter nbconvert"),
        (
            "{\"nbformat\": 4, \"cells\": [], \"metadata\": {\"kernelspec\": {\"language\": \"apl\"}}}",
            "for which there is no kernel",
        ),
    ] {
        let book = Book::new(&[]);
        fs::write(&book.path, text).unwrap();
        let output = book.run(&home, &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(words), "{stderr}");
        assert_eq!(fs::read_to_string(&book.path).unwrap(), text);
    }
    assert!(home.daemons().is_empty(), "a daemon was started for it");
}
