use proptest::prelude::*;

use super::*;
use crate::{NetworkEntry, NetworkProtocol, Timestamp};

fn pattern(text: &str) -> DomainPattern {
    text.parse().unwrap()
}

fn transform(domain: &str, header: &str, value: &str) -> Transform {
    Transform {
        domain: pattern(domain),
        inject_headers: BTreeMap::from([(header.to_owned(), SecretText::new(value))]),
        strip_headers: Vec::new(),
    }
}

fn custom() -> NetworkPolicy {
    NetworkPolicy { mode: NetworkMode::Custom, ..NetworkPolicy::default() }
}

fn field(policy: &NetworkPolicy) -> String {
    policy.check().unwrap_err().field
}

#[test]
fn a_wildcard_means_every_name_below_and_not_the_name_itself() {
    let wildcard = pattern("*.Example.COM");
    assert_eq!(wildcard.to_string(), "*.example.com");
    for (name, meant) in [
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("example.com", false),
        (".example.com", false),
        ("badexample.com", false),
        ("a.example.com.evil.org", false),
        ("a.example.co", false),
    ] {
        assert_eq!(wildcard.matches(name), meant, "{name}");
    }
    let plain = pattern("example.com");
    assert!(plain.matches("example.com") && !plain.matches("a.example.com"));
}

#[test]
fn what_is_no_domain_is_refused() {
    for text in [
        "",
        "*",
        "*.",
        "com",
        "*.com",
        "localhost",
        "a..b",
        ".a.b",
        "a.b.",
        "a b.c",
        "-a.com",
        "a.com:443",
        "https://a.com",
        "a.com/x",
        "*.*.com",
        "a.*.com",
        "1.2.3.4",
        "ä.com",
        "a.b\n",
    ] {
        assert!(text.parse::<DomainPattern>().is_err(), "{text:?}");
    }
    for text in ["a.b", "*.a.b", "xn--4ca.com", "my_bucket.s3.example.com", "1.example.com"] {
        assert!(text.parse::<DomainPattern>().is_ok(), "{text}");
    }
}

#[test]
fn ranges_hold_what_they_say_and_are_written_in_one_way() {
    let range: Cidr = "192.0.2.77/24".parse().unwrap();
    assert_eq!(range.to_string(), "192.0.2.0/24");
    assert!(range.contains("192.0.2.255".parse().unwrap()));
    assert!(!range.contains("192.0.3.0".parse().unwrap()));
    assert!(!range.contains("::ffff:192.0.2.1".parse().unwrap()));
    let everything: Cidr = "0.0.0.0/0".parse().unwrap();
    assert!(everything.is_everything() && everything.contains("255.255.255.255".parse().unwrap()));
    assert_eq!("2001:db8::1".parse::<Cidr>().unwrap().to_string(), "2001:db8::1/128");
    assert!(everything.overlaps(&range) && range.overlaps(&everything));
    assert!(!range.overlaps(&"192.0.3.0/24".parse().unwrap()));
    for text in ["", "/24", "192.0.2.0/33", "::/129", "192.0.2/24", "192.0.2.0/-1", "a/1"] {
        assert!(text.parse::<Cidr>().is_err(), "{text}");
    }
}

#[test]
fn ports_can_be_taken_out_of_ranges() {
    let all = Ports::ALL;
    let shown = |ports: Vec<Ports>| ports.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(all.without("25".parse().unwrap())), ["1-24", "26-65535"]);
    assert_eq!(shown(all.without("1-65534".parse().unwrap())), ["65535"]);
    assert!(all.without(all).is_empty());
    let few: Ports = "80-90".parse().unwrap();
    assert_eq!(shown(few.without("443".parse().unwrap())), ["80-90"]);
    for text in ["0", "65536", "90-80", "80-", "-80", "80,443", "http"] {
        assert!(text.parse::<Ports>().is_err(), "{text}");
    }
}

#[test]
fn nothing_said_is_nothing_allowed() {
    assert_eq!(NetworkPolicy::default().mode, NetworkMode::DenyAll);
    assert!(serde_json::from_str::<NetworkPolicy>("{}").is_err());
    assert!(serde_json::from_str::<NetworkPolicy>(r#"{"mode":"custom","allow":[]}"#).is_err());
}

#[test]
fn more_than_there_is_room_for_is_refused_by_its_field() {
    let domains = |count: usize| (0..count).map(|n| pattern(&format!("h{n}.a"))).collect();
    let ranges = |count: u8| -> Vec<Cidr> {
        (0..count).map(|n| Cidr::one(IpAddr::from([192, 0, 2, n]))).collect()
    };
    let ports = |count: u16| (1..=count).map(|n| Ports { first: n, last: n }).collect();
    NetworkPolicy { allow_domains: domains(50), allow_cidrs: ranges(10), ..custom() }
        .check()
        .unwrap();
    assert_eq!(field(&NetworkPolicy { allow_domains: domains(51), ..custom() }), "allow_domains");
    assert_eq!(field(&NetworkPolicy { block_domains: domains(51), ..custom() }), "block_domains");
    assert_eq!(field(&NetworkPolicy { allow_cidrs: ranges(11), ..custom() }), "allow_cidrs");
    assert_eq!(field(&NetworkPolicy { block_cidrs: ranges(11), ..custom() }), "block_cidrs");
    assert_eq!(field(&NetworkPolicy { allow_ports: ports(51), ..custom() }), "allow_ports");
    let transforms = (0..21).map(|n| transform(&format!("h{n}.a"), "X-A", "b")).collect();
    assert_eq!(field(&NetworkPolicy { transforms, ..custom() }), "transforms");
    let sandboxes = (0..17).map(|n| (format!("n{n}"), SandboxId::from_random([n; 15]))).collect();
    assert_eq!(field(&NetworkPolicy { sandboxes, ..custom() }), "allow_sandboxes");
    let large = (0..4).map(|n| transform(&format!("h{n}.a"), "X-A", &"b".repeat(8000))).collect();
    assert_eq!(field(&NetworkPolicy { transforms: large, ..custom() }), "transforms");
    let learn = NetworkPolicy { learn: true, ..NetworkPolicy::default() };
    assert_eq!(field(&learn), "learn");
}

#[test]
fn headers_that_make_a_request_another_one_are_refused_and_values_never_repeated() {
    let with = |header: &str, value: &str| NetworkPolicy {
        transforms: vec![transform("api.example.com", header, value)],
        ..custom()
    };
    with("Authorization", "Bearer swordfish").check().unwrap();
    for header in ["Host", "content-LENGTH", "Transfer-Encoding", "Connection", "", "a b", "a:b"] {
        let error = with(header, "swordfish").check().unwrap_err();
        assert_eq!(error.field, "transforms[0].inject_headers", "{header}");
    }
    let mut policy = custom();
    policy.transforms.push(transform("a.example.com", "X", "y"));
    policy.transforms[0].strip_headers.push("Host".to_owned());
    assert_eq!(field(&policy), "transforms[0].strip_headers");
    for value in ["swordfish\r\nX: y", "swordfish\0", "swordfishé", &"swordfish".repeat(1000)] {
        let error = with("X-Key", value).check().unwrap_err();
        assert_eq!(error.field, "transforms[0].inject_headers.X-Key");
        assert!(!error.to_string().contains("swordfish"), "{error}");
    }
    let mut twice = with("X-Key", "a");
    twice.transforms[0].inject_headers.insert("x-key".to_owned(), SecretText::new("b"));
    assert!(twice.check().unwrap_err().reason.contains("twice"));
    let two = vec![transform("a.b", "X", "1"), transform("A.b", "Y", "2")];
    assert_eq!(field(&NetworkPolicy { transforms: two, ..custom() }), "transforms[1].domain");
}

#[test]
fn a_secret_is_shown_nowhere_and_comes_back_to_the_same_header_of_the_same_domain() {
    let kept = NetworkPolicy {
        transforms: vec![transform("api.example.com", "Authorization", "swordfish")],
        ..custom()
    };
    let shown = kept.redacted();
    assert!(!serde_json::to_string(&shown).unwrap().contains("swordfish"));
    assert!(!format!("{kept:?}").contains("swordfish"));
    let mut back = shown.clone();
    back.restore_from(&kept).unwrap();
    assert_eq!(back, kept);
    for (domain, header) in [("evil.example.com", "Authorization"), ("api.example.com", "X-Other")]
    {
        let mut moved = custom();
        moved.transforms.push(transform(domain, header, "(secret)"));
        let error = moved.restore_from(&kept).unwrap_err().to_string();
        assert!(error.contains(&format!("transforms[0].inject_headers.{header}")), "{error}");
    }
    let mut wider = shown.clone();
    wider.transforms[0].domain = pattern("*.example.com");
    wider.restore_from(&kept).unwrap_err();
    shown.clone().restore_from(&shown).unwrap_err();
    let wrong = r#"{"domain": "a.b", "inject_headers": {"X": 12345}}"#;
    let error = serde_json::from_str::<Transform>(wrong).unwrap_err().to_string();
    assert!(!error.contains("12345"), "{error}");
}

fn entry(name: Option<&str>, address: Option<&str>, port: u16, allowed: bool) -> NetworkEntry {
    NetworkEntry {
        sequence: 1,
        at: Timestamp(0),
        protocol: if port == 53 { NetworkProtocol::Dns } else { NetworkProtocol::Tcp },
        name: name.map(ToOwned::to_owned),
        address: address.map(|address| address.parse().unwrap()),
        port,
        process: None,
        sent: 0,
        received: 0,
        milliseconds: 0,
        allowed,
        rule: "learn".to_owned(),
        detail: None,
    }
}

#[test]
fn what_a_run_reached_becomes_a_policy() {
    let mut learned = Learned::default();
    for entry in [
        entry(Some("pypi.org"), None, 53, true),
        entry(Some("Pypi.org."), Some("203.0.113.9"), 443, true),
        entry(None, Some("203.0.113.7"), 8080, true),
        entry(None, Some("169.254.169.254"), 80, true),
        entry(Some("bad.example.com"), None, 53, false),
        entry(Some("db"), None, 5432, true),
    ] {
        learned.note(&entry);
    }
    let id = SandboxId::from_random([1; 15]);
    let before = NetworkPolicy {
        mode: NetworkMode::AllowAll,
        learn: true,
        sandboxes: BTreeMap::from([("db".to_owned(), id)]),
        transforms: vec![transform("api.example.com", "X", "y")],
        ..NetworkPolicy::default()
    };
    let (policy, left_out) = learned.policy(&before);
    assert!(left_out.is_empty(), "{left_out:?}");
    assert_eq!(policy.mode, NetworkMode::Custom);
    assert_eq!(policy.allow_domains, [pattern("pypi.org")]);
    assert_eq!(policy.allow_cidrs, ["203.0.113.7/32".parse().unwrap()]);
    let ports: Vec<String> = policy.allow_ports.iter().map(ToString::to_string).collect();
    assert_eq!(ports, ["443", "5432", "8080"]);
    assert_eq!((policy.sandboxes.len(), policy.transforms.len(), policy.learn), (1, 1, false));
    policy.check().unwrap();
}

#[test]
fn many_names_become_wildcards_and_what_has_no_room_is_said() {
    let mut learned = Learned::default();
    for number in 0..60 {
        learned.note(&entry(Some(&format!("h{number}.cdn.example.com")), None, 443, true));
        learned.note(&entry(None, Some(&format!("203.0.113.{number}")), 1000 + 3 * number, true));
    }
    learned.note(&entry(Some("single"), None, 443, true));
    let (policy, left_out) = learned.policy(&NetworkPolicy::default());
    assert_eq!(policy.allow_domains, [pattern("*.cdn.example.com")]);
    assert_eq!((policy.allow_cidrs.len(), left_out.len()), (10, 51));
    assert!(left_out.contains(&"single".to_owned()));
    policy.check().unwrap();
    for number in 0..60 {
        let port = 1000 + 3 * number;
        assert!(policy.allow_ports.iter().any(|ports| ports.contains(port)), "{port}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in ".{0,300}") {
        if let Ok(domain) = text.parse::<DomainPattern>() {
            prop_assert_eq!(domain.to_string().parse::<DomainPattern>().unwrap(), domain);
        }
        if let Ok(range) = text.parse::<Cidr>() {
            prop_assert_eq!(range.to_string().parse::<Cidr>().unwrap(), range);
        }
        if let Ok(ports) = text.parse::<Ports>() {
            prop_assert_eq!(ports.to_string().parse::<Ports>().unwrap(), ports);
        }
    }

    #[test]
    fn every_part_comes_back_as_it_was_written(
        wildcard in any::<bool>(),
        name in "[a-zA-Z0-9]{1,10}(\\.[a-zA-Z0-9-]{1,5}[a-z]){1,4}",
        address in any::<[u8; 4]>(), bits in 0u8..=32,
        ports in any::<(u16, u16)>(),
        header in "[A-Za-z][A-Za-z0-9-]{0,20}", value in "[ -~]{0,40}",
    ) {
        let star = if wildcard { "*." } else { "" };
        let Ok(domain) = format!("{star}{name}").parse::<DomainPattern>() else { return Ok(()) };
        prop_assert_eq!(domain.matches(&name.to_ascii_lowercase()), !wildcard);
        let below = format!("x.{}", name.to_ascii_lowercase());
        prop_assert_eq!(domain.matches(&below), wildcard);
        let range: Cidr = format!("{}/{bits}", IpAddr::from(address)).parse().unwrap();
        prop_assert!(range.contains(IpAddr::from(address)));
        let (first, last) = (ports.0.min(ports.1).max(1), ports.0.max(ports.1).max(1));
        let transform = Transform {
            domain: domain.clone(),
            inject_headers: BTreeMap::from([(header, SecretText::new(value))]),
            strip_headers: vec!["Cookie".to_owned()],
        };
        let policy = NetworkPolicy {
            mode: NetworkMode::Custom,
            allow_domains: vec![domain.clone()],
            block_domains: vec![domain],
            allow_cidrs: vec![range],
            block_cidrs: vec![range],
            allow_ports: vec![Ports { first, last }],
            transforms: vec![transform],
            ..NetworkPolicy::default()
        };
        let text = serde_json::to_string(&policy).unwrap();
        let read = serde_json::from_str::<NetworkPolicy>(&text).unwrap();
        prop_assert_eq!(&read, &policy);
        let _ = policy.check();
        let mut back = policy.redacted();
        if back.restore_from(&policy).is_ok() {
            prop_assert_eq!(back, policy);
        }
    }
}
