//! The one place that writes: figures to standard output, talk to standard error.
//!
//! A reader that went away (`make bench | head`) is no fault of the figures, so what cannot be
//! written is dropped.

use std::io::Write as _;

/// Writes a line of a table.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Says what is being done, or what went wrong.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "bench: {text}");
}
