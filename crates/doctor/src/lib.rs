//! What this host can do for sandboxes, found out by trying.
//!
//! [`examine`] goes through a list of checks, each in a file of its own below `checks`, and
//! gives a [`Report`]: one [`Finding`] for each thing, with why, what Soma does without it and
//! what would cure it, and a [`Verdict`] over all of them.
//!
//! The kernel says little about itself that is true everywhere: a setting may be overruled by
//! another, by a container or by a filter. So what can be tried is tried, in a process of its
//! own with a time limit ([`attempt`]), which leaves nothing behind and changes nothing.
//!
//! What is not here: how findings are shown and cures are run (`bins/soma`).

mod attempt;
mod checks;
mod finding;
mod holder;
mod host;
mod mounts;
mod program;
mod scratch;
mod settings;
mod verdict;

pub use checks::{SUBJECT_WORDS, be_dumped, examine};
pub use finding::{Finding, Fix, State};
pub use host::Host;
pub use verdict::{Quality, Report, Verdict};
