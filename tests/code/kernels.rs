//! Each kernel by itself, as the guest starts it: with this machine's interpreters, with other
//! versions of them, and with the packages that people show things with.
//!
//! The cases are in `tests/kernels`, a file for each language. They speak the frames of
//! `kernels/README.md`, without a guest and without a sandbox.

use std::path::{Path, PathBuf};

use crate::support::skip;

/// Runs the cases of a language with an interpreter.
#[track_caller]
fn hold(name: &str, language: &str, interpreter: &Path) {
    if !interpreter.exists() {
        let apart = interpreter.ancestors().nth(2).map(|folder| folder.with_extension("missing"));
        let reason = apart.and_then(|file| std::fs::read_to_string(file).ok());
        let missing = format!("there is no `{}`", interpreter.display());
        return skip(name, reason.as_deref().map_or(&missing, str::trim));
    }
    let cases = format!("{}/../../tests/kernels/{language}.py", env!("CARGO_MANIFEST_DIR"));
    let output = sys_linux::command::command("/usr/bin/python3")
        .arg("-B")
        .arg(cases)
        .arg(interpreter)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
}

/// One that `scripts/get-interpreters` made.
fn apart(name: &str) -> PathBuf {
    std::env::var_os("SOMA_INTERPRETERS").map(PathBuf::from).unwrap_or_default().join(name)
}

/// Whether this is the long form, which also tries the versions between the first and the last.
fn is_long(name: &str) -> bool {
    let is_long = std::env::var_os("SOMA_LONG").is_some();
    if !is_long {
        skip(name, "it is part of the long form: `make test-long`");
    }
    is_long
}

#[test]
fn python_alone() {
    hold("python_alone", "python", Path::new("/usr/bin/python3"));
}

#[test]
fn python_with_what_people_show_things_with() {
    let name = "python_with_what_people_show_things_with";
    hold(name, "python", &apart("science/bin/python"));
}

/// A version of Python, where this machine has several.
#[track_caller]
fn hold_python(name: &str, minor: u32) {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let versions = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let beginning = format!("3.{minor}.");
    let mut versions = versions.into_iter().flatten().flatten();
    match versions.find(|found| found.file_name().to_string_lossy().starts_with(&beginning)) {
        Some(found) => hold(name, "python", &found.path().join("bin/python3")),
        None => skip(name, &format!("there is no Python 3.{minor} under `PYENV_ROOT`")),
    }
}

#[test]
fn the_oldest_python() {
    hold_python("the_oldest_python", 8);
}

#[test]
fn a_recent_python() {
    hold_python("a_recent_python", 13);
}

#[test]
fn the_newest_python() {
    hold("the_newest_python", "python", &apart("python-3.14/bin/python3"));
}

#[test]
fn every_python_between() {
    let name = "every_python_between";
    if !is_long(name) {
        return;
    }
    for minor in [9, 10, 11, 12] {
        hold_python(name, minor);
    }
}

#[test]
fn node_of_this_machine() {
    hold("node_of_this_machine", "node", Path::new("/usr/bin/node"));
}

#[test]
fn node_18() {
    hold("node_18", "node", &apart("node-18/bin/node"));
}

#[test]
fn node_22() {
    if !is_long("node_22") {
        return;
    }
    hold("node_22", "node", &apart("node-22/bin/node"));
}

#[test]
fn node_24() {
    hold("node_24", "node", &apart("node-24/bin/node"));
}

#[test]
fn bash() {
    hold("bash", "bash", Path::new("/bin/bash"));
}

#[test]
fn r() {
    hold("r", "r", Path::new("/usr/bin/R"));
}
