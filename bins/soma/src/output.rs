//! The only place that writes to the terminal.
//!
//! Data goes to standard output, talk to standard error. What a sandbox's command writes is
//! passed on as it is, through a [`Console`].

pub(crate) mod building;
mod console;
pub(crate) mod progress;
pub(crate) mod table;

pub(crate) use console::{Broken, Console, Stream};

use crate::failure::{Failure, SOMA_FAILED};

/// Says what went wrong: one line, and perhaps one more on what to do.
pub(crate) fn failure(failure: &Failure) {
    if failure.message.is_empty() {
        return;
    }
    let hint = failure.hint.as_ref().map(|hint| format!("hint: {}\n", one_line(hint)));
    let words =
        format!("soma: {}\n{}", one_line(&failure.message), hint.as_deref().unwrap_or_default());
    // There is nowhere left to say that nothing can be said.
    let _ = console::write_all(rustix::stdio::stderr(), words.as_bytes());
}

/// Writes what was asked for, such as help.
pub(crate) fn words(words: &str) -> Result<u8, Failure> {
    console::write_all(rustix::stdio::stdout(), words.as_bytes())
        .map(|()| 0)
        .map_err(|error| Failure::from(Broken::from(error)))
}

/// Writes bytes of a sandbox's as they are.
pub(crate) fn bytes(stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
    let written = match stream {
        Stream::Stdout => console::write_all(rustix::stdio::stdout(), bytes),
        Stream::Stderr => console::write_all(rustix::stdio::stderr(), bytes),
    };
    written.map_err(|error| Failure::from(Broken::from(error)))
}

/// Writes one JSON document.
pub(crate) fn json(document: &impl serde::Serialize) -> Result<u8, Failure> {
    let mut text = serde_json::to_string_pretty(document).map_err(|error| Failure::own(&error))?;
    text.push('\n');
    words(&text)
}

/// Says something beside the data, such as a question.
pub(crate) fn talk(words: &str) {
    // As with a failure: there is nowhere left to say it.
    let _ = console::write_all(rustix::stdio::stderr(), words.as_bytes());
}

/// Names that people chose end up in messages; none of them may steer the terminal.
pub(crate) fn one_line(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            // As a program that SIGPIPE ended, which is what the others in a pipeline are.
            Broken::Closed => Self::new(128 + 13, ""),
            Broken::Failed(error) => {
                Self::new(SOMA_FAILED, format!("the output cannot be written: {error}"))
            }
        }
    }
}
