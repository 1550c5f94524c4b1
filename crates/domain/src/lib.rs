//! The words of Soma as types: what a sandbox is called, what it may use, how it ended.
//!
//! Nothing here does I/O or waits, so every rule in it can be tested as a plain function.
//! Text and numbers from outside become these types once, at the edge; after that a value
//! that exists is a value that makes sense.
//!
//! What is not here: who may do what (`policy`) and how it is done (`provider` and its kin).

mod cause;
mod ending;
mod event;
mod id;
mod image;
mod language;
mod layer;
mod lease;
mod limits;
mod name;
mod network;
mod network_ends;
mod network_entry;
mod quantity;
mod rest;
mod snapshot;
mod spec;
pub mod state;
mod template;
mod timestamp;
mod token;

pub use cause::{By, Cause};
pub use ending::Ending;
pub use event::{Event, Happened, Recorded};
pub use id::{InvalidSandboxId, SandboxId};
pub use image::{ImageConfig, ImageCounts, ImageFormat, ImageReport, LARGEST_REPORT};
pub use language::{Language, UnknownLanguage};
pub use layer::Layer;
pub use lease::{Asked, InvalidLease, Lease, OnExit, OnTimeout, Owner};
pub use limits::{InvalidLimit, Limit, Limits};
pub use name::{InvalidName, Labels, SandboxName, TooLarge, check_labels, check_variables};
pub use network::{
    Cidr, DomainPattern, InvalidNetwork, InvalidPolicy, Learned, NetworkMode, NetworkPolicy,
    NoSecret, Ports, SecretText, Transform,
};
pub use network_ends::{LONGEST_HOLDER, NetworkEnds, NetworkTransport, WHOSE};
pub use network_entry::{NetworkEntry, NetworkProtocol};
pub use quantity::{Bytes, InvalidQuantity, MilliCpus, parse_duration};
pub use rest::Rest;
pub use snapshot::{
    InvalidSnapshotId, InvalidSnapshotName, InvalidSnapshotRecord, Origin, SnapshotId,
    SnapshotName, SnapshotRecord,
};
pub use spec::{InvalidEnvironment, Lifetime, SandboxSpec, parse_environment};
pub use state::State;
pub use template::{InvalidTemplateName, InvalidTemplateRecord, TemplateName, TemplateRecord};
pub use timestamp::Timestamp;
pub use token::Token;
