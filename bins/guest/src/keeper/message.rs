//! What a keeper and the guest say to each other: five bytes a message.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

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
        };
        send_pair(socket, kind, value)
    }

    /// Reads the next report without waiting. None means that the keeper is gone.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        Ok(match receive_pair(socket)? {
            None => None,
            Some((0, pid)) => Some(Self::Started { pid }),
            Some((1, errno)) => Some(Self::Failed { errno }),
            Some((2, errno)) => Some(Self::NotExecuted { errno }),
            Some((3, code)) => Some(Self::Exited { code }),
            Some((4, signal)) => Some(Self::Signalled { signal }),
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
}

impl Order {
    /// Sends the order without waiting.
    pub(crate) fn send(self, socket: impl AsFd) -> io::Result<()> {
        match self {
            Self::Kill => send_pair(socket, 0, 0),
            Self::Signal { signal } => send_pair(socket, 1, signal),
        }
    }

    /// Reads the next order without waiting. None means that the guest has closed its end.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        Ok(match receive_pair(socket)? {
            None => None,
            Some((0, _)) => Some(Self::Kill),
            Some((1, signal)) => Some(Self::Signal { signal }),
            Some(_) => return Err(unknown()),
        })
    }
}

fn send_pair(socket: impl AsFd, kind: u8, value: i32) -> io::Result<()> {
    let [a, b, c, d] = value.to_le_bytes();
    send(socket, &[kind, a, b, c, d], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_pair(socket: impl AsFd) -> io::Result<Option<(u8, i32)>> {
    let mut bytes = [0; LENGTH];
    let (length, _) = recv(socket, &mut bytes, RecvFlags::DONTWAIT)?;
    let [kind, a, b, c, d] = bytes;
    match length {
        0 => Ok(None),
        LENGTH => Ok(Some((kind, i32::from_le_bytes([a, b, c, d])))),
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
        ];
        for report in reports {
            report.send(&keeper).unwrap();
        }
        for report in reports {
            assert_eq!(Report::receive(&guest).unwrap(), Some(report));
        }
        for order in [Order::Kill, Order::Signal { signal: 15 }] {
            order.send(&guest).unwrap();
            assert_eq!(Order::receive(&keeper).unwrap(), Some(order));
        }
        drop(keeper);
        assert_eq!(Report::receive(&guest).unwrap(), None);
    }
}
