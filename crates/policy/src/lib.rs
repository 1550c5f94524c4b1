//! Who may do what: pure decisions, each a rule with a name.
//!
//! [`Rules::decide`] is the only way to a [`Permitted`], and providers take nothing else: a call
//! that nobody decided on does not compile. Nothing here does I/O or waits, and a decision
//! depends on nothing but its arguments.
//!
//! Start at [`Rules::decide`]. What is not here: who the caller is (`gateway` finds that out),
//! and whether a sandbox is in a state for it (`control`).

mod caller;
mod rules;

pub use caller::{Caller, Who};
pub use rules::{Action, Denied, Permitted, Rule, Rules};
