//! Why a sandbox is no longer running.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a sandbox's first process came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Somebody asked for it.
    Stopped,
    /// Its time was over.
    TimedOut,
    /// The guest left by itself with this code, which it never does when all is well.
    Exited {
        /// What it left with.
        code: i32,
    },
    /// A signal that Soma did not send.
    Signalled {
        /// Its number.
        signal: i32,
    },
    /// The host's disk was nearly full, and it went on writing.
    HostFull,
    /// The host was restarted, and nothing outlives that but files.
    HostRestarted,
    /// Nobody was there to see it: its supervisor was killed, and with it the sandbox.
    Unseen,
    /// Its host knows nothing of it any more, though nobody was told that it is gone.
    Missing,
    /// What is written down about it cannot be read, so it cannot be told.
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => formatter.write_str("it was stopped"),
            Self::TimedOut => formatter.write_str("its time was over"),
            Self::Exited { code } => write!(formatter, "its guest left with code {code}"),
            Self::Signalled { signal } => write!(formatter, "its guest got signal {signal}"),
            Self::HostFull => formatter.write_str(
                "the host's disk was nearly full and it went on writing: make room there, then \
                 start it",
            ),
            Self::HostRestarted => formatter.write_str("its host was restarted"),
            Self::Unseen => formatter.write_str("its supervisor was killed, and it ended unseen"),
            Self::Missing => formatter.write_str("nothing of it was found on its host"),
            Self::Unreadable { reason } => {
                write!(formatter, "what is written down about it cannot be read: {reason}")
            }
        }
    }
}
