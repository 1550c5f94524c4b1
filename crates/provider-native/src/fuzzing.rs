//! A door for `fuzz/`: what the engine reads from others, its verbs and its launchers' reports.
//!
//! The engine is root, so nothing that it is sent may make it panic, hang or grow.

use rustix::net::{RecvFlags, SendFlags};

use crate::launch::Report;
use crate::verbs::{Reply, Request, Verb};

/// Reads bytes as a packet of a client's and of a launcher's, as the engine would.
pub fn verbs(bytes: &[u8]) {
    let (near, far) = link::pair().expect("a socket");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let send = || rustix::net::send(&near, bytes, flags).is_ok();
    if send() {
        let _ = link::receive::<Report>(&far, RecvFlags::DONTWAIT);
    }
    if send() {
        let _ = link::receive::<Reply>(&far, RecvFlags::DONTWAIT);
    }
    if !send() {
        return;
    }
    let Ok(Some((request, _))) = link::receive::<Request>(&far, RecvFlags::DONTWAIT) else {
        return;
    };
    if let Verb::Create { wish, .. } = request.verb {
        let limits = wish.limits.check();
        let record = wish.record.check();
        // What passed makes sense to whoever works with it.
        if let (Ok(limits), Ok(record)) = (limits, record) {
            assert!(limits.pids > 0 && limits.memory.0 > 0 && limits.disk.0 > 0);
            assert!(record.0.len() <= provider::LARGEST_RECORD);
        }
    }
}
