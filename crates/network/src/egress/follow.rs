//! The reader's side of a sandbox's log.

use std::io;
use std::os::fd::OwnedFd;

use domain::{NetworkEntry, SandboxId};
use futures::stream::{self, BoxStream};

use super::packets::Packets;
use crate::attach::Hello;

/// No entry is longer.
const LARGEST: usize = 16 * 1024;

/// Reads one sandbox's log over a new connection to the egress program: what has a higher number
/// than `after`, and with `follow` also what is to come, until the sandbox is gone for good.
///
/// It must be called in a runtime of tokio's. To leave, drop the stream.
pub async fn follow_log(
    connection: OwnedFd,
    sandbox: SandboxId,
    after: u64,
    follow: bool,
) -> io::Result<BoxStream<'static, io::Result<NetworkEntry>>> {
    let packets = Packets::new(connection)?;
    packets.send(&Hello::Log { sandbox, after, follow }, &[]).await?;
    let entries = stream::try_unfold(packets, |packets| async move {
        let mut buffer = vec![0; LARGEST];
        let Some(length) = packets.receive_bytes(&mut buffer).await? else { return Ok(None) };
        let entry = serde_json::from_slice(&buffer[..length])?;
        Ok(Some((entry, packets)))
    });
    Ok(Box::pin(entries))
}
