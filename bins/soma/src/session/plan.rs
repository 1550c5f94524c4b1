//! What was typed, as something that can be done.

use api_v1::network::Network;
use api_v1::sandboxes::Sandbox;
use domain::{Bytes, Language, SandboxSpec};
use guest_proto::client::StartOptions;

/// What was typed, as something that can be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The sandbox.
    pub(crate) spec: SandboxSpec,
    /// What it may reach; what the daemon chooses when unset.
    pub(crate) network: Option<Network>,
    /// The command in it, with the time it may take.
    pub(crate) start: StartOptions,
    /// The language, when what runs is code in one.
    pub(crate) language: Option<Language>,
    /// Whether the sandbox is made for it, and gone afterwards.
    pub(crate) is_fresh: bool,
}

impl Plan {
    /// Makes it one for a sandbox that is there.
    pub(crate) fn be_in(&mut self, sandbox: &Sandbox) {
        self.is_fresh = false;
        self.spec.limits.memory = Bytes::mebibytes(sandbox.memory);
    }
}
