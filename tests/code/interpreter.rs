//! The template `code-interpreter`, built for real from the registry of Python's packages.
//!
//! One test builds all of it; the others choose a small package, so that a build takes seconds.

use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::through_daemon::{context, execute, stdout};
use crate::daemon::Daemon;
use crate::daemon::sdks::{interpreter, run_with};
use crate::network::registries::{self, PYTHON};
use crate::support::is_root;

/// A daemon that builds this, and reaches the registry.
fn daemon(test: &str, packages: &[&str]) -> Option<Daemon> {
    registries::daemon(test, &PYTHON, &format!("code_packages = {packages:?}"))
}

/// A `soma` that is running with these words.
fn begin(daemon: &Daemon, words: &[&str]) -> Child {
    let mut soma = daemon.home.soma(words);
    if words[0] == "new" && !is_root() {
        soma.arg("--allow-unenforced");
    }
    soma.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[track_caller]
fn soma(daemon: &Daemon, words: &[&str]) -> String {
    succeeded(begin(daemon, words).wait_with_output().unwrap())
}

fn template(daemon: &Daemon) -> Value {
    daemon.ask("GET", "/v1/template/code-interpreter", "").json()
}

/// The numbers of the layers that are kept: each build has one more.
fn layers(daemon: &Daemon) -> Vec<String> {
    let folder = daemon.home.path().join("templates/code-interpreter");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits until a build is under way.
fn await_build(daemon: &Daemon) {
    let begun = Instant::now();
    while template(daemon)["state"] != "building" {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", template(daemon));
        std::thread::sleep(Duration::from_millis(20));
    }
}

const SIX: &str = "python3 -c 'import six; print(six.__version__, six.__file__)'";

#[test]
fn it_is_built_on_first_use_and_the_sdk_of_e2b_runs_on_it_unmodified() {
    let test = "it_is_built_on_first_use_and_the_sdk_of_e2b_runs_on_it_unmodified";
    let Some(daemon) = registries::daemon(test, &PYTHON, "") else { return };
    assert_eq!(template(&daemon)["state"], "not-built");
    let begun = Instant::now();
    let id = soma(&daemon, &["new", "--template", "code-interpreter", "--timeout", "1h"]);
    let build = begun.elapsed();
    let seen = template(&daemon);
    assert_eq!((&seen["state"], &seen["is_system"]), (&json!("ready"), &json!(true)), "{seen}");
    assert!(seen["counts"]["bytes"].as_u64().unwrap() > 100 << 20, "{seen}");
    let begun = Instant::now();
    let second = soma(&daemon, &["new", "--template", "code-interpreter-v1"]);
    let again = begun.elapsed();
    // The disk may still be writing what was built.
    assert!(again < Duration::from_secs(100) && again < build / 2, "{again:?} after {build:?}");
    soma(&daemon, &["rm", &second]);
    let code = "import pandas, matplotlib, scipy, sklearn, plotly, seaborn, sympy, IPython\n\
                print(pandas.DataFrame({'a': [20, 22]}).a.sum(), get_ipython() is not None)";
    let done = execute(&daemon, &id, None, code);
    assert_eq!(stdout(&done).trim(), "42 True", "{done}");
    // What the host's interpreter has beside it is there as before, and pip adds to it.
    let said = daemon.execute(&id, "python3 -m pip install --help >/dev/null && echo pip");
    assert_eq!(said.trim(), "pip");
    if std::env::var_os("SOMA_CRIU").is_some() && is_root() {
        println!("copied 20 times in {:?}", multiply(&daemon, &id));
    }
    soma(&daemon, &["rm", &id]);
    println!("built in {build:?}, made again in {again:?}");
    if is_root()
        && let Some(python) = interpreter(test, "SOMA_E2B")
    {
        let (url, key) = (format!("http://{}", daemon.address), daemon.key());
        let variables =
            [("E2B_API_URL", url.as_str()), ("E2B_SANDBOX_URL", &url), ("E2B_API_KEY", &key)];
        let said = run_with(&python, "sdk/code_suite.py", &["unnamed"], &variables);
        assert!(said.ends_with("charts held\ntables held\napart held\n"), "{said}");
    }
    // Its files go with the home: they are many, and removing them on a busy disk takes long.
    daemon.close();
}

/// Twenty copies of a kernel with pandas loaded: each goes its own way, and none sees another.
fn multiply(daemon: &Daemon, id: &str) -> Duration {
    let kernel = context(daemon, id, "python");
    let load = "import pandas; frame = pandas.DataFrame({'a': range(1000)}); print(frame.a.sum())";
    assert_eq!(stdout(&execute(daemon, id, Some(&kernel), load)).trim(), "499500");
    let begun = Instant::now();
    let copies = soma(daemon, &["fork", id, "-n", "20"]);
    let took = begun.elapsed();
    let copies: Vec<&str> = copies.lines().collect();
    assert_eq!(copies.len(), 20);
    for (number, copy) in copies.iter().enumerate() {
        let change =
            format!("frame.loc[0, 'a'] = {number}; open('/workspace/own', 'w').write('x')");
        execute(daemon, copy, Some(&kernel), &change);
    }
    for (number, copy) in copies.iter().enumerate() {
        let seen = stdout(&execute(daemon, copy, Some(&kernel), "print(frame.a.sum() - 499500)"));
        assert_eq!(seen.trim(), number.to_string(), "one sees another");
        soma(daemon, &["rm", copy]);
    }
    let unchanged = "import os; print(frame.a.sum(), os.listdir('/workspace'))";
    assert_eq!(stdout(&execute(daemon, id, Some(&kernel), unchanged)).trim(), "499500 []");
    took
}

#[test]
fn two_that_want_it_at_once_cause_one_build_and_a_removed_one_is_built_again() {
    let test = "two_that_want_it_at_once_cause_one_build_and_a_removed_one_is_built_again";
    let Some(daemon) = daemon(test, &["six"]) else { return };
    let wanted = ["code-interpreter", "code-interpreter-v1", "code-interpreter"];
    let waiting: Vec<Child> =
        wanted.iter().map(|name| begin(&daemon, &["new", "--template", name])).collect();
    for child in waiting {
        let id = succeeded(child.wait_with_output().unwrap());
        let said = daemon.execute(&id, SIX);
        assert!(said.contains("/usr/") && !said.contains("/workspace"), "{said}");
        soma(&daemon, &["rm", &id]);
    }
    assert_eq!(layers(&daemon), ["1"]);
    let listed = soma(&daemon, &["template", "ls"]);
    assert!(listed.contains("code-interpreter") && listed.contains("ready"), "{listed}");
    soma(&daemon, &["template", "rm", "code-interpreter"]);
    assert_eq!(template(&daemon)["state"], "not-built");
    assert_eq!(soma(&daemon, &["template", "build", "code-interpreter"]), "code-interpreter");
    assert_eq!(template(&daemon)["state"], "ready");
    daemon.close();
}

#[test]
fn a_build_that_fails_says_why_and_the_next_try_starts_anew() {
    let test = "a_build_that_fails_says_why_and_the_next_try_starts_anew";
    let Some(mut daemon) = daemon(test, &["soma-has-no-such-package"]) else { return };
    for _ in 0..2 {
        let answer = daemon.ask("POST", "/v1/template/code-interpreter/build", "");
        assert_eq!(answer.status, 503, "{}", answer.json());
        let said = answer.message();
        assert!(said.contains("could not be built") && said.contains("starts anew"), "{said}");
        assert!(said.contains("No matching distribution found"), "{said}");
        assert_eq!(template(&daemon)["state"], "failed");
    }
    let wish = json!({ "template_name": "code-interpreter", "allow_unenforced": true });
    assert_eq!(daemon.ask("POST", "/v1/sandbox", &wish.to_string()).status, 503);
    assert_eq!(layers(&daemon), [""; 0]);
    // Whoever corrects the configuration gets it.
    assert!(daemon.end().success());
    let file = daemon.home.path().join("config.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("soma-has-no-such-package", "six")).unwrap();
    daemon.restart();
    assert_eq!(daemon.ask("POST", "/v1/template/code-interpreter/build", "").status, 200);
    daemon.close();
}

#[test]
fn a_build_that_is_cut_short_leaves_nothing_and_one_that_nobody_waits_for_goes_on() {
    let test = "a_build_that_is_cut_short_leaves_nothing_and_one_that_nobody_waits_for_goes_on";
    let Some(mut daemon) = daemon(test, &["six"]) else { return };
    let mut waiting = begin(&daemon, &["template", "build", "code-interpreter"]);
    await_build(&daemon);
    daemon.kill();
    waiting.wait().unwrap();
    daemon.restart();
    assert_eq!(template(&daemon)["state"], "not-built");
    let begun = Instant::now();
    while daemon.ask("GET", "/v1/sandboxes", "").json()["total_items"] != 0 {
        assert!(begun.elapsed() < Duration::from_secs(15), "the sandbox of a build stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut impatient = begin(&daemon, &["new", "--template", "code-interpreter"]);
    await_build(&daemon);
    impatient.kill().unwrap();
    impatient.wait().unwrap();
    let begun = Instant::now();
    while template(&daemon)["state"] != "ready" {
        assert!(begun.elapsed() < Duration::from_secs(90), "{}", template(&daemon));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(layers(&daemon), ["1"]);
    daemon.close();
}

#[test]
fn other_packages_are_another_build_and_sandboxes_keep_the_layer_that_they_had() {
    let test = "other_packages_are_another_build_and_sandboxes_keep_the_layer_that_they_had";
    let Some(mut daemon) = daemon(test, &["six==1.16.0"]) else { return };
    let old = soma(&daemon, &["new", "--template", "code-interpreter", "--timeout", "1h"]);
    assert!(daemon.execute(&old, SIX).starts_with("1.16.0"));
    daemon.execute(&old, "echo mine > /workspace/file");
    soma(&daemon, &["stop", &old]);
    assert!(daemon.end().success());
    daemon.home.kill_engine();
    let file = daemon.home.path().join("config.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("1.16.0", "1.17.0")).unwrap();
    daemon.restart();
    assert_eq!(template(&daemon)["state"], "outdated");
    let new = soma(&daemon, &["new", "--template", "code-interpreter"]);
    assert!(daemon.execute(&new, SIX).starts_with("1.17.0"));
    assert_eq!(layers(&daemon), ["1", "2"]);
    soma(&daemon, &["start", &old]);
    let said = daemon.execute(&old, &format!("{SIX}; cat /workspace/file"));
    assert!(said.starts_with("1.16.0") && said.ends_with("mine\n"), "{said}");
    // A layer for another Python is as good as none.
    if is_root() {
        std::fs::write(daemon.home.path().join("templates/code-interpreter/2/layer"), "python2")
            .unwrap();
        let _ = std::fs::remove_file(
            daemon.home.path().join("templates/code-interpreter/2/layer.copy"),
        );
        assert_eq!(template(&daemon)["state"], "outdated");
    }
    soma(&daemon, &["rm", &old, &new]);
    daemon.close();
}
