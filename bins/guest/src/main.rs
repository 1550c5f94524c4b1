//! The guest's program. All of it is in the library, where fuzzing reaches it.

use std::process::ExitCode;

fn main() -> ExitCode {
    soma_guest::run()
}
