//! Whether a cell goes on: brackets, quotes and blocks that are open.
//!
//! Only the interpreter knows for sure. This errs towards running, because it then says what is
//! wrong, while somebody who is asked for more has to guess.

mod bash;
mod brackets;
mod javascript;
mod python;
mod r;

use guest_proto::code::Language;

/// Whether more has to come before this can run.
pub(super) fn is_incomplete(language: Language, text: &str) -> bool {
    if text.trim().is_empty() {
        return false;
    }
    match language {
        Language::Python => python::is_incomplete(text),
        Language::Javascript | Language::Typescript => javascript::is_incomplete(text),
        Language::R => r::is_incomplete(text),
        Language::Bash => bash::is_incomplete(text),
    }
}
