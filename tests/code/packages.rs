//! Packages that are installed while a sandbox runs, from the registries that this machine reaches.

use serde_json::{Value, json};

use super::through_daemon::{ask, context, execute, stdout};
use crate::daemon::Daemon;
use crate::network::registries::{NODE, PYTHON, daemon};

/// Where R's packages come from.
const R: [&str; 1] = ["cloud.r-project.org"];

/// What to install, and a cell that prints `3` with it.
struct Case {
    language: &'static str,
    package: &'static str,
    cell: &'static str,
    /// What the registry has not.
    missing: &'static str,
}

fn install(daemon: &Daemon, id: &str, language: &str, package: &str) -> Value {
    let wish = json!({ "language": language, "packages": [package] });
    let (status, answer) = ask(daemon, id, "POST", "/packages", &wish);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// A package is there for the cells of a context that is there, and of one that comes later; one
/// that cannot be had is an answer, and harms nothing.
fn holds(daemon: &Daemon, case: &Case) {
    let id = daemon.create(&json!({ "timeout": 600 }).to_string());
    let before = context(daemon, &id, case.language);
    let done = install(daemon, &id, case.language, case.package);
    assert_eq!(done["exit_code"], 0, "{done}");
    for context in [before, context(daemon, &id, case.language)] {
        let said = execute(daemon, &id, Some(&context), case.cell);
        assert_eq!(stdout(&said).trim(), "3", "{}: {said}", case.language);
    }
    let failed = install(daemon, &id, case.language, case.missing);
    assert_ne!(failed["exit_code"], 0, "{failed}");
    assert!(!failed["output"].as_str().unwrap_or_default().is_empty(), "{failed}");
    let said = execute(daemon, &id, None, "print(1 + 2)");
    assert_eq!(stdout(&said).trim(), "3", "{said}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
}

#[test]
fn pip_installs_what_cells_use() {
    let Some(daemon) = daemon("pip_installs_what_cells_use", &PYTHON, "") else { return };
    let case = Case {
        language: "python",
        package: "six",
        cell: "import six; print(six.PY3 + 2)",
        missing: "soma-has-no-such-package",
    };
    holds(&daemon, &case);
    daemon.close();
}

#[test]
fn npm_installs_what_cells_use() {
    let Some(daemon) = daemon("npm_installs_what_cells_use", &NODE, "") else { return };
    let case = Case {
        language: "javascript",
        package: "is-odd",
        cell: "console.log(require('is-odd')(3) ? 3 : 0)",
        missing: "soma-has-no-such-package",
    };
    holds(&daemon, &case);
    daemon.close();
}

#[test]
fn r_installs_what_cells_use() {
    let Some(daemon) = daemon("r_installs_what_cells_use", &R, "") else { return };
    let case = Case {
        language: "r",
        package: "praise",
        cell: "cat(2 + nzchar(praise::praise()))",
        missing: "somahasnosuchpackage",
    };
    holds(&daemon, &case);
    daemon.close();
}
