//! The same by commands: `soma net`, `--network`, `--allow`.

use serde_json::Value;

use super::world::{HERE, World, web};
use crate::support::{eventually, is_root};

#[test]
fn what_a_sandbox_may_reach_is_shown_changed_and_followed_by_commands() {
    let world = World::new();
    let port = web().port();
    world.name("good.example.com", &[HERE]);
    world.name("more.example.com", &[HERE]);
    let daemon = world.daemon("");
    let soma = |words: &[&str]| {
        let output = daemon.home.soma(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let unenforced = if is_root() { &[][..] } else { &["--allow-unenforced"][..] };
    let (code, id, said) = soma(&[&["new", "--allow", "good.example.com"], unenforced].concat());
    assert_eq!(code, Some(0), "{said}");
    let id = id.trim();
    let reach = |name: &str| {
        let place = format!("http://{name}:{port}/");
        let curl =
            ["exec", id, "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", &place];
        soma(&curl).1
    };
    assert_eq!(reach("good.example.com"), "200");
    assert_eq!(reach("more.example.com"), "000");
    let (code, _, said) = soma(&["net", "allow", id, "more.example.com"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(reach("more.example.com"), "200");
    let (_, shown, _) = soma(&["net", "show", id]);
    assert!(shown.contains("more.example.com"), "{shown}");
    let (code, _, said) = soma(&["net", "deny", id, "good.example.com"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(reach("good.example.com"), "000");
    let (_, log, _) = soma(&["net", "log", id]);
    assert!(log.lines().any(|line| line.contains("good.example.com")), "{log}");
    let (_, lines, said) = soma(&["net", "log", id, "--json"]);
    let entries: Vec<Value> = serde_json::from_str(&lines).expect(&lines);
    let refused = entries.iter().find(|entry| entry["allowed"] == false);
    assert!(refused.is_some_and(|entry| entry["rule"] != ""), "{lines}{said}");
    // Whoever was quick to leave on a busy machine is not known, so it comes again.
    for (name, protocol, allowed) in
        [("more.example.com", "http", true), ("good.example.com", "dns", false)]
    {
        eventually("nobody knows whose a connection is", || {
            reach(name);
            let (_, lines, _) = soma(&["net", "log", id, "--json"]);
            let entries: Vec<Value> = serde_json::from_str(&lines).expect(&lines);
            entries.iter().any(|entry| {
                let process = entry["process"].as_str().unwrap_or_default();
                let is_meant = entry["protocol"] == protocol && entry["allowed"] == allowed;
                is_meant && process.starts_with("curl[") && process.ends_with(']')
            })
        });
    }
    assert_eq!(soma(&["rm", "-f", id]).0.or(soma(&["rm", id]).0), Some(0));
    daemon.close();
}

#[test]
fn a_run_that_learns_tells_the_policy_that_it_needs() {
    let world = World::new();
    let port = web().port();
    world.name("needed.example.com", &[HERE]);
    let daemon = world.daemon("");
    let unenforced = if is_root() { "" } else { "--allow-unenforced" };
    let mut words = vec!["new", "--network", "learn"];
    words.extend(Some(unenforced).filter(|word| !word.is_empty()));
    let id = String::from_utf8(daemon.home.soma(words).output().unwrap().stdout).unwrap();
    let id = id.trim();
    daemon.execute(id, &format!("curl -s http://needed.example.com:{port}/"));
    let learned = daemon.ask("GET", &format!("/v1/sandbox/{id}/network/learned"), "").json();
    let policy = learned.get("policy").unwrap_or(&learned).clone();
    assert_eq!(policy["mode"], "custom", "{learned}");
    assert_eq!(policy["allow_domains"], serde_json::json!(["needed.example.com"]), "{learned}");
    let said = daemon.home.soma(["net", "learn", id]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("needed.example.com"), "{said}");
    // What was learned is enough.
    let put = daemon.ask("PUT", &format!("/v1/sandbox/{id}/network"), &policy.to_string());
    assert_eq!(put.status, 200, "{}", put.json());
    let got = daemon.execute(id, &format!("curl -s http://needed.example.com:{port}/"));
    assert!(got.starts_with("GET / HTTP/1.1"), "{got}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
