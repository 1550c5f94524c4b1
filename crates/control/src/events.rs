//! What happens to sandboxes, for whoever listens now.

use domain::Event;
use tokio::sync::broadcast;

/// How many events a listener may be behind before it is told that it missed some.
const BEHIND: usize = 1024;

/// What happens, as it happens. The store has what happened.
#[derive(Debug)]
pub struct Events {
    sender: broadcast::Sender<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND) }
    }
}

impl Events {
    /// Listens from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }

    /// Tells whoever listens, if anybody does.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.sender.send(event);
    }
}
