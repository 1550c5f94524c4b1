//! Reads what is fed to a command.
//!
//! Reading may block for ever, so a thread reads, and nobody waits for it at the end.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Starts a thread that reads `source` in pieces of at most so many bytes and hands each over,
/// until there is no more or a piece is refused. None without a thread.
pub(crate) fn read_in_thread(
    source: OwnedFd,
    piece: usize,
    take: impl FnMut(&[u8]) -> bool + Send + 'static,
) -> Option<()> {
    let thread = std::thread::Builder::new().name("input".to_owned());
    thread.spawn(move || read(&source, piece, take)).ok().map(drop)
}

fn read(source: &OwnedFd, piece: usize, mut take: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; piece];
    loop {
        match rustix::io::read(source, &mut buffer[..]) {
            Ok(0) => return,
            Ok(length) => {
                if !take(&buffer[..length]) {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if poll(&mut [PollFd::new(source, PollFlags::IN)], None).is_err() {
                    return;
                }
            }
            // A folder as input, a terminal that went away: it is the end.
            Err(_) => return,
        }
    }
}
