//! Tells the program that connections leave through whose they are.
//!
//! It answers at a socket of its own, where nothing else can be asked: who passes on what strangers
//! send has no other business with a guest. One asks at a time, and the last who came is heard.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use domain::{LONGEST_HOLDER, NetworkEnds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::{holders, sockets};
use crate::server::{Peers, may_connect};

/// How long to wait when no descriptor is left.
const BREATH: Duration = Duration::from_millis(20);

/// Serves until the process ends.
pub(crate) async fn serve(listener: UnixListener, peers: Peers) -> io::Error {
    let mut talk: Option<tokio::task::JoinHandle<()>> = None;
    loop {
        match listener.accept().await {
            Ok((stream, _)) if may_connect(peers, &stream) => {
                let next = crate::spawn(async move {
                    // Whoever asked has left.
                    let _ = answer(stream).await;
                });
                if let Some(earlier) = talk.replace(next) {
                    earlier.abort();
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                tokio::time::sleep(BREATH).await;
            }
            Err(error) => return error,
        }
    }
}

async fn answer(mut stream: UnixStream) -> io::Result<()> {
    loop {
        let mut question = [0; NetworkEnds::LENGTH];
        stream.read_exact(&mut question).await?;
        let Some(ends) = NetworkEnds::from_bytes(question) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let found = tokio::task::spawn_blocking(move || find(ends)).await.ok().flatten();
        let mut words = found.unwrap_or_default();
        words.truncate(words.floor_char_boundary(LONGEST_HOLDER));
        let mut reply = vec![u8::try_from(words.len()).unwrap_or(0)];
        reply.extend_from_slice(words.as_bytes());
        stream.write_all(&reply).await?;
    }
}

/// The program that holds a connection, and its number: `curl[17]`.
fn find(ends: NetworkEnds) -> Option<String> {
    let inode = sockets::connected(ends)?;
    let holder = holders::find(&HashSet::from([inode])).remove(&inode)?;
    Some(format!("{}[{}]", holder.name, holder.pid))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};

    use domain::NetworkTransport;

    use super::*;

    fn v4(address: io::Result<SocketAddr>) -> SocketAddrV4 {
        match address.unwrap() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => {
                SocketAddrV4::new(address.ip().to_ipv4_mapped().unwrap(), address.port())
            }
        }
    }

    #[tokio::test]
    async fn whose_a_connection_is_can_be_asked_again_and_again() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let to = v4(client.peer_addr());
        let mine =
            NetworkEnds { transport: NetworkTransport::Tcp, from: v4(client.local_addr()), to };
        let nobodys = NetworkEnds { to: SocketAddrV4::new(*to.ip(), 1), ..mine };
        let (here, there) = UnixStream::pair().unwrap();
        let serving = crate::spawn(answer(there));
        let mut here = here;
        for (ends, is_known) in [(mine, true), (nobodys, false), (mine, true)] {
            here.write_all(&ends.to_bytes()).await.unwrap();
            let length = here.read_u8().await.unwrap();
            let mut words = vec![0; usize::from(length)];
            here.read_exact(&mut words).await.unwrap();
            let words = String::from_utf8(words).unwrap();
            assert_eq!(words.ends_with(&format!("[{}]", std::process::id())), is_known, "{words}");
        }
        // Nonsense ends the talk.
        here.write_all(&[0; NetworkEnds::LENGTH]).await.unwrap();
        assert!(serving.await.unwrap().is_err());
    }

    #[test]
    fn packets_and_connections_of_the_longer_kind_are_found_too() {
        let question = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = v4(question.local_addr());
        let to = SocketAddrV4::new([127, 0, 0, 53].into(), 53);
        let ends = NetworkEnds { transport: NetworkTransport::Udp, from, to };
        assert!(find(ends).is_some(), "{ends:?}");
        question.connect("127.0.0.53:53").unwrap();
        assert!(find(ends).is_some(), "{ends:?}");
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let Ok(client) = TcpStream::connect(format!("[::ffff:127.0.0.1]:{port}")) else { return };
        let (from, to) = (v4(client.local_addr()), v4(client.peer_addr()));
        assert!(find(NetworkEnds { transport: NetworkTransport::Tcp, from, to }).is_some());
    }
}
