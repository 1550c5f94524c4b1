//! Tells somebody what one sandbox tried to reach.

use std::io;
use std::sync::Arc;

use domain::SandboxId;

use crate::egress::packets::Packets;
use crate::egress::world::World;

/// Entries that are read at a time.
const AT_ONCE: usize = 256;

/// Sends what has a higher number, one entry in each packet, and what is to come if that is wanted.
pub(super) async fn serve(
    world: &Arc<World>,
    packets: &Packets,
    id: &SandboxId,
    mut after: u64,
    follow: bool,
) -> io::Result<()> {
    let log = world.log(id);
    let mut latest = log.watch();
    loop {
        latest.mark_unchanged();
        let reading = Arc::clone(&log);
        let read = tokio::task::spawn_blocking(move || reading.read(after, AT_ONCE));
        let entries = read.await.map_err(io::Error::other)?;
        for entry in &entries {
            packets.send_bytes(&serde_json::to_vec(entry)?).await?;
            after = entry.sequence;
        }
        if !entries.is_empty() {
            continue;
        }
        if !follow {
            return Ok(());
        }
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return Ok(()) },
            () = log.gone() => return Ok(()),
            () = packets.gone() => return Ok(()),
        }
    }
}
