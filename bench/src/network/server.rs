//! What is reached: a server that speaks first, and a resolver that knows every name.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

/// The name that sandboxes of the benchmark may reach, and everything below it.
pub(super) const NAME: &str = "bench.example.net";

#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    resolver: SocketAddr,
}

impl Server {
    /// Serves until the benchmark ends.
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let questions = UdpSocket::bind("127.0.0.1:0")?;
        let (address, resolver) = (listener.local_addr()?, questions.local_addr()?);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || serve(stream));
            }
        });
        thread::spawn(move || answer(&questions));
        Ok(Self { address, resolver })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn resolver(&self) -> SocketAddr {
        self.resolver
    }
}

/// Greets with one byte, and sends as many as it is asked for.
fn serve(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    if stream.write_all(b"!").is_err() {
        return;
    }
    let mut wish = String::new();
    let Ok(reader) = stream.try_clone() else { return };
    if BufReader::new(reader).read_line(&mut wish).is_err() {
        return;
    }
    let mut left: usize = wish.trim().parse().unwrap_or(0);
    let bytes = vec![0; 256 << 10];
    while left > 0 {
        let part = left.min(bytes.len());
        if stream.write_all(&bytes[..part]).is_err() {
            return;
        }
        left -= part;
    }
}

/// Says of every name that it is this machine.
fn answer(socket: &UdpSocket) {
    let mut bytes = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut bytes) {
        let question = &bytes[..length];
        // Behind the header: labels, a zero, the kind and the class.
        let Some(end) = question.iter().skip(12).position(|byte| *byte == 0) else { continue };
        let Some(asked) = question.get(12..12 + end + 5) else { continue };
        let wants_address = asked.ends_with(&[0, 1, 0, 1]);
        let count = u8::from(wants_address);
        let mut answer = vec![question[0], question[1], 0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0];
        answer.extend(asked);
        if wants_address {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        let _ = socket.send_to(&answer, from);
    }
}
