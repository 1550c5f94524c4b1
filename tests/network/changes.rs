//! Rules that change, and programs that die: what may be reached stays what was said last.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::world::{HERE, World, first_to_speak, web};
use super::{fetch, python, sandbox};
use crate::daemon::Daemon;
use crate::support::eventually;

/// Connects, says so, and prints how the connection ends or that it still stands.
fn hold(port: u16, seconds: u32) -> String {
    format!(
        "import socket, sys, time\ns = socket.create_connection((sys.argv[1], {port}), 20)\n\
         s.recv(100)\nopen('/tmp/connected', 'w').close()\ns.settimeout({seconds})\n\
         try:\n    print('over' if s.recv(100) == b'' else 'odd')\n\
         except TimeoutError:\n    print('stands')\n\
         except OSError as error:\n    print('over')\n"
    )
}

fn change(daemon: &Daemon, id: &str, policy: &serde_json::Value) {
    let answer = daemon.ask("PUT", &format!("/v1/sandbox/{id}/network"), &policy.to_string());
    assert_eq!(answer.status, 200, "{}", answer.json());
}

/// The egress program of a daemon's home.
fn egress(daemon: &Daemon) -> Option<Pid> {
    let home = format!("--home={}", daemon.home.path().display());
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
        let typed = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let words: Vec<&str> = typed.split('\0').collect();
        let is_ours = words.contains(&"egress") && words.contains(&home.as_str());
        Pid::from_raw(process.file_name().to_str()?.parse().ok().filter(|_| is_ours)?)
    })
}

#[test]
fn n13_a_change_cuts_what_it_does_not_allow_and_touches_nobody_else() {
    let world = World::new();
    let port = first_to_speak().port();
    world.name("one.example.com", &[HERE]);
    world.name("two.example.com", &[HERE]);
    let daemon = world.daemon("");
    let policy = json!({ "mode": "custom", "allow_domains": ["*.example.com"] });
    let (changed, other) = (sandbox(&daemon, &policy), sandbox(&daemon, &policy));
    let held = std::thread::scope(|scope| {
        let wait = |id: &str, name: &'static str, file: &str| {
            let (daemon, id, file) = (&daemon, id.to_owned(), file.to_owned());
            let program = hold(port, 4).replace("/tmp/connected", &file);
            let held = scope.spawn({
                let id = id.clone();
                move || python(daemon, &id, &program, name)
            });
            eventually("it does not connect", || {
                daemon.execute(&id, &format!("test -e {file} && echo there || true")) == "there\n"
            });
            held
        };
        let cut = wait(&changed, "one.example.com", "/tmp/cut");
        let stays = wait(&changed, "two.example.com", "/tmp/stays");
        let apart = wait(&other, "one.example.com", "/tmp/apart");
        let begun = Instant::now();
        change(
            &daemon,
            &changed,
            &json!({ "mode": "custom", "allow_domains": ["two.example.com"] }),
        );
        let cut = cut.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(3), "it was cut late");
        [cut, stays.join().unwrap(), apart.join().unwrap()]
    });
    assert_eq!(held, ["over\n", "stands\n", "stands\n"]);
    let said = python(&daemon, &changed, &hold(port, 1), "one.example.com");
    assert!(said.contains("Name or service not known"), "{said}");
    for id in [&changed, &other] {
        daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    }
    daemon.close();
}

#[test]
fn n14_when_the_egress_program_dies_nothing_passes_until_it_is_back_and_the_rules_hold() {
    let world = World::new();
    let port = web().port();
    world.name("good.example.com", &[HERE]);
    world.name("evil.example.org", &[HERE]);
    let daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": ["good.example.com"] }));
    let reach = |name: &str| fetch(&daemon, &id, &format!("http://{name}:{port}/"));
    assert!(reach("good.example.com").starts_with("200"));
    let first = egress(&daemon).expect("no egress program");
    kill_process(first, Signal::KILL).unwrap();
    // Whatever is tried meanwhile is refused or works; it never hangs and never passes by.
    let begun = Instant::now();
    eventually("it does not come back", || {
        assert!(!reach("evil.example.org").starts_with("200"));
        reach("good.example.com").starts_with("200")
    });
    assert!(begun.elapsed() < Duration::from_secs(10), "it was away for {:?}", begun.elapsed());
    assert_ne!(egress(&daemon), Some(first));
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn rules_hold_over_the_death_of_everything_else() {
    let world = World::new();
    let port = web().port();
    world.name("good.example.com", &[HERE]);
    world.name("evil.example.org", &[HERE]);
    let mut daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "allow-all" }));
    change(&daemon, &id, &json!({ "mode": "custom", "allow_domains": ["good.example.com"] }));
    let check = |daemon: &Daemon, when: &str| {
        let reach = |name: &str| fetch(daemon, &id, &format!("http://{name}:{port}/"));
        eventually(when, || reach("good.example.com").starts_with("200"));
        assert!(!reach("evil.example.org").starts_with("200"), "{when}");
    };
    daemon.kill();
    daemon.restart();
    check(&daemon, "after the daemon's death");
    daemon.home.kill_engine();
    check(&daemon, "after the engine's death");
    daemon.ask("POST", &format!("/v1/sandbox/{id}/stop"), "");
    daemon.ask("POST", &format!("/v1/sandbox/{id}/start"), "");
    check(&daemon, "after a start");
    let shown = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
    assert_eq!(shown["network_policy"]["allow_domains"], json!(["good.example.com"]), "{shown}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn an_egress_program_that_cannot_run_is_said_and_everything_else_works() {
    let world = World::new();
    let mut daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "allow-all" }));
    assert!(daemon.end().success());
    daemon.home.kill_engine();
    eventually("the egress program stays", || {
        egress(&daemon).is_none_or(|it| kill_process(it, Signal::KILL).is_err())
    });
    // It cannot make its folder where a file is.
    let folder = daemon.home.path().join("egress");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    daemon.restart();
    assert_eq!(daemon.execute(&id, "echo here"), "here\n");
    let policy = json!({ "mode": "deny-all" }).to_string();
    let answer = daemon.ask("PUT", &format!("/v1/sandbox/{id}/network"), &policy);
    assert!(answer.status >= 500, "{}", answer.json());
    assert!(answer.message().contains("egress"), "{}", answer.message());
    // And when it can, it does.
    std::fs::remove_file(&folder).unwrap();
    eventually("it does not come back", || {
        daemon.ask("PUT", &format!("/v1/sandbox/{id}/network"), &policy).status == 200
    });
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
