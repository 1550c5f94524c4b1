//! Sandboxes that come, change and go, and a program that dies.

use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::time::Instant;

use network::attach::{Hello, ToEgress};
use rustix::net::SendFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::AsFd;

use crate::servers::{Resolver, serve};
use crate::world::{PATIENCE, World, rest};

/// Says back every byte.
fn echo() -> u16 {
    serve(|mut stream| {
        let mut byte = [0; 1];
        while stream.read_exact(&mut byte).is_ok() {
            let _ = stream.write_all(&byte);
        }
    })
}

fn ping(mut stream: &std::net::TcpStream) -> std::io::Result<()> {
    stream.write_all(b"\x01")?;
    stream.read_exact(&mut [0])
}

const BOTH: &str = r#"{"mode":"custom","allow_domains":["a.example","b.example"]}"#;
const ONE: &str = r#"{"mode":"custom","allow_domains":["a.example"]}"#;

fn resolver() -> Resolver {
    Resolver::new(&[("a.example", "127.0.0.1"), ("b.example", "127.0.0.1")])
}

#[test]
fn a_change_cuts_what_it_refuses_and_nothing_else() {
    let resolver = resolver();
    let Some(world) = World::new(BOTH, resolver.configuration()) else { return };
    let port = echo();
    let (kept, cut) = (world.dial_name("a.example", port), world.dial_name("b.example", port));
    ping(&kept).unwrap();
    ping(&cut).unwrap();
    world.change(ONE).unwrap();
    ping(&kept).unwrap();
    let begun = Instant::now();
    assert!(ping(&cut).is_err());
    assert!(begun.elapsed() < PATIENCE / 2);
    world.refused_name("b.example");
    let entry =
        world.logged(|entry| entry.name.as_deref() == Some("b.example") && entry.port == port);
    assert_eq!(entry.detail.as_deref(), Some("cut when the rules changed"));
    // An address that was given to the name before does not help.
    world
        .change(r#"{"mode":"custom","allow_domains":["a.example"],"block_cidrs":["127.0.0.1"]}"#)
        .unwrap();
    assert!(ping(&kept).is_err());
}

#[test]
fn rules_that_cannot_be_read_let_nothing_pass() {
    let resolver = resolver();
    let Some(world) = World::new(BOTH, resolver.configuration()) else { return };
    let port = echo();
    let stream = world.dial_name("a.example", port);
    ping(&stream).unwrap();
    let reason = world.change(r#"{"mode":"very-secret"}"#).unwrap_err();
    assert!(!reason.contains("very-secret"), "{reason}");
    assert!(ping(&stream).is_err());
    world.refused_name("a.example");
    world.detach();
    let reason = world.attach("not even JSON").unwrap_err();
    assert!(reason.contains("cannot be read"), "{reason}");
    world.refused_name("a.example");
    world.detach();
    world.attach(ONE).unwrap();
    ping(&world.dial_name("a.example", port)).unwrap();
}

#[test]
fn an_unreadable_configuration_lets_nothing_pass() {
    let resolver = resolver();
    let Some(world) = World::new(BOTH, resolver.configuration()) else { return };
    let port = echo();
    let stream = world.dial_name("a.example", port);
    let configuration = r#"{"proxy":"very-secret"}"#.to_owned();
    let reason =
        world.tell(|number| ToEgress::Configure { number, configuration }, &[]).unwrap_err();
    assert!(!reason.contains("very-secret"), "{reason}");
    assert!(ping(&stream).is_err());
}

#[test]
fn a_program_that_dies_takes_all_traffic_with_it_until_the_next_one() {
    let resolver = resolver();
    let Some(world) = World::new(BOTH, resolver.configuration()) else { return };
    let port = echo();
    let address = world.address("a.example");
    let stream = world.dial(address, port).unwrap();
    ping(&stream).unwrap();
    world.stop();
    assert!(ping(&stream).is_err());
    let refused = world.dial(address, port).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    world.start(BOTH, resolver.configuration());
    assert_eq!(world.address("a.example"), address, "the name has the same address again");
    ping(&world.dial(address, port).unwrap()).unwrap();
}

#[test]
fn a_log_goes_on_after_the_program_died() {
    let resolver = resolver();
    let Some(world) = World::new(r#"{"mode":"deny-all"}"#, resolver.configuration()) else {
        return;
    };
    world.refused_name("one.example");
    let first = world.logged(|entry| entry.name.as_deref() == Some("one.example"));
    // Until it is in the file.
    let file = world.log_file();
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("one.example")) {
        assert!(Instant::now() < deadline, "not written");
        std::thread::yield_now();
    }
    world.stop();
    world.start(r#"{"mode":"deny-all"}"#, resolver.configuration());
    world.refused_name("two.example");
    let second = world.logged(|entry| entry.name.as_deref() == Some("two.example"));
    assert!(second.sequence > first.sequence);
    assert_eq!(world.log()[0].name.as_deref(), Some("one.example"));
    let known = |number| ToEgress::Known { number, sandboxes: Vec::new() };
    world.tell(known, &[]).unwrap();
    assert!(!file.exists());
    assert_eq!(world.log(), []);
}

#[test]
fn a_sandbox_leaves_with_its_first_process() {
    let resolver = resolver();
    let Some(world) = World::new(BOTH, resolver.configuration()) else { return };
    let port = echo();
    // It ends with its input, so that a test that fails leaves nothing behind.
    let mut child = sys_linux::command::command("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    world.detach();
    let (gate, names) = world.within(|| wiring::listen().unwrap());
    let (sandbox, rules) = (world.id.clone(), world.rules(BOTH));
    let all = [gate.as_fd(), names.as_fd(), process.as_fd()];
    world.tell(|number| ToEgress::Attach { number, sandbox, rules }, &all).unwrap();
    drop((gate, names));
    let stream = world.dial_name("a.example", port);
    ping(&stream).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut byte = [0; 1];
    assert!(!matches!((&stream).read(&mut byte), Ok(1..)), "it is cut");
    let (sandbox, rules) = (world.id.clone(), world.rules(BOTH));
    let gone = world.tell(|number| ToEgress::Change { number, sandbox, rules }, &[]);
    assert!(gone.unwrap_err().contains("not attached"));
}

#[test]
fn an_engine_of_another_version_ends_the_program() {
    let resolver = resolver();
    let Some(world) = World::new(BOTH, resolver.configuration()) else { return };
    let other = world.connect();
    let hello = Hello::Engine { version: "0/0".to_owned() };
    link::send(&other, &hello, &[], SendFlags::empty()).unwrap();
    world.wait_until_ended();
    let address = Ipv4Addr::new(198, 18, 1, 1);
    let deadline = Instant::now() + PATIENCE;
    while world.dial(address, 80).is_ok_and(|stream| rest(stream).is_ok()) {
        assert!(Instant::now() < deadline);
    }
}
