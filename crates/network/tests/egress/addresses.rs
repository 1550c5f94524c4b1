//! Connections by address, to a server at one of this host's own addresses.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::thread;

use network::Configuration;

use crate::servers::{Resolver, answer_web};
use crate::world::{World, rest};

/// An address of this host that is not loopback's, and a web server there.
fn own_server() -> Option<SocketAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: the kernel says from where it would be.
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let Ok(IpAddr::V4(address)) = address.map(|address| address.ip()) else {
        eprintln!("skipped: this host has no address but loopback's");
        return None;
    };
    let listener = TcpListener::bind((address, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_web(stream));
        }
    });
    Some(place)
}

fn ask(world: &World, server: SocketAddr, host: &str) -> std::io::Result<String> {
    let mut stream = world.dial(server.ip(), server.port())?;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    rest(stream)
}

#[test]
fn the_host_is_reached_by_none_of_its_addresses_unless_it_is_granted() {
    let Some(server) = own_server() else { return };
    let resolver = Resolver::new(&[]);
    let Some(world) = World::new(r#"{"mode":"allow-all"}"#, resolver.configuration()) else {
        return;
    };
    let answer = ask(&world, server, "x").unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let entry = world.logged(|entry| entry.port == server.port());
    assert!(!entry.allowed);
    world.stop();
    let grants = vec![server.ip().to_string().parse().unwrap()];
    let granted = Configuration { grants, ..resolver.configuration() };
    let policy = r#"{"mode":"allow-all","block_domains":["evil.example"]}"#;
    world.start(policy, granted);
    assert!(ask(&world, server, "good.example").unwrap().starts_with("HTTP/1.1 200"));
    assert!(ask(&world, server, "evil.example").unwrap().starts_with("HTTP/1.1 403"));
    let own = server.to_string();
    assert!(ask(&world, server, &own).unwrap().starts_with("HTTP/1.1 200"));
    // A list has its addresses, and only those; learning lets pass and says so.
    world.change(&format!(r#"{{"mode":"custom","allow_cidrs":["{}"]}}"#, server.ip())).unwrap();
    assert!(ask(&world, server, "any.example").unwrap().starts_with("HTTP/1.1 200"));
    world.change(r#"{"mode":"custom","allow_cidrs":["8.8.8.0/24"]}"#).unwrap();
    assert!(ask(&world, server, "any.example").unwrap().starts_with("HTTP/1.1 403"));
    world.change(r#"{"mode":"custom","learn":true}"#).unwrap();
    assert!(ask(&world, server, "any.example").unwrap().starts_with("HTTP/1.1 200"));
    let entry = world.logged(|entry| entry.rule == "learn");
    assert_eq!((entry.allowed, entry.address), (true, Some(server.ip())));
    world.change(r#"{"mode":"custom","learn":true,"allow_ports":["1"]}"#).unwrap();
    let mut stream = world.dial(server.ip(), server.port()).unwrap();
    assert!(stream.read(&mut [0]).is_err(), "refused by its port");
}
