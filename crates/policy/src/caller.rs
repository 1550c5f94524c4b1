//! Who asks.

use domain::Owner;

/// Who asks, as whoever let them in found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Which kind of caller.
    pub who: Who,
    /// Whose sandboxes they make and see.
    pub owner: Owner,
    /// The id of their request, where there is one, for what is written down about it.
    pub request: Option<String>,
}

/// The kinds of callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Soma itself: what it does at start, on time and on its own.
    Soma,
    /// Somebody on this machine who could also have started the daemon.
    Local,
    /// Somebody with a key.
    Key {
        /// The key's name; never the key.
        name: String,
    },
    /// Somebody who showed the token of one sandbox, and may use that one.
    Token {
        /// Which sandbox.
        sandbox: domain::SandboxId,
    },
}

impl Caller {
    /// Soma itself.
    pub fn soma() -> Self {
        Self { who: Who::Soma, owner: Owner::default(), request: None }
    }

    /// Somebody on this machine.
    pub fn local() -> Self {
        Self { who: Who::Local, owner: Owner::default(), request: None }
    }

    /// Somebody with a key of this name.
    pub fn key(name: impl Into<String>, owner: Owner) -> Self {
        Self { who: Who::Key { name: name.into() }, owner, request: None }
    }

    /// The name under which what they do is recorded.
    pub fn name(&self) -> String {
        match &self.who {
            Who::Soma => "soma".to_owned(),
            Who::Local => "local".to_owned(),
            Who::Key { name } => format!("key {name}"),
            Who::Token { .. } => "token".to_owned(),
        }
    }
}
