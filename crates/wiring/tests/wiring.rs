//! The wires in a namespace of their own: where each kind of packet ends up.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use sys_linux::namespace::{Namespaces, separate};

/// Runs what is given in a network namespace of its own that is wired, as root.
fn inside(act: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        let reason = "an ordinary user's test cannot make a namespace in a thread";
        return drop(writeln!(io::stderr(), "SKIPPED the wires: {reason}"));
    }
    let thread = thread::spawn(|| {
        separate(Namespaces::NETWORK).unwrap();
        sys_linux::network::bring_loopback_up().unwrap();
        wiring::wire().unwrap();
        act();
    });
    thread.join().unwrap();
}

fn connect(address: &str) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(5))
}

#[test]
fn every_connection_arrives_at_the_gate_with_the_address_that_was_meant() {
    inside(|| {
        let (gate, _resolver) = wiring::listen().unwrap();
        let gate = TcpListener::from(gate);
        gate.set_nonblocking(false).unwrap();
        for meant in ["93.184.216.34:443", "10.0.0.1:22", "198.18.1.7:80", "169.254.169.254:80"] {
            let mut near = connect(meant).unwrap();
            let (mut far, from) = gate.accept().unwrap();
            assert_eq!(far.local_addr().unwrap(), meant.parse::<SocketAddr>().unwrap());
            assert_eq!(from.ip().to_string(), "198.18.0.2");
            near.write_all(b"question").unwrap();
            far.write_all(b"answer").unwrap();
            drop(far);
            let mut answer = String::new();
            // What was not read makes the other side's end a reset.
            let _ = near.read_to_string(&mut answer);
            assert_eq!(answer, "answer");
        }
    });
}

#[test]
fn without_a_gate_every_connection_is_refused_at_once() {
    inside(|| {
        // A server of the sandbox's own is not taken for the world's.
        let own = TcpListener::bind("0.0.0.0:8080").unwrap();
        for meant in ["93.184.216.34:443", "93.184.216.34:8080"] {
            let begun = Instant::now();
            let error = connect(meant).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(begun.elapsed() < Duration::from_secs(1));
        }
        for near in ["127.0.0.1:8080", "198.18.0.2:8080"] {
            drop(connect(near).unwrap());
            own.accept().unwrap();
        }
    });
}

#[test]
fn of_datagrams_only_questions_to_the_resolver_arrive() {
    inside(|| {
        let (_gate, resolver) = wiring::listen().unwrap();
        let resolver = UdpSocket::from(resolver);
        resolver.set_nonblocking(false).unwrap();
        let own = UdpSocket::bind("0.0.0.0:443").unwrap();
        own.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let client = |to: &str| {
            let client = UdpSocket::bind("0.0.0.0:0").unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.connect(to).unwrap();
            let _ = client.send(b"question");
            client
        };
        let asker = client("198.18.0.1:53");
        let mut bytes = [0; 100];
        let (length, from) = resolver.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"question");
        resolver.send_to(b"answer", from).unwrap();
        assert_eq!(asker.recv(&mut bytes).unwrap(), 6);

        for elsewhere in ["8.8.8.8:53", "93.184.216.34:443", "198.18.0.1:54"] {
            let begun = Instant::now();
            assert!(client(elsewhere).recv(&mut bytes).is_err());
            assert!(begun.elapsed() < Duration::from_secs(1), "{elsewhere} is not refused at once");
        }
        assert!(own.recv(&mut bytes).is_err(), "what was meant for the world came to the sandbox");
    });
}
