//! What is refused: at once, with a reason, and without a word to the outside.

use serde_json::json;

use super::world::{HERE, World, web};
use super::{fetch, log, python, sandbox, seconds};

/// The bound of a refusal is 100 ms; a busy machine gets ten times that.
const SOON: f64 = 1.0;

#[test]
fn what_is_not_listed_has_no_address_and_nobody_outside_is_asked() {
    let world = World::new();
    world.name("other.example.org", &[HERE]);
    world.name("good.example.com", &[HERE]);
    let daemon = world.daemon("");
    let custom = sandbox(
        &daemon,
        &json!({ "mode": "custom", "allow_domains": ["*.example.com"],
                 "block_domains": ["bad.example.com"] }),
    );
    let none = sandbox(&daemon, &json!({ "mode": "deny-all" }));
    let cases = [
        (&custom, "other.example.org"),
        (&custom, "bad.example.com"),
        (&custom, "example.com"),
        (&custom, "aGVsbG8gd29ybGQ.tunnel.example.org"),
        (&none, "good.example.com"),
    ];
    for (id, name) in cases {
        let said = fetch(&daemon, id, &format!("http://{name}/"));
        assert!(said.starts_with("failed:"), "{name}: {said}");
        assert!(seconds(&said) < SOON, "{name}: {said}");
        let log = log(&daemon, id);
        let refused = log.iter().find(|entry| entry["name"] == name.to_lowercase());
        let refused = refused.unwrap_or_else(|| panic!("{name}: {log:?}"));
        assert_eq!(refused["allowed"], false, "{refused}");
        assert!(!refused["rule"].as_str().unwrap().is_empty(), "{refused}");
    }
    for (_, name) in &cases[..4] {
        assert!(!world.was_asked(name), "{name} went out");
    }
    for id in [&custom, &none] {
        daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    }
    daemon.close();
}

#[test]
fn n1_n2_n4_addresses_that_are_nobodys_business_are_refused_also_with_allow_all() {
    let world = World::new();
    let own = web();
    let daemon = world.daemon("");
    let daemon_port = daemon.address.rsplit(':').next().unwrap().to_owned();
    let id = sandbox(&daemon, &json!({ "mode": "allow-all" }));
    for place in [
        "169.254.169.254:8080",
        "100.100.100.200:80",
        "100.96.0.96:80",
        "10.0.0.1:80",
        "192.168.1.1:80",
        "172.16.0.1:80",
        "100.64.0.1:80",
        "198.51.100.1:80",
        "224.0.0.1:80",
        "0.0.0.1:80",
        "2852039166:81",
    ] {
        let said = fetch(&daemon, &id, &format!("http://{place}/"));
        assert!(said.starts_with("failed:") || said.starts_with("403"), "{place}: {said}");
        assert!(seconds(&said) < SOON, "{place}: {said}");
    }
    // The host's own ports: by a name that leads to them, and by every address that is not inside.
    world.name("host.example.com", &["127.0.0.1".parse().unwrap()]);
    world.name("both.example.com", &["127.0.0.1".parse().unwrap(), HERE]);
    world.name("host.docker.internal", &["127.0.0.1".parse().unwrap()]);
    for name in ["host.example.com", "host.docker.internal", "metadata.google.internal"] {
        let said = fetch(&daemon, &id, &format!("http://{name}:{daemon_port}/healthz"));
        assert!(said.starts_with("failed:") || said.starts_with("403"), "{name}: {said}");
        assert!(!said.contains("200"), "{name}: {said}");
    }
    // Of several addresses those that may not be reached are left out.
    let said = fetch(&daemon, &id, &format!("http://both.example.com:{}/", own.port()));
    assert!(said.starts_with("200"), "{said}");
    // Rebinding: what was public is not any more.
    world.name("moving.example.com", &[HERE]);
    let said = fetch(&daemon, &id, &format!("http://moving.example.com:{}/", own.port()));
    assert!(said.starts_with("200"), "{said}");
    world.name("moving.example.com", &["127.0.0.1".parse().unwrap()]);
    let said = fetch(&daemon, &id, &format!("http://moving.example.com:{daemon_port}/healthz"));
    assert!(!said.starts_with("200"), "{said}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn n5_n11_other_ways_out_are_closed() {
    let world = World::new();
    let daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "allow-all" }));
    let tries = r"
import socket, time
def attempt(name, act):
    begun = time.time()
    try:
        act()
        print(name, 'PASSED')
    except OSError as error:
        print(name, 'refused' if time.time() - begun < 1 else 'late')
def datagram(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect(address)
    s.send(b'x')
    s.recv(10)
attempt('udp443', lambda: datagram(('1.1.1.1', 443)))
attempt('udp53', lambda: datagram(('8.8.8.8', 53)))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt('raw6', lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6))
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
for address in ['2606:4700:4700::1111', 'fd00:ec2::254', 'fe80::1', '64:ff9b::808:808', '2002:808:808::1']:
    attempt('v6 ' + address, lambda: socket.create_connection((address, 443), 5))
";
    let said = python(&daemon, &id, tries, "");
    assert_eq!(said.lines().count(), 10, "{said}");
    assert!(said.lines().all(|line| line.ends_with("refused")), "{said}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn n22_a_policy_cannot_widen_what_the_operator_grants() {
    let world = World::new();
    let daemon = world.daemon("");
    let id = sandbox(
        &daemon,
        &json!({ "mode": "custom", "allow_cidrs": ["0.0.0.0/0", "10.0.0.0/8", "127.0.0.0/8"] }),
    );
    for place in ["10.0.0.1:80", "169.254.169.254:8080", "192.168.0.1:80"] {
        let said = fetch(&daemon, &id, &format!("http://{place}/"));
        assert!(said.starts_with("failed:") || said.starts_with("403"), "{place}: {said}");
    }
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn n10_a_name_in_tls_or_http_that_is_not_the_one_that_was_asked_for_is_refused() {
    let world = World::new();
    let port = web().port();
    world.name("good.example.com", &[HERE]);
    let daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": ["good.example.com"] }));
    let other_host = format!(
        "import http.client, sys\nc = http.client.HTTPConnection(sys.argv[1], {port}, timeout=20)\n\
         c.request('GET', '/', headers={{'Host': 'evil.example.org'}})\nr = c.getresponse()\n\
         print(r.status, r.read().decode())\n"
    );
    let said = python(&daemon, &id, &other_host, "good.example.com");
    assert!(said.starts_with("403"), "{said}");
    assert!(said.contains("evil.example.org"), "{said}");
    let other_name = format!(
        "import socket, ssl, sys\ns = socket.create_connection((sys.argv[1], {port}), 20)\n\
         c = ssl._create_unverified_context()\n\
         try:\n    c.wrap_socket(s, server_hostname='evil.example.org')\n    print('PASSED')\n\
         except Exception as error:\n    print(error)\n"
    );
    let said = python(&daemon, &id, &other_name, "good.example.com");
    assert!(said.to_lowercase().contains("access denied") || said.contains("reset"), "{said}");
    let log = log(&daemon, &id);
    let refused: Vec<_> = log.iter().filter(|entry| entry["allowed"] == false).collect();
    assert_eq!(refused.len(), 2, "{log:?}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
