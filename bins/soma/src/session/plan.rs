//! What was typed, as something that can be done.

use domain::{Language, SandboxSpec};
use guest_proto::client::StartOptions;

/// What was typed, as something that can be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The sandbox.
    pub(crate) spec: SandboxSpec,
    /// The command in it, with the time it may take.
    pub(crate) start: StartOptions,
    /// The language, when what runs is code in one.
    pub(crate) language: Option<Language>,
}
