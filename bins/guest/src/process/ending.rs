//! How a process ended, in the words of the protocol.

use domain::Cause;
use guest_proto::process::process_event::EndEvent;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    /// What its parent saw.
    pub(crate) exit: Exit,
    /// The error with which the program could not be executed.
    pub(crate) exec_errno: Option<i32>,
    /// It was killed because its time was over.
    pub(crate) expired: bool,
    /// Why it failed, if the sandbox shows it.
    pub(crate) cause: Option<Cause>,
}

/// What the parent of a process sees at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It left with a code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl From<Ending> for EndEvent {
    fn from(ending: Ending) -> Self {
        let (exit_code, exited, status, signal) = match ending.exit {
            Exit::Code(code) => (code, true, format!("exit status {code}"), None),
            Exit::Signal(signal) => (-1, false, signal_status(signal), Some(signal)),
        };
        let cause = ending.cause.and_then(Cause::word).map(ToOwned::to_owned);
        let error = (exit_code != 0).then(|| match ending.cause {
            Some(cause) => format!("{status}: {}", cause.message()),
            None => status.clone(),
        });
        let exec_errno = ending.exec_errno;
        Self { exit_code, exited, status, error, signal, exec_errno, cause, ..Self::default() }
    }
}

/// The name of a signal as Go's library gives it, which is what clients of E2B know.
fn signal_status(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        16 => "stack fault",
        24 => "CPU time limit exceeded",
        25 => "file size limit exceeded",
        26 => "virtual timer expired",
        27 => "profiling timer expired",
        29 => "I/O possible",
        30 => "power failure",
        31 => "bad system call",
        other => return format!("signal: signal {other}"),
    };
    format!("signal: {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(exit: Exit) -> EndEvent {
        Ending { exit, exec_errno: None, expired: false, cause: None }.into()
    }

    #[test]
    fn a_cause_is_told_in_words_and_as_a_word() {
        let cause = Some(Cause::OutOfMemory);
        let end: EndEvent =
            Ending { exit: Exit::Signal(9), exec_errno: None, expired: false, cause }.into();
        assert_eq!(end.cause.as_deref(), Some("out_of_memory"));
        assert_eq!(end.status, "signal: killed");
        assert!(end.error.unwrap().starts_with("signal: killed: the sandbox ran out of memory"));
    }

    #[test]
    fn success_has_a_status_and_no_error() {
        let end = end(Exit::Code(0));
        assert_eq!((end.exit_code, end.exited, end.error), (0, true, None));
        assert_eq!(end.status, "exit status 0");
    }

    #[test]
    fn a_code_is_told_as_go_tells_it() {
        let end = end(Exit::Code(3));
        assert_eq!((end.exit_code, end.exited), (3, true));
        assert_eq!(end.error.as_deref(), Some("exit status 3"));
    }

    #[test]
    fn a_signal_is_minus_one_and_not_an_exit() {
        let end = end(Exit::Signal(9));
        assert_eq!((end.exit_code, end.exited, end.signal), (-1, false, Some(9)));
        assert_eq!(end.error.as_deref(), Some("signal: killed"));
    }
}
