//! What the engine and the egress program say to each other, as messages of `link`.
//!
//! The engine is the client. It attaches each sandbox with sockets that it made in the
//! sandbox's namespace; when the connection is gone it comes again and attaches what is missing.

use domain::SandboxId;
use serde::{Deserialize, Serialize};

/// Where in a sandbox's namespace its resolver answers: UDP, port 53.
pub const RESOLVER: [u8; 4] = wiring::RESOLVER.octets();
/// The sandbox's own address.
pub const OWN: [u8; 4] = wiring::OWN.octets();
/// Names get addresses from here on, up to the end of 198.18.0.0/15.
pub const FIRST_OF_NAMES: [u8; 4] = [198, 18, 1, 0];
/// Where the metadata service answers: TCP, port 80.
pub const METADATA: [u8; 4] = [169, 254, 169, 254];

/// Raised with every change of the messages.
const MESSAGES: u32 = 2;

/// Which egress program this is.
pub fn version() -> String {
    format!("{}/{MESSAGES}", env!("CARGO_PKG_VERSION"))
}

/// What the first message of a connection says: who comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hello {
    /// The engine. [`ToEgress`] follows.
    Engine {
        /// What [`version`] says. A program of another version ends, so that the engine starts its
        /// own.
        version: String,
    },
    /// Somebody who reads one sandbox's log from a number on, or also what is yet to come. Lines
    /// of JSON, each a `domain::NetworkEntry`, follow as packets.
    Log {
        /// Whose.
        sandbox: SandboxId,
        /// Only what has a higher number.
        after: u64,
        /// Go on until the reader leaves.
        follow: bool,
    },
}

/// What the engine says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToEgress {
    /// From now on this is the operator's [`Configuration`](crate::Configuration), as JSON.
    Configure {
        /// By which the answer is known.
        number: u64,
        /// What it wants.
        configuration: String,
    },
    /// A sandbox, with three descriptors: the TCP socket that listens for all its connections, the
    /// UDP socket of its resolver, and its first process, with whose end it is detached also when
    /// no engine is there to say so. One that is attached already gets new ones and these rules.
    Attach {
        /// By which the answer is known.
        number: u64,
        /// Which.
        sandbox: SandboxId,
        /// Its [`Rules`](crate::Rules), as JSON.
        rules: String,
    },
    /// Other rules for a sandbox that is attached.
    Change {
        /// By which the answer is known.
        number: u64,
        /// Which.
        sandbox: SandboxId,
        /// Its [`Rules`](crate::Rules), as JSON.
        rules: String,
    },
    /// It does not run any more.
    Detach {
        /// By which the answer is known.
        number: u64,
        /// Which.
        sandbox: SandboxId,
        /// It is gone for good, and what it tried to reach is of no interest any more.
        forget: bool,
    },
    /// These are all sandboxes that there are, running or not: others are forgotten.
    Known {
        /// By which the answer is known.
        number: u64,
        /// All of them.
        sandboxes: Vec<SandboxId>,
    },
    /// The answer to [`FromEgress::Dial`] and [`FromEgress::Whose`]: a connected descriptor comes along, or this is why not.
    Dialled {
        /// That of the question.
        number: u64,
        /// Why not.
        failure: Option<String>,
    },
}

/// What the egress program says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromEgress {
    /// It is done.
    Done {
        /// That of the message.
        number: u64,
    },
    /// It could not be done. What is attached and has no readable rules reaches nothing.
    Failed {
        /// That of the message.
        number: u64,
        /// Why.
        reason: String,
    },
    /// Connect to a port inside another sandbox, please; the policy granted it.
    Dial {
        /// By which the answer is known.
        number: u64,
        /// Which.
        sandbox: SandboxId,
        /// Where in it.
        port: u16,
    },
    /// Connect to where the guest of a sandbox tells whose a connection is, please.
    Whose {
        /// By which the answer is known.
        number: u64,
        /// Which.
        sandbox: SandboxId,
    },
}
