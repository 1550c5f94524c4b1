//! Messages of `link` over a connection that does not block.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{fcntl_getfd, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor that is ours alone.
#[expect(deprecated, reason = "what took its place is unsafe, for others than owned descriptors")]
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE.add(Interest::WRITABLE))
}

/// One connection of packets.
#[derive(Debug)]
pub(crate) struct Packets(AsyncFd<OwnedFd>);

impl Packets {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        fcntl_getfd(&socket)?;
        ioctl_fionbio(&socket, true)?;
        Ok(Self(watch(socket)?))
    }

    /// The next message; none when the other side is gone.
    pub(crate) async fn receive<T: DeserializeOwned>(
        &self,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            let mut ready = self.0.readable().await?;
            let receive =
                |socket: &AsyncFd<OwnedFd>| link::receive(socket.as_fd(), RecvFlags::DONTWAIT);
            if let Ok(result) = ready.try_io(receive) {
                return result;
            }
        }
    }

    pub(crate) async fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.send_by(|socket| link::send(socket, message, descriptors, SendFlags::DONTWAIT)).await
    }

    /// The next packet as it is; none when the other side is gone.
    pub(crate) async fn receive_bytes(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let mut ready = self.0.readable().await?;
            let receive = |socket: &AsyncFd<OwnedFd>| {
                let (length, _) = rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT)?;
                Ok(Some(length).filter(|length| *length > 0))
            };
            if let Ok(result) = ready.try_io(receive) {
                return result;
            }
        }
    }

    pub(crate) async fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.send_by(|socket| Ok(rustix::net::send(socket, bytes, flags).map(drop)?)).await
    }

    /// Comes back when the other side says something or is gone.
    pub(crate) async fn gone(&self) {
        let mut byte = [0; 1];
        // Whatever a reader of a log says means nothing.
        while let Ok(Some(_)) = self.receive_bytes(&mut byte).await {}
    }

    async fn send_by(
        &self,
        mut send: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            let mut ready = self.0.writable().await?;
            if let Ok(result) = ready.try_io(|socket| send(socket.as_fd())) {
                return result;
            }
        }
    }
}
