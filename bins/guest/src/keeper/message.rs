//! What a keeper and the guest say to each other: five bytes a message.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use sys_linux::fdpass;

const LENGTH: usize = 5;

/// What the keeper of a command tells the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command has a process; it may still fail to become the program.
    Started { pid: i32 },
    /// There is no process at all.
    Failed { errno: i32 },
    /// The process could not become the program. Sent by the process itself, so it may come
    /// before [`Report::Started`].
    NotExecuted { errno: i32 },
    /// The command ended by itself.
    Exited { code: i32 },
    /// A signal ended the command.
    Signalled { signal: i32 },
    /// Who the keeper is. Comes before there is a command that could ask for it.
    Keeper { pid: i32 },
}

impl Report {
    /// Sends the report. Small as it is, it fits even when nobody reads for a while.
    pub(crate) fn send(self, socket: impl AsFd) -> io::Result<()> {
        let (kind, value) = match self {
            Self::Started { pid } => (0, pid),
            Self::Failed { errno } => (1, errno),
            Self::NotExecuted { errno } => (2, errno),
            Self::Exited { code } => (3, code),
            Self::Signalled { signal } => (4, signal),
            Self::Keeper { pid } => (5, pid),
        };
        send_pair(socket, kind, value, &[])
    }

    /// Reads the next report without waiting. None means that the keeper is gone.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        Ok(match receive_pair(socket)? {
            None => None,
            Some((0, pid, _)) => Some(Self::Started { pid }),
            Some((1, errno, _)) => Some(Self::Failed { errno }),
            Some((2, errno, _)) => Some(Self::NotExecuted { errno }),
            Some((3, code, _)) => Some(Self::Exited { code }),
            Some((4, signal, _)) => Some(Self::Signalled { signal }),
            Some((5, pid, _)) => Some(Self::Keeper { pid }),
            Some(_) => return Err(unknown()),
        })
    }
}

/// What the guest tells the keeper of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Kill the command and everything below it.
    Kill,
    /// Send a signal to the command's process group.
    Signal { signal: i32 },
    /// Run what a process below the command asked for with `sudo`. The descriptors that it sent
    /// come along.
    Sudo,
}

impl Order {
    /// Sends the order without waiting.
    pub(crate) fn send(self, socket: impl AsFd, along: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self {
            Self::Kill => send_pair(socket, 0, 0, along),
            Self::Signal { signal } => send_pair(socket, 1, signal, along),
            Self::Sudo => send_pair(socket, 2, 0, along),
        }
    }

    /// Reads the next order, with the descriptors that came along, without waiting. None means
    /// that the guest has closed its end.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<(Self, Vec<OwnedFd>)>> {
        Ok(match receive_pair(socket)? {
            None => None,
            Some((0, _, along)) => Some((Self::Kill, along)),
            Some((1, signal, along)) => Some((Self::Signal { signal }, along)),
            Some((2, _, along)) => Some((Self::Sudo, along)),
            Some(_) => return Err(unknown()),
        })
    }
}

fn send_pair(socket: impl AsFd, kind: u8, value: i32, along: &[BorrowedFd<'_>]) -> io::Result<()> {
    let [a, b, c, d] = value.to_le_bytes();
    fdpass::send(socket, &[kind, a, b, c, d], along, SendFlags::DONTWAIT)?;
    Ok(())
}

fn receive_pair(socket: impl AsFd) -> io::Result<Option<(u8, i32, Vec<OwnedFd>)>> {
    let mut bytes = [0; LENGTH];
    let (length, along) = fdpass::receive(socket, &mut bytes, RecvFlags::DONTWAIT)?;
    let [kind, a, b, c, d] = bytes;
    match length {
        0 => Ok(None),
        LENGTH => Ok(Some((kind, i32::from_le_bytes([a, b, c, d]), along))),
        _ => Err(unknown()),
    }
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message that nobody here sends")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn reports_and_orders_arrive_as_they_were_sent() {
        let (keeper, guest) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let reports = [
            Report::Started { pid: 4_000_000 },
            Report::Failed { errno: 11 },
            Report::NotExecuted { errno: 2 },
            Report::Exited { code: 255 },
            Report::Signalled { signal: 9 },
            Report::Keeper { pid: 3_999_999 },
        ];
        for report in reports {
            report.send(&keeper).unwrap();
        }
        for report in reports {
            assert_eq!(Report::receive(&guest).unwrap(), Some(report));
        }
        for order in [Order::Kill, Order::Signal { signal: 15 }] {
            order.send(&guest, &[]).unwrap();
            let (received, along) = Order::receive(&keeper).unwrap().unwrap();
            assert_eq!((received, along.len()), (order, 0));
        }
        Order::Sudo.send(&guest, &[guest.as_fd(); 6]).unwrap();
        let (received, along) = Order::receive(&keeper).unwrap().unwrap();
        assert_eq!((received, along.len()), (Order::Sudo, 6));
        drop(along);
        drop(keeper);
        assert_eq!(Report::receive(&guest).unwrap(), None);
    }
}
