//! Killing a command's tree from process 1, where its keeper cannot.
//!
//! A keeper has to share its processor with what it keeps, and a thousand processes that fork
//! leave it nothing. The guest is in a cgroup of its own and does the same from there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::time::sleep;

use super::launch::Control;
use crate::keeper::tree;

/// How long a keeper has to kill its tree by itself, and the pause between attempts to help it.
const HELP_AFTER: Duration = Duration::from_millis(20);

/// How long it is helped.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Kills what a keeper was told to kill and has not.
pub(crate) async fn fell(keeper: i32, control: Arc<Control>) {
    let Some(keeper) = Pid::from_raw(keeper) else { return };
    let begun = Instant::now();
    loop {
        sleep(HELP_AFTER).await;
        // Its number may be another's once it is gone.
        if control.is_gone() || begun.elapsed() > GIVE_UP {
            return;
        }
        // A walk takes a moment, in which everybody else is served.
        let walk = tokio::task::spawn_blocking(move || tree::kill(keeper));
        if let Ok(false) = walk.await {
            return;
        }
    }
}
