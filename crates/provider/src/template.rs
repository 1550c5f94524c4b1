//! Templates as a provider keeps them.

use domain::{ImageReport, SandboxId, TemplateName};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

/// An archive as it comes in.
pub type Archive = Box<dyn AsyncRead + Send + Unpin>;

/// An image that was unpacked and is not a template yet. It is gone when whoever asked for it is.
#[derive(Debug)]
pub struct Staged {
    /// The provider's own word for it.
    pub slot: String,
    /// What became of the image.
    pub report: ImageReport,
}

/// What the files of a template are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TemplateKind {
    /// A whole system.
    System,
    /// What is added to the `/usr` of the default template, for the Python that is there now.
    Layer,
}

/// A template that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// What it is called.
    pub name: TemplateName,
    /// What was written down with it.
    pub record: String,
    /// Some of the sandboxes that stand on it.
    pub sandboxes: Vec<SandboxId>,
    /// Whether it is a layer for a Python that the host has no more.
    pub is_stale: bool,
}
