//! Starts another program without handing it what this process happens to have.
//!
//! A program that we start should do the same whoever started us: the caller's environment
//! can redirect a dynamic loader, hold keys, or change the language of an output that is
//! parsed; the caller's folder can vanish or keep a mount busy. `std::process::Command`
//! inherits both, so clippy refuses it elsewhere (`clippy.toml`) and this is the way round.

use std::ffi::OsStr;
use std::process::Command;

/// Where a program given by its bare name is looked for.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command with an environment of nothing but [`SYSTEM_PATH`], in the folder `/`.
///
/// What the program needs beyond that is said by the caller, with
/// [`env`](Command::env) and [`current_dir`](Command::current_dir). Descriptors are not
/// touched: everything that Rust opens is already closed on exec.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the one place that the ban leads to")]
    let mut command = Command::new(program);
    command.env_clear().env("PATH", SYSTEM_PATH).current_dir("/");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_the_system_path_and_nothing_of_ours() {
        let output = command("env").output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("PATH={SYSTEM_PATH}\n"));
    }

    #[test]
    fn a_program_starts_in_the_root_folder() {
        let output = command("pwd").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "/\n");
    }
}
