//! What the resolver of a sandbox answers.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::servers::Resolver;
use crate::world::World;

const CUSTOM: &str = r#"{"mode":"custom","allow_domains":["a.example","*.b.example"]}"#;

#[test]
fn a_name_that_may_be_reached_has_an_address_inside() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1"), ("x.b.example", "127.0.0.1")]);
    let Some(world) = World::new(CUSTOM, resolver.configuration()) else { return };
    let address = world.address("a.example");
    assert!((Ipv4Addr::new(198, 18, 1, 0)..Ipv4Addr::new(198, 20, 0, 0)).contains(&address));
    assert_eq!(world.address("A.Example"), address);
    assert_ne!(world.address("x.b.example"), address);
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let answer = world.ask("a.example", kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert!(answer.answers.is_empty());
    }
    let text = world.ask("a.example", RecordType::TXT);
    assert!(matches!(&text.answers[0].data, RData::TXT(_)), "{text}");
    let [a, b, c, d] = address.octets();
    let reverse = world.ask(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"), RecordType::PTR);
    assert!(reverse.answers[0].data.to_string().starts_with("a.example"), "{reverse}");
    let entry = world.logged(|entry| entry.name.as_deref() == Some("a.example"));
    assert!(entry.allowed);
    assert_eq!(entry.rule, "allow_domains: a.example");
}

#[test]
fn names_that_do_not_exist_are_told_as_such() {
    let resolver = Resolver::new(&[]);
    let Some(world) = World::new(CUSTOM, resolver.configuration()) else { return };
    world.refused_name("a.example");
    assert!(!resolver.asked().is_empty());
    let entry = world.logged(|entry| entry.name.as_deref() == Some("a.example"));
    assert!(entry.allowed);
    assert_eq!(entry.detail.as_deref(), Some("there is no such name"));
}

#[test]
fn nobody_outside_learns_of_a_name_that_may_not_be_reached() {
    let resolver = Resolver::new(&[]);
    let Some(world) = World::new(CUSTOM, resolver.configuration()) else { return };
    let long = format!("{}.{}.tunnel.example", "a".repeat(60), "b".repeat(60));
    for name in ["other.example", "b.example", "ba.example", &long, "x.sandbox.internal"] {
        world.refused_name(name);
        for kind in [RecordType::TXT, RecordType::NULL, RecordType::ANY, RecordType::MX] {
            let answer = world.ask(name, kind);
            assert_ne!(answer.metadata.response_code, ResponseCode::NoError, "{name} {kind}");
            assert!(answer.answers.is_empty());
        }
    }
    let answer = world.ask("other.example", RecordType::A);
    let edns = answer.edns.unwrap();
    let reason = edns.option(EdnsCode::from(15)).expect("no reason");
    let EdnsOption::Unknown(15, reason) = reason else { panic!("{reason:?}") };
    assert_eq!(reason[..2], [0, 17]);
    assert_eq!(&reason[2..], b"mode: custom");
    // What may be reached is refused for other kinds of records too.
    let answer = world.ask("a.example", RecordType::NULL);
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    assert_eq!(resolver.asked(), []);
    let entry = world.logged(|entry| entry.name.as_deref() == Some("other.example"));
    assert!(!entry.allowed);
    assert_eq!((entry.port, entry.rule.as_str()), (53, "mode: custom"));
}

#[test]
fn a_name_with_private_addresses_alone_does_not_exist() {
    let resolver = Resolver::new(&[("a.example", "10.0.0.1"), ("x.b.example", "169.254.169.254")]);
    resolver.know("y.b.example", &[&["fd00:ec2::254", "::ffff:10.0.0.1"]]);
    resolver.know("z.b.example", &[&["10.0.0.1", "127.0.0.1"]]);
    let Some(world) = World::new(CUSTOM, resolver.configuration()) else { return };
    for name in ["a.example", "x.b.example", "y.b.example"] {
        world.refused_name(name);
    }
    world.address("z.b.example");
    let entry = world.logged(|entry| entry.name.as_deref() == Some("a.example"));
    assert_eq!((entry.allowed, entry.rule.as_str()), (false, "private address"));
}

#[test]
fn what_is_no_question_breaks_nothing() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let Some(world) = World::new(CUSTOM, resolver.configuration()) else { return };
    let answer = world.ask_bytes(&[1, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 255, 255]).unwrap();
    assert_eq!(answer[..2], [1, 2]);
    assert_eq!(answer[3] & 15, 1, "a format error");
    // A name with a dot within a label is not the name that it reads as.
    let mut odd = Message::new(5, MessageType::Query, OpCode::Query);
    let name = Name::from_labels([&b"a.example"[..]]).unwrap();
    odd.add_query(Query::query(name, RecordType::A));
    let answer = Message::from_vec(&world.ask_bytes(&odd.to_vec().unwrap()).unwrap()).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    world.address("a.example");
}

#[test]
fn questions_may_come_over_a_connection() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let Some(world) = World::new(CUSTOM, resolver.configuration()) else { return };
    let mut stream = world.dial(Ipv4Addr::new(198, 18, 0, 1), 53).unwrap();
    let mut query = Message::new(9, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(Name::from_ascii("a.example.").unwrap(), RecordType::A));
    let query = query.to_vec().unwrap();
    for _ in 0..2 {
        stream.write_all(&u16::try_from(query.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&query).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 1);
    }
}
