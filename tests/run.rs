//! `soma run` from outside: the real program, real sandboxes.
//!
//! What a user can do is in `works`, what a user can get wrong in `refusals`, what happens when
//! somebody has enough in `interruptions`, and large or odd output in `output`. After each,
//! nothing may be left on the host.

mod interruptions;
mod output;
mod refusals;
mod works;

use std::process::Output;

/// The exit code of a program that left by itself.
fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// One line on what happened, and perhaps one on what to do.
#[track_caller]
fn assert_one_message(output: &Output) {
    let lines: Vec<&str> = stderr(output).lines().collect();
    let fine = match lines.as_slice() {
        [message] => message.starts_with("soma: "),
        [message, hint] => message.starts_with("soma: ") && hint.starts_with("hint: "),
        _ => false,
    };
    assert!(fine, "{lines:#?}");
}
