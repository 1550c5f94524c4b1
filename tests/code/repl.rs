//! `soma repl` on a person's terminal, played by tmux, and without one.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

use client::{Client, Place};
use guest_proto::code::NewContext;

use crate::shell::screen::Screen;
use crate::support::{self, Home};

/// The prompt of Python's cells.
const PROMPT: &str = "python>";

/// A terminal with `soma repl` at its prompt.
fn typing(home: &Home, test: &str, words: &str) -> Option<Screen> {
    let screen = Screen::open(home, test, &["python3"])?;
    screen.start(&format!("repl {words}"));
    at_prompt(&screen, PROMPT);
    Some(screen)
}

#[track_caller]
fn at_prompt(screen: &Screen, prompt: &str) {
    screen.wait("no prompt", |text| text.trim_end().ends_with(prompt));
}

/// Runs `soma repl` with this on its standard input.
fn piped(home: &Home, words: &[&str], input: &str) -> Output {
    let mut command = home.soma(["repl"].iter().chain(words));
    let mut repl = command.stdin(Stdio::piped()).spawn().unwrap();
    repl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    repl.wait_with_output().unwrap()
}

#[test]
fn cells_remember_and_values_and_errors_are_shown() {
    let home = Home::new();
    let Some(screen) = typing(&home, "cells_remember", "") else { return };
    screen.line("x = 20 + 1");
    at_prompt(&screen, PROMPT);
    screen.line("x * 2");
    screen.wait("no value", |text| text.contains("\n42\n"));
    screen.line("1 / 0");
    screen.wait("no error", |text| text.contains("ZeroDivisionError: division by zero"));
    at_prompt(&screen, PROMPT);
    screen.line("print('half', end='')");
    screen.wait("the prompt has no line of its own", |text| text.contains("\nhalf\npython>"));
    screen.line("print(x)");
    screen.wait("the state is lost", |text| text.contains("\n21\n"));
    at_prompt(&screen, PROMPT);
    screen.keys(&["C-d"]);
    assert_eq!(screen.code(), 0);
    drop(screen);
    home.assert_nothing_left();
}

#[test]
fn blocks_and_brackets_go_on_over_lines() {
    let home = Home::new();
    let Some(screen) = typing(&home, "blocks_and_brackets", "") else { return };
    screen.line("def f(a):");
    screen.line("    return a + 1");
    screen.line("");
    at_prompt(&screen, PROMPT);
    screen.line("f(");
    screen.line("  41)");
    screen.wait("no value", |text| text.contains("\n42\n"));
    at_prompt(&screen, PROMPT);
    // Ctrl-C leaves what is not complete.
    screen.line("g(");
    screen.keys(&["C-c"]);
    at_prompt(&screen, PROMPT);
    screen.line("f(1) * 1000");
    screen.wait("the line was not cleared", |text| text.contains("\n2000\n"));
}

#[test]
fn ctrl_c_stops_a_cell_and_keeps_the_state() {
    let home = Home::new();
    let Some(screen) = typing(&home, "ctrl_c_stops_a_cell", "") else { return };
    screen
        .line("kept = 7; print('asleep-%d' % (1 + 1), flush=True); import time; time.sleep(1000)");
    screen.wait("it does not sleep", |text| text.contains("asleep-2"));
    screen.keys(&["C-c"]);
    screen.wait("it was not interrupted", |text| text.contains("KeyboardInterrupt"));
    at_prompt(&screen, PROMPT);
    screen.line("kept * 11");
    screen.wait("the state is lost", |text| text.contains("\n77\n"));
}

#[test]
fn tab_completes_what_the_kernel_knows() {
    let home = Home::new();
    let Some(screen) = typing(&home, "tab_completes", "") else { return };
    screen.line("remarkable = 'com' + 'plete'");
    at_prompt(&screen, PROMPT);
    screen.tmux(&["send-keys", "-l", "remark"]);
    screen.keys(&["Tab"]);
    screen.wait("it is not completed", |text| text.trim_end().ends_with("python> remarkable"));
    screen.keys(&["Enter"]);
    screen.wait("no value", |text| text.contains("\n'complete'\n"));
}

#[test]
fn what_a_cell_asks_is_answered_and_a_password_is_not_seen() {
    let home = Home::new();
    let Some(screen) = typing(&home, "what_a_cell_asks", "") else { return };
    screen.line("print('<' + input('who? ') + '>')");
    screen.wait("it does not ask", |text| text.trim_end().ends_with("who?"));
    screen.line("me");
    screen.wait("the answer is lost", |text| text.contains("\n<me>\n"));
    at_prompt(&screen, PROMPT);
    screen.line("import getpass; print(len(getpass.getpass('key? ')))");
    screen.wait("it does not ask", |text| text.trim_end().ends_with("key?"));
    screen.line("swordfish");
    let text = screen.wait("the answer is lost", |text| text.contains("\n9\n"));
    assert!(!text.contains("swordfish"), "{text}");
}

#[test]
fn what_was_typed_is_there_the_next_time_and_nobody_else_reads_it() {
    let home = Home::new();
    let Some(screen) = typing(&home, "what_was_typed", "") else { return };
    screen.line("'remembered-%d' % (3 + 4)");
    screen.wait("no value", |text| text.contains("'remembered-7'"));
    at_prompt(&screen, PROMPT);
    screen.keys(&["C-d"]);
    assert_eq!(screen.code(), 0);
    let mode = home.path().join("repl_history").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    screen.line("clear");
    screen.start("repl");
    at_prompt(&screen, PROMPT);
    screen.keys(&["Up", "Enter"]);
    screen.wait("it is forgotten", |text| text.contains("'remembered-7'"));
}

#[test]
fn a_context_that_is_named_stays_and_another_does_not() {
    let home = Home::new();
    let made = home.soma(["new", "--name", "lab"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let first = piped(&home, &["lab"], "x = 1\nprint(x)");
    assert_eq!((first.status.code(), first.stdout.as_slice()), (Some(0), &b"1\n"[..]), "{first:?}");
    let second = piped(&home, &["lab"], "print('x' in globals())");
    assert_eq!(second.stdout, b"False\n", "{second:?}");
    assert_eq!(contexts(&home, "lab"), [] as [&str; 0]);

    let id = ask(&home, async |client| {
        let made = client.create_context("lab", &NewContext::default()).await.unwrap();
        made.id
    });
    let third = piped(&home, &["lab", "--context", &id], "x = 21");
    assert_eq!(third.status.code(), Some(0), "{third:?}");
    let fourth = piped(&home, &["lab", "--context", &id], "x * 2");
    assert_eq!(fourth.stdout, b"42\n", "{fourth:?}");
    assert_eq!(contexts(&home, "lab"), [id.as_str()]);
    let other = piped(&home, &["lab", "--context", &id, "--lang", "bash"], "ls");
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let unknown = piped(&home, &["lab", "--context", "nobody"], "1");
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(home.soma(["rm", "lab"]).status().unwrap().success());
    home.assert_nothing_left();
}

#[test]
fn a_cell_that_takes_no_interrupt_is_ended_by_the_third() {
    let home = Home::new();
    let Some(screen) = typing(&home, "a_cell_that_takes_no_interrupt", "") else { return };
    // A handler of an earlier cell is not this one's.
    screen.line(
        "import signal, time; signal.signal(signal.SIGINT, lambda *_: print('no', flush=True)); \
         print('deaf-%d' % (1 + 1), flush=True); [time.sleep(1000) for _ in range(9)]",
    );
    screen.wait("it does not run", |text| text.contains("deaf-2"));
    screen.keys(&["C-c"]);
    // Two at once would be one: signals do not queue.
    let heard = |text: &str| text.lines().any(|line| line.trim_start_matches("^C") == "no");
    screen.wait("it hears nothing", heard);
    screen.keys(&["C-c"]);
    screen.wait("nothing is said", |text| text.contains("one more Ctrl-C ends the kernel"));
    screen.keys(&["C-c"]);
    screen.wait("nothing is lost", |text| text.contains("lost"));
    at_prompt(&screen, PROMPT);
    screen.line("40 + 2");
    screen.wait("nothing runs any more", |text| text.contains("\n42\n"));
}

/// The contexts of a sandbox.
fn contexts(home: &Home, sandbox: &str) -> Vec<String> {
    let all = ask(home, async |client| client.contexts(sandbox).await.unwrap());
    all.into_iter().map(|context| context.id).collect()
}

/// Asks the daemon of a home.
fn ask<T>(home: &Home, question: impl AsyncFnOnce(Client) -> T) -> T {
    let client = Client::new(Place::Socket(home.path().join("daemon/soma.sock")), None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(question(client))
}

#[test]
fn without_a_terminal_standard_input_is_one_cell_and_its_failure_is_the_code() {
    let home = Home::new();
    let fine = piped(&home, &[], "x = 20\nprint('out')\nx + 1");
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    assert_eq!(String::from_utf8(fine.stdout).unwrap(), "out\n21\n");
    let failed = piped(&home, &["--lang", "bash"], "echo before; false_command_nobody_has");
    assert_eq!(String::from_utf8(failed.stdout).unwrap(), "before\n");
    let failed = piped(&home, &[], "raise ValueError('no')");
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let words = String::from_utf8(failed.stderr).unwrap();
    assert!(words.contains("ValueError: no"), "{words}");
    let long = piped(&home, &[], "for _ in range(1000): print('x' * 999)");
    assert_eq!(long.stdout.len(), 1_000_000, "{}", String::from_utf8_lossy(&long.stderr));
    let asked = piped(&home, &[], "input()");
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    home.assert_nothing_left();
}

#[test]
fn every_language_whose_interpreter_is_there_remembers() {
    let home = Home::new();
    for (language, program, code, value) in [
        ("node", "node", "const x = 40;\nx + 2", "42\n"),
        ("typescript", "node", "const x: number = 40;\nx + 2", "42\n"),
        ("r", "Rscript", "x <- 40\nx + 2", "[1] 42\n"),
        ("bash", "bash", "x=40\necho $((x + 2))", "42\n"),
    ] {
        if !std::path::Path::new("/usr/bin").join(program).exists() {
            support::skip(
                &format!("every_language_remembers: {language}"),
                &format!("{program} is not in /usr/bin"),
            );
            continue;
        }
        let output = piped(&home, &["--lang", language], code);
        if String::from_utf8_lossy(&output.stderr).contains("TypeScript needs Node") {
            support::skip("every_language_remembers: typescript", "this Node cannot strip types");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{language}: {output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), value, "{language}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let home = Home::new();
    for (words, said) in [
        (&["--lang", "cobol"][..], "there is no kernel for 'cobol'"),
        (&["--context", "x"], "--context names a context of a sandbox that is there"),
        (&["box", "--memory", "1g"], "--memory is set when a sandbox is made"),
        (&["box", "--context", "x", "--env", "A=1"], "--env is set when a context is made"),
    ] {
        let output = piped(&home, words, "1");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
    assert!(home.daemons().is_empty(), "a daemon was started for it");
}
