//! The last that a process wrote, for when somebody asks why it failed.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// As much as is kept.
pub(super) const TOLD: usize = 2000;

/// The last that a process wrote. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Words(Arc<Mutex<Vec<u8>>>);

impl Words {
    /// Keeps the last of what comes through a pipe, until its end.
    pub(super) fn listen(&self, mut pipe: pipe::Receiver) {
        let words = self.clone();
        crate::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
                let mut words = words.0.lock().unwrap_or_else(PoisonError::into_inner);
                words.extend_from_slice(&buffer[..length]);
                let surplus = words.len().saturating_sub(TOLD);
                words.drain(..surplus);
            }
        });
    }

    /// A clause that tells them, or nothing.
    pub(super) fn told(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        if words.is_empty() { String::new() } else { format!("; it said: {words}") }
    }
}
