//! What a user can do.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{assert_one_message, code, stderr, stdout};
use crate::support::Home;

#[test]
fn python_is_the_default_language() {
    let home = Home::new();
    let output = home.run(&["print(6*7)"]);
    assert_eq!((code(&output), stdout(&output), stderr(&output)), (0, "42\n", ""));
    home.assert_nothing_left();
}

#[test]
fn every_language_runs_or_names_the_package_that_it_needs() {
    let home = Home::new();
    for (language, program, package, text) in [
        ("bash", "bash", "bash", "echo $((6*7))"),
        ("python", "python3", "python3", "print(6*7)"),
        ("node", "node", "nodejs", "console.log(6*7)"),
        ("r", "Rscript", "r-base-core", "cat(6*7, '\n', sep='')"),
    ] {
        let output = home.run(&["--lang", language, text]);
        if std::path::Path::new("/usr/bin").join(program).exists() {
            assert_eq!((code(&output), stdout(&output)), (0, "42\n"), "{language}: {output:?}");
        } else {
            assert_eq!(code(&output), 127, "{language}: {output:?}");
            assert_one_message(&output);
            let words = stderr(&output);
            assert!(words.contains(program) && words.contains(package), "{words}");
            assert!(words.contains("/usr"), "{words}");
        }
    }
    home.assert_nothing_left();
}

#[test]
fn code_comes_from_standard_input_with_a_dash() {
    let home = Home::new();
    for (language, text) in [("python", "print(6*7)\n"), ("bash", "echo $((6*7))\n")] {
        let mut soma = home.soma(["run", "--lang", language, "-"]);
        let mut child = soma.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), stdout(&output)), (0, "42\n"), "{output:?}");
    }
    home.assert_nothing_left();
}

#[test]
fn a_program_runs_with_its_arguments_as_they_are() {
    let home = Home::new();
    let output = home.run(&["--", "printf", "%s|", "a b", "", "--", "$HOME", "ü"]);
    assert_eq!((code(&output), stdout(&output)), (0, "a b||--|$HOME|ü|"));
    home.assert_nothing_left();
}

#[test]
fn the_exit_code_is_passed_on() {
    let home = Home::new();
    assert_eq!(code(&home.run(&["--", "true"])), 0);
    assert_eq!(code(&home.run(&["import sys; sys.exit(3)"])), 3);
    assert_eq!(code(&home.run(&["--", "sh", "-c", "exit 255"])), 255);
    assert_eq!(code(&home.run(&["--", "sh", "-c", "kill -TERM $$"])), 128 + 15);
    assert_eq!(code(&home.run(&["--", "sh", "-c", "kill -SEGV $$"])), 128 + 11);
    home.assert_nothing_left();
}

#[test]
fn output_is_streamed_while_the_command_runs() {
    let home = Home::new();
    home.run(&["--", "true"]);
    let mut child = home.start(&["import time; print('first'); time.sleep(3); print('last')"]);
    let begun = Instant::now();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(lines.next().unwrap().unwrap(), "last");
    assert!(child.wait().unwrap().success());
    home.assert_nothing_left();
}

#[test]
fn both_outputs_stay_apart() {
    let home = Home::new();
    let output = home.run(&["--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((stdout(&output), stderr(&output)), ("out\n", "err\n"));
    home.assert_nothing_left();
}

#[test]
fn standard_input_reaches_the_command_and_its_end_too() {
    let home = Home::new();
    let mut child = home.soma(["run", "--", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let sent: Vec<u8> = (0..5_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut input = child.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || input.write_all(&copy));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.stdout == sent, "{} of {} bytes", output.stdout.len(), sent.len());
    assert_eq!(code(&output), 0);
    home.assert_nothing_left();
}

#[test]
fn input_that_nobody_ends_keeps_nobody_waiting() {
    let home = Home::new();
    home.run(&["--", "true"]);
    let mut child = home.soma(["run", "--", "true"]).stdin(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let begun = Instant::now();
    assert!(child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(open);
    home.assert_nothing_left();
}

#[test]
fn closed_descriptors_are_no_trouble() {
    let home = Home::new();
    let line = format!("{} run -- true <&- >&- 2>&-", *crate::support::SOMA);
    let status = home.command("sh").args(["-c", &line]).status().unwrap();
    assert_eq!(status.code(), Some(0));
    home.assert_nothing_left();
}

#[test]
fn variables_folder_and_user_are_as_asked() {
    let home = Home::new();
    let output = home.run(&["-e", "A=b=c", "--env", "EMPTY=", "--", "sh", "-c", "echo $A-$EMPTY-"]);
    assert_eq!(stdout(&output), "b=c--\n");
    assert_eq!(stdout(&home.run(&["--", "pwd"])), "/home/user\n");
    assert_eq!(stdout(&home.run(&["-w", "/workspace", "--", "pwd"])), "/workspace\n");
    assert_eq!(stdout(&home.run(&["--", "id", "-un"])), "user\n");
    assert_eq!(stdout(&home.run(&["--user", "root", "--", "id", "-u"])), "0\n");
    home.assert_nothing_left();
}

#[test]
fn each_run_is_a_fresh_sandbox() {
    let home = Home::new();
    assert_eq!(code(&home.run(&["--", "touch", "/workspace/mark", "/tmp/mark", "mark"])), 0);
    let output = home.run(&["--", "ls", "/workspace", "/tmp", "/home/user"]);
    assert!(!stdout(&output).contains("mark"), "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn nothing_of_the_callers_environment_is_in_sight() {
    let home = Home::new();
    let mut soma = home.soma(["run", "--", "env"]);
    let output = soma.env("CALLERS_SECRET", "hunter2").output().unwrap();
    assert_eq!(code(&output), 0);
    let words = stdout(&output);
    assert!(!words.contains("hunter2") && !words.contains("SOMA_HOME"), "{words}");
    home.assert_nothing_left();
}

#[test]
fn memory_is_limited_and_the_end_explained() {
    if crate::support::needs_root("memory_is_limited_and_the_end_explained", "limit of memory") {
        return;
    }
    let home = Home::new();
    let output = home.run(&["--memory", "64m", "x = bytearray(400_000_000); print(len(x))"]);
    assert_eq!((code(&output), stdout(&output)), (128 + 9, ""), "{output:?}");
    assert_one_message(&output);
    assert!(stderr(&output).contains("64 MiB") && stderr(&output).contains("--memory"));
    home.assert_nothing_left();
}

#[test]
fn processes_are_limited() {
    let home = Home::new();
    let text = "\
import subprocess
children = []
try:
    for _ in range(100):
        children.append(subprocess.Popen(['sleep', '30']))
except OSError as error:
    print(error.errno, len(children) < 30)
";
    let output = home.run(&["--pids", "30", text]);
    assert_eq!(stdout(&output), "11 True\n", "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn processor_time_is_limited() {
    if crate::support::needs_root("processor_time_is_limited", "limit of processor time") {
        return;
    }
    let home = Home::new();
    let text = "\
import time
end = time.monotonic() + 2
while time.monotonic() < end: pass
print(time.process_time())
";
    let output = home.run(&["--cpus", "0.2", text]);
    let used: f64 = stdout(&output).trim().parse().unwrap();
    assert!(used < 1.0, "{used} s of 2 at a fifth of a processor");
    home.assert_nothing_left();
}

#[test]
fn the_disk_is_limited() {
    if crate::support::needs_root("the_disk_is_limited", "limit of the disk") {
        return;
    }
    let home = Home::new();
    let output = home.run(&[
        "--disk",
        "64m",
        "--",
        "dd",
        "if=/dev/zero",
        "of=/home/user/big",
        "bs=1M",
        "count=200",
    ]);
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(stderr(&output).contains("No space left"), "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn many_runs_at_once_do_not_disturb_each_other() {
    let home = Home::new();
    let runs: Vec<_> = (0..8).map(|n| home.start(&[&format!("print({n})")])).collect();
    for (number, child) in runs.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let seen = (code(&output), stdout(&output), stderr(&output));
        assert_eq!(seen, (0, format!("{number}\n").as_str(), ""));
    }
    home.assert_nothing_left();
}
