//! What listens, told by the real guest.
//!
//! It runs in the machine's own network namespace here, where others listen too: every test
//! looks for ports of its own.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::collections::HashSet;
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::time::Duration;

use guest_proto::GuestClient;
use guest_proto::client::{
    Event, Port, PortTransport, Ports, PortsEvent, Reach, Running, StartOptions,
};
use harness::Guest;

/// Ten times what the slowest of these took on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

async fn next(ports: &mut Ports) -> PortsEvent {
    tokio::time::timeout(PATIENCE, ports.next()).await.expect("nothing happened").unwrap()
}

async fn snapshot(ports: &mut Ports) -> Vec<Port> {
    match next(ports).await {
        PortsEvent::Snapshot(ports) => ports,
        other @ PortsEvent::Changes { .. } => panic!("the first event is {other:?}"),
    }
}

/// Waits until a port was opened.
async fn opened(ports: &mut Ports, port: u16) -> Port {
    loop {
        if let PortsEvent::Changes { opened, .. } = next(ports).await
            && let Some(found) = opened.into_iter().find(|opened| opened.port == port)
        {
            return found;
        }
    }
}

/// Waits until a port was closed.
async fn closed(ports: &mut Ports, port: u16) -> Port {
    loop {
        if let PortsEvent::Changes { closed, .. } = next(ports).await
            && let Some(found) = closed.into_iter().find(|closed| closed.port == port)
        {
            return found;
        }
    }
}

/// A Python program, its id, and the first word that it prints.
async fn python(client: &GuestClient, user: &str, code: &str) -> (Running, u32, String) {
    let options = StartOptions {
        cmd: "python3".to_owned(),
        args: vec!["-u".to_owned(), "-c".to_owned(), code.to_owned()],
        user: Some(user.to_owned()),
        cwd: Some("/".to_owned()),
        stdin: true,
        ..StartOptions::default()
    };
    let mut running = client.start(options).await.unwrap();
    let mut pid = 0;
    loop {
        match running.next().await.unwrap().unwrap() {
            Event::Started { pid: started } => pid = started,
            Event::Stdout(line) => {
                let word = String::from_utf8(line.to_vec()).unwrap().trim().to_owned();
                return (running, pid, word);
            }
            Event::Stderr(words) => panic!("{}", String::from_utf8_lossy(&words)),
            other => panic!("{other:?}"),
        }
    }
}

const LISTEN: &str = "
import os, socket, sys
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
";

#[tokio::test]
async fn a_port_comes_with_its_process_and_goes_when_the_process_dies() {
    let guest = Guest::start();
    let client = guest.client();
    let mut ports = client.ports().await.unwrap();
    snapshot(&mut ports).await;
    let code = format!("{LISTEN}print(s.getsockname()[1]); sys.stdin.read()");
    let (_running, pid, port) = python(&client, "root", &code).await;
    let port: u16 = port.parse().unwrap();
    let told = opened(&mut ports, port).await;
    assert_eq!((told.transport, told.reach, told.uid), (PortTransport::Tcp, Reach::Loopback, 0));
    assert_eq!(told.address.to_string(), "127.0.0.1");
    let holder = told.holder.unwrap();
    assert_eq!((holder.pid, holder.name.as_str()), (pid, "python3"));

    let killed = guest_proto::process::Signal::SIGNAL_SIGKILL;
    client.signal(pid, killed).await.unwrap();
    let told = closed(&mut ports, port).await;
    assert_eq!(told.holder.unwrap().pid, pid);
}

#[tokio::test]
async fn a_process_of_another_user_is_known_too() {
    let guest = Guest::start();
    let client = guest.client();
    let code = format!("{LISTEN}print(s.getsockname()[1]); sys.stdin.read()");
    let (_running, pid, port) = python(&client, "nobody", &code).await;
    let told = snapshot(&mut client.ports().await.unwrap()).await;
    let told = told.into_iter().find(|told| told.port.to_string() == port).unwrap();
    assert_eq!((told.uid, told.holder.unwrap().pid), (65534, pid));
    // What was taken on for looking is given back: the guest is root still.
    let finished = guest.shell("id -u");
    assert_eq!(finished.stdout, b"0\n");
}

#[tokio::test]
async fn a_socket_that_outlives_its_process_changes_hands() {
    let guest = Guest::start();
    let client = guest.client();
    let mut ports = client.ports().await.unwrap();
    snapshot(&mut ports).await;
    // The parent has the lower id and is told; when it is gone, the child is.
    let code = format!(
        "{LISTEN}
child = os.fork()
if child == 0:
    import time
    os.close(1)
    os.close(2)
    time.sleep(60)
print(f'{{s.getsockname()[1]}} {{child}}')
sys.stdin.read(1)
os._exit(0)"
    );
    let (_running, pid, words) = python(&client, "root", &code).await;
    let (port, child) = words.split_once(' ').unwrap();
    let (port, child): (u16, u32) = (port.parse().unwrap(), child.parse().unwrap());
    assert_eq!(opened(&mut ports, port).await.holder.unwrap().pid, pid);
    client.send_input(pid, b"x".to_vec()).await.unwrap();
    assert_eq!(opened(&mut ports, port).await.holder.unwrap().pid, child);
    guest.shell(&format!("kill -9 {child}"));
    closed(&mut ports, port).await;
}

#[tokio::test]
async fn addresses_of_all_kinds_are_told_apart() {
    let guest = Guest::start();
    let all = TcpListener::bind("0.0.0.0:0").unwrap();
    let loopback = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let all_of_six = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client_of_it = UdpSocket::bind("127.0.0.1:0").unwrap();
    client_of_it.connect(datagrams.local_addr().unwrap()).unwrap();

    let told = snapshot(&mut guest.client().ports().await.unwrap()).await;
    let ours: HashSet<_> = told
        .iter()
        .filter(|told| told.holder.as_ref().is_some_and(|held| held.pid == std::process::id()))
        .map(|told| (told.transport, told.address.to_string(), told.port, told.reach))
        .collect();
    let local = |socket: std::net::SocketAddr| socket.port();
    for expected in [
        (PortTransport::Tcp, "0.0.0.0", local(all.local_addr().unwrap()), Reach::All),
        (PortTransport::Tcp6, "::1", local(loopback.local_addr().unwrap()), Reach::Loopback),
        (PortTransport::Tcp6, "::", local(all_of_six.local_addr().unwrap()), Reach::All),
        (PortTransport::Udp, "127.0.0.1", local(datagrams.local_addr().unwrap()), Reach::Loopback),
    ] {
        let (transport, address, port, reach) = expected;
        assert!(ours.contains(&(transport, address.to_owned(), port, reach)), "{expected:?}");
    }
    let client = local(client_of_it.local_addr().unwrap());
    // Somebody else on this machine may listen at the same number.
    let is_told = |(transport, _, port, _): &(PortTransport, _, u16, _)| {
        *transport == PortTransport::Udp && *port == client
    };
    assert!(!ours.iter().any(is_told), "a client is told as if it listened");
}

#[tokio::test]
async fn a_thousand_ports_open_and_close() {
    let guest = Guest::start();
    let mut ports = guest.client().ports().await.unwrap();
    snapshot(&mut ports).await;
    let listeners: Vec<_> = (0..1000).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ours: HashSet<u16> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    let mut missing = ours.clone();
    while !missing.is_empty() {
        if let PortsEvent::Changes { opened, .. } = next(&mut ports).await {
            for port in opened.into_iter().filter(|port| ours.contains(&port.port)) {
                assert_eq!(port.holder.unwrap().pid, std::process::id());
                missing.remove(&port.port);
            }
        }
    }
    let told = snapshot(&mut guest.client().ports().await.unwrap()).await;
    assert_eq!(told.iter().filter(|told| ours.contains(&told.port)).count(), 1000);
    drop(listeners);
    missing.clone_from(&ours);
    while !missing.is_empty() {
        if let PortsEvent::Changes { closed, .. } = next(&mut ports).await {
            for port in closed {
                missing.remove(&port.port);
            }
        }
    }
}

#[tokio::test]
async fn a_name_made_to_do_harm_is_short_and_harmless() {
    let guest = Guest::start();
    let client = guest.client();
    let code = format!(
        "{LISTEN}
import ctypes
ctypes.CDLL(None).prctl(15, b'\\xff\\x1b[2J) S\\n\\xf0', 0, 0, 0)
print(s.getsockname()[1]); sys.stdin.read()"
    );
    let (_running, pid, port) = python(&client, "root", &code).await;
    let told = snapshot(&mut client.ports().await.unwrap()).await;
    let told = told.into_iter().find(|told| told.port.to_string() == port).unwrap();
    let holder = told.holder.unwrap();
    assert_eq!(holder.pid, pid);
    assert_eq!(holder.name, "\u{fffd} [2J) S \u{fffd}");
}
