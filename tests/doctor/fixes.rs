//! `soma doctor --fix`, where it really has an effect and on nobody else.

use std::io::Write;
use std::process::{Output, Stdio};

use super::{Machine, Seen};

/// A user namespace in which no other may be made: the setting is that namespace's own.
fn without_namespaces() -> Machine {
    Machine::new()
        .unshare(&["--user", "--map-root-user"])
        .with("echo 0 > /proc/sys/user/max_user_namespaces")
}

const CURE: &str = "sysctl -w user.max_user_namespaces=15000";
/// Runs the doctor, and says the setting afterwards.
const AND_THEN: &str = "code=$?; cat /proc/sys/user/max_user_namespaces; exit $code";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_is_safe_is_shown_run_and_looked_at_again() {
    let output = without_namespaces().run(&format!("doctor --fix --yes; {AND_THEN}"));
    let (said, talked) = (text(&output.stdout), text(&output.stderr));
    let shown = talked.find(&format!("safe to run:\n  {CURE}\n"));
    let run = talked.find(&format!("running: {CURE}\n"));
    assert!(shown.is_some() && shown < run, "{talked}");
    assert!(said.contains("changed:\nok    user-namespaces"), "{said}");
    assert!(said.ends_with("\n15000\n"), "{said}");
    // What is for people to decide is shown apart.
    let decide = talked.find("for you to decide, and never run by Soma:").unwrap();
    assert!(Some(decide) < shown, "{talked}");
    assert!(!talked.contains("running: apt-get"), "{talked}");
}

#[test]
fn without_a_terminal_and_without_a_yes_nothing_is_run() {
    let output = without_namespaces().run(&format!("doctor --fix; {AND_THEN}"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let talked = text(&output.stderr);
    assert!(talked.contains(CURE) && !talked.contains("running:"), "{talked}");
    assert!(talked.contains("soma: there is no terminal to ask on"), "{talked}");
    assert!(talked.contains("hint: say `--fix --yes`"), "{talked}");
    assert!(text(&output.stdout).ends_with("\n0\n"), "{output:?}");
}

/// Runs the doctor on a terminal of its own, on which somebody types an answer.
fn answered(answer: &str) -> Output {
    let machine = without_namespaces();
    let script = format!("doctor --fix; {AND_THEN}");
    let inner = machine.command(&script);
    let words: Vec<String> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")))
        .collect();
    let mut terminal = sys_linux::command::command("script");
    terminal.args(["--quiet", "--return", "--command", &words.join(" "), "/dev/null"]);
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    terminal.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    terminal.wait_with_output().unwrap()
}

#[test]
fn a_person_is_asked_and_obeyed() {
    let no = text(&answered("n\n").stdout);
    assert!(no.contains("run these now? [y/N]") && no.contains("nothing was run"), "{no}");
    assert!(no.trim_end().ends_with("\n0"), "{no}");
    let yes = text(&answered("y\n").stdout);
    assert!(yes.contains(&format!("running: {CURE}")), "{yes}");
    assert!(yes.trim_end().ends_with("\n15000"), "{yes}");
}

#[test]
fn a_user_who_is_not_root_is_told_that_root_is_needed() {
    let machine = Machine::new().with_ids("").for_user();
    let output = machine.run("doctor --fix --yes; code=$?; cat $D/ids; exit $code");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let talked = text(&output.stderr);
    assert!(talked.contains("safe to run:\n  usermod --add-subuids"), "{talked}");
    assert!(talked.contains("soma: these commands need root, and nothing was run"), "{talked}");
    assert!(!talked.contains("running:"), "{talked}");
}

#[test]
fn the_command_that_is_shown_for_subordinate_ids_gives_them() {
    // On an `/etc` that is a copy: the command writes to several files in it.
    let machine = Machine::new()
        .with("rm -rf $D/etc; cp -a /etc $D/etc; mount --bind $D/etc /etc")
        .with("echo 'soma-test:x:54321:54321::/nonexistent:/bin/sh' >> /etc/passwd")
        .with("echo 'soma-test:!::0:99999:7:::' >> /etc/shadow")
        .with("echo 'soma-test:x:54321:' >> /etc/group; : > /etc/subuid; : > /etc/subgid")
        .for_user();
    let fix = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 soma-test";
    let before = machine.examine();
    before.assert("subordinate-ids", "missing", "neither /etc/subuid nor", Some(fix));
    let script = format!("{fix} && cat /etc/subuid /etc/subgid >&2; doctor --json 2>&1");
    let mut output = machine.run(&script);
    assert_eq!(text(&output.stderr), "soma-test:100000:65536\nsoma-test:100000:65536\n");
    output.stderr.clear();
    let after = Seen::of(&output);
    let finding = after.finding("subordinate-ids");
    let says = finding["says"].as_str().unwrap();
    assert!(says.contains("user `soma-test` has 65536"), "{finding:#}");
}

#[test]
fn a_command_that_fails_is_said_and_changes_nothing() {
    let machine = without_namespaces().with("mount --bind /bin/false $(command -v sysctl)");
    let output = machine.run(&format!("doctor --fix --yes; {AND_THEN}"));
    let (said, talked) = (text(&output.stdout), text(&output.stderr));
    assert!(talked.contains("it failed: exit status: 1"), "{talked}");
    assert!(said.contains("\nnothing changed\n") && said.ends_with("\n0\n"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
