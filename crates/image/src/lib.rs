//! Root file systems from archives that anybody may have made.
//!
//! [`unpack`] reads one stream (a tar file, plain or compressed; an OCI layout or a `docker save`
//! archive as a tar file) and makes of it a tree that a sandbox can stand on, below a folder that
//! is given as a descriptor:
//!
//! ```text
//! stream ──► decompress ──► tar ──► entry ──► tree      everything lands in FOLDER/in
//!                                                │
//!                       a root file system ──────┼────► renamed to FOLDER/root
//!                       an OCI layout or          │
//!                       docker's archive ─────────┴────► layout: its layers, checked, in order,
//!                                                        into FOLDER/root; FOLDER/in is removed
//!                                                furnish: what a sandbox needs is put there
//! ```
//!
//! Every byte is hostile. Nothing is ever opened by a name that was put together: a path is
//! resolved beneath the folder's descriptor, and no link leads out of it ([`tree`]). Sizes, counts
//! and depths are bounded ([`Bounds`]), what a sandbox must not have is dropped and counted
//! ([`domain::ImageCounts`]). There is no `unsafe` and no privilege in here; whoever calls it runs it in a
//! process that could do no harm if all of this were wrong.

mod bounds;
mod config;
mod copy;
mod decompress;
mod digest;
mod entry;
mod error;
mod furnish;
mod layout;
mod tar;
mod tree;
mod unpack;

pub use bounds::Bounds;
pub use copy::{Shift, copy};
pub use error::ImageError;
pub use unpack::{ROOT, unpack};
