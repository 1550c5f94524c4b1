//! The official SDKs of others, unmodified, against our daemon.

use std::process::Stdio;

use super::Daemon;
use crate::support::{needs_root, skip};

pub(crate) fn interpreter(test: &str, variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    if found.is_none() {
        let reason = std::env::var(format!("{variable}_MISSING"))
            .unwrap_or_else(|_| format!("{variable} does not say where its interpreter is"));
        skip(test, &reason);
    }
    found
}

/// What a suite is told about this host: whether it can capture what runs.
fn captures(test: &str) -> &'static [&'static str] {
    if std::env::var_os("SOMA_CRIU").is_some() {
        return &["snapshots"];
    }
    skip(&format!("{test} (snapshots)"), "there is no CRIU that could capture a sandbox");
    &[]
}

fn run(python: &str, suite: &str, variables: &[(&str, &str)]) -> String {
    run_with(python, suite, &[], variables)
}

pub(crate) fn run_with(
    python: &str,
    suite: &str,
    words: &[&str],
    variables: &[(&str, &str)],
) -> String {
    let suite = format!("{}/../../tests/{suite}", env!("CARGO_MANIFEST_DIR"));
    let output = sys_linux::command::command(python)
        .arg(suite)
        .args(words)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn the_official_e2b_sdk_drives_our_sandboxes() {
    let name = "the_official_e2b_sdk_drives_our_sandboxes";
    // Its sandboxes are asked for as they are, so the host must hold them to their limits.
    if needs_root(name, "way to have every limit held") {
        return;
    }
    let Some(python) = interpreter(name, "SOMA_E2B") else { return };
    let daemon = Daemon::start();
    let url = format!("http://{}", daemon.address);
    let key = daemon.key();
    let said = run_with(
        &python,
        "sdk/e2b_suite.py",
        captures(name),
        &[("E2B_API_URL", &url), ("E2B_SANDBOX_URL", &url), ("E2B_API_KEY", &key)],
    );
    assert_eq!(
        said,
        "commands held\nbackground held\nterminals held\nfiles held\nwatching held\n\
         transfers held\nsecured held\nlives held\npausing held\n"
            .to_owned()
            + if captures(name).is_empty() { "" } else { "snapshots held\n" }
            + "first generation held\n"
    );
}

#[test]
fn the_official_code_interpreter_of_e2b_drives_our_kernels() {
    let name = "the_official_code_interpreter_of_e2b_drives_our_kernels";
    if needs_root(name, "way to have every limit held") {
        return;
    }
    let Some(python) = interpreter(name, "SOMA_E2B") else { return };
    let daemon = Daemon::start();
    let url = format!("http://{}", daemon.address);
    let key = daemon.key();
    let said = run(
        &python,
        "sdk/code_suite.py",
        &[("E2B_API_URL", &url), ("E2B_SANDBOX_URL", &url), ("E2B_API_KEY", &key)],
    );
    assert_eq!(
        said,
        "values held\nerrors held\nstreaming held\ncontexts held\nlanguages held\n\
         variables held\ntimeouts held\ndeath held\napart held\n"
    );
}

#[test]
fn the_official_leap0_sdk_drives_our_sandboxes() {
    let name = "the_official_leap0_sdk_drives_our_sandboxes";
    if needs_root(name, "way to have every limit held") {
        return;
    }
    let Some(python) = interpreter(name, "SOMA_LEAP0") else { return };
    let daemon = Daemon::start();
    let url = format!("http://{}", daemon.address);
    let key = daemon.key();
    let variables = [
        ("LEAP0_BASE_URL", url.as_str()),
        ("LEAP0_API_KEY", &key),
        ("LEAP0_SDK_OTEL_ENABLED", "false"),
    ];
    let words = captures(name);
    let checks = if words.is_empty() { 51 } else { 59 };
    let said = run_with(&python, "leap0/suite.py", words, &variables);
    assert_eq!(said, format!("{checks} checks held\n"));
}
