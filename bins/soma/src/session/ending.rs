//! How a command ended, as an exit code and perhaps a message.

use std::time::Duration;

use domain::{By, Cause};
use guest_proto::GuestError;
use guest_proto::client::Ended;

use super::Seen;
use super::plan::Plan;
use crate::failure::{Failure, SOMA_FAILED, USAGE};

const TIMED_OUT: u8 = 124;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

const NO_ENTRY: i32 = 2;
const KILL: i32 = 9;

/// What a command that ended by itself means for whoever typed it.
pub(super) fn of_command(ended: &Ended, plan: &Plan) -> Result<u8, Failure> {
    if let Some(number) = ended.exec_errno {
        return Err(not_started(number, plan));
    }
    let code = ended.signal.map_or(ended.code & 0xff, |signal| 128 + signal);
    let code = u8::try_from(code).unwrap_or(u8::MAX);
    match control::cause_of(ended) {
        // What somebody sent, or a program's own word, needs none of ours.
        Some(Cause::Signal(By::Signal(signal))) if signal != KILL => Ok(code),
        Some(Cause::Signal(By::Code(_)) | Cause::SegmentationFault(By::Code(_))) | None => Ok(code),
        Some(cause) => Err(Failure::new(code, cause.message()).hint(hint(cause, plan))),
    }
}

/// What to do next, in words that can be typed.
fn hint(cause: Cause, plan: &Plan) -> String {
    let option = match cause {
        Cause::OutOfMemory => "--memory",
        Cause::ProcessLimit => "--pids",
        Cause::DiskFull => "--disk",
        Cause::InodesFull => "--inodes",
        _ => return cause.hint().to_owned(),
    };
    match (cause, plan.is_fresh) {
        (Cause::OutOfMemory, true) => {
            format!("it had {}: give it more with {option}", plan.spec.limits.memory)
        }
        (_, true) => format!("give it more with {option}"),
        (_, false) => cause.hint().to_owned(),
    }
}

fn not_started(number: i32, plan: &Plan) -> Failure {
    let program = &plan.start.cmd;
    match (number, plan.language) {
        (NO_ENTRY, Some(language)) => Failure::new(
            NOT_FOUND,
            format!("{language} needs `{}`, which is not in the sandbox", language.interpreter()),
        )
        .hint(format!(
            "the default template is the host's own /usr: install the package `{}` on the host",
            language.package()
        )),
        (NO_ENTRY, None) => {
            Failure::new(NOT_FOUND, format!("there is no program `{program}` in the sandbox"))
                .hint("the default template is the host's own /usr, and nothing else of the host")
        }
        (number, _) => {
            let cause = std::io::Error::from_raw_os_error(number);
            Failure::new(NOT_EXECUTABLE, format!("`{program}` cannot be executed: {cause}"))
        }
    }
}

/// What a guest that did not do its part means for whoever typed it. `seen` is the sandbox as
/// it was found afterwards.
pub(super) fn of_guest(error: &GuestError, plan: &Plan, seen: Option<Seen>) -> Failure {
    match error {
        GuestError::UnknownUser { .. } => {
            let user = plan.start.user.as_deref().unwrap_or_default();
            if user == "root" {
                let message = "this sandbox has one id only, so there is no root in it";
                return Failure::new(USAGE, message)
                    .hint("`soma doctor` says how to have subordinate ids");
            }
            Failure::new(USAGE, format!("there is no user `{user}` in the sandbox"))
                .hint("root and user exist")
        }
        GuestError::InvalidArgument { message } => Failure::new(USAGE, message.clone()),
        GuestError::DeadlineExceeded { .. } => timed_out(plan),
        GuestError::Unavailable { .. } => match seen {
            Some(Seen::TimedOut) if plan.is_fresh => timed_out(plan),
            Some(Seen::TimedOut) => sandbox_timed_out(),
            Some(Seen::Ended(why)) => {
                Failure::new(SOMA_FAILED, format!("the sandbox ended before its command: {why}"))
            }
            _ => Failure::own(error_of(error)),
        },
        error => Failure::own(error_of(error)),
    }
}

fn error_of(error: &GuestError) -> &(dyn std::error::Error + 'static) {
    error
}

fn timed_out(plan: &Plan) -> Failure {
    let Some(time) = plan.start.timeout else { return sandbox_timed_out() };
    let words = format!("the command was ended: it took longer than {}", spell(time));
    Failure::new(TIMED_OUT, words)
        .hint(format!("give it more with --timeout, such as --timeout {}", typed(time * 2)))
}

fn sandbox_timed_out() -> Failure {
    Failure::new(TIMED_OUT, "the sandbox was ended: its time was over")
}

/// A time in words.
fn spell(time: Duration) -> String {
    match time.as_millis() {
        milliseconds if milliseconds % 1000 != 0 => format!("{milliseconds} ms"),
        milliseconds if milliseconds % 60_000 != 0 => format!("{} s", milliseconds / 1000),
        milliseconds => format!("{} min", milliseconds / 60_000),
    }
}

/// A time as it can be typed.
fn typed(time: Duration) -> String {
    spell(time).replace("min", "m").replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_people_do() {
        assert_eq!(spell(Duration::from_millis(1500)), "1500 ms");
        assert_eq!(spell(Duration::from_secs(90)), "90 s");
        assert_eq!(spell(Duration::from_mins(5)), "5 min");
        assert_eq!(typed(Duration::from_mins(10)), "10m");
        assert_eq!(
            domain::parse_duration(&typed(Duration::from_millis(3))).unwrap().as_millis(),
            3
        );
    }
}
