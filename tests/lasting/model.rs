//! Random lives of real sandboxes beside a model of them: daemon and engine are killed in between.

use std::collections::BTreeMap;

use serde_json::json;

use crate::daemon::Daemon;
use crate::support::is_root;

/// How many steps are taken.
const STEPS: u32 = 500;

/// How many sandboxes there are at the most.
const NAMES: u32 = 3;

/// What should be true of one sandbox.
#[derive(Debug)]
struct Expected {
    running: bool,
    /// The numbers that were written into its file, one line each.
    lines: Vec<u32>,
}

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u32) -> u32 {
        // Xorshift: any will do, as long as it is the same in every run.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(bound)).unwrap()
    }
}

struct World {
    daemon: Daemon,
    expected: BTreeMap<u32, Expected>,
}

impl World {
    fn take(&mut self, step: u32, which: u32, kind: u32) {
        let name = format!("box-{which}");
        let runs = self.expected.get(&which).map(|one| one.running);
        match kind {
            0..10 => self.create(which, &name),
            10..40 => self.write(step, which, &name),
            40..55 => self.order("stop", which, &name, false),
            55..70 => self.order("start", which, &name, true),
            70..76 => {
                let status = self.daemon.ask("DELETE", &format!("/v1/sandbox/{name}"), "").status;
                assert_eq!(status, if runs.is_some() { 204 } else { 404 });
                self.expected.remove(&which);
            }
            76..80 => {
                let renewed = format!("/v1/sandbox/{name}/timeout");
                let status = self.daemon.ask("POST", &renewed, r#"{"timeout": 3000}"#).status;
                assert_eq!(status, expected_status(runs));
            }
            80..85 => {
                let found = self.daemon.ask("POST", "/v1/reconcile", "").json();
                assert_eq!((&found["adopted"], &found["missing"]), (&json!(0), &json!([])));
            }
            85..92 => self.daemon.home.kill_engine(),
            92..97 => {
                self.daemon.kill();
                self.daemon.restart();
            }
            _ => {
                assert!(self.daemon.end().success());
                self.daemon.restart();
            }
        }
    }

    fn create(&mut self, which: u32, name: &str) {
        let wish = json!({ "name": name, "timeout": 3000, "memory": 128, "disk": 64,
                           "allow_unenforced": !is_root() });
        let answer = self.daemon.ask("POST", "/v1/sandbox", &wish.to_string());
        let wanted = if self.expected.contains_key(&which) { 409 } else { 201 };
        assert_eq!(answer.status, wanted, "{}", answer.json());
        self.expected.entry(which).or_insert(Expected { running: true, lines: Vec::new() });
    }

    fn write(&mut self, step: u32, which: u32, name: &str) {
        let command = json!({ "command": format!("echo {step} >> /workspace/lines; sync") });
        let path = format!("/v1/sandbox/{name}/process/execute");
        let answer = self.daemon.ask("POST", &path, &command.to_string());
        let runs = self.expected.get(&which).map(|one| one.running);
        assert_eq!(answer.status, expected_status(runs), "{}", answer.json());
        if let Some(one) = self.expected.get_mut(&which).filter(|one| one.running) {
            one.lines.push(step);
        }
    }

    fn order(&mut self, word: &str, which: u32, name: &str, running: bool) {
        let answer = self.daemon.ask("POST", &format!("/v1/sandbox/{name}/{word}"), "");
        let there = self.expected.get_mut(&which);
        assert_eq!(answer.status, if there.is_some() { 200 } else { 404 }, "{}", answer.json());
        if let Some(one) = there {
            one.running = running;
        }
    }

    /// Everything is as it should be.
    fn compare(&self) {
        let listed = self.daemon.ask("GET", "/v1/sandboxes", "").json();
        let seen: BTreeMap<String, String> = listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                [&item["name"], &item["state"]].map(|word| word.as_str().unwrap().to_owned())
            })
            .map(|[name, state]| (name, state))
            .collect();
        let state = |one: &Expected| if one.running { "running" } else { "stopped" }.to_owned();
        let wanted: BTreeMap<String, String> =
            self.expected.iter().map(|(which, one)| (format!("box-{which}"), state(one))).collect();
        assert_eq!(seen, wanted);
    }

    fn read_all(&self) {
        for (which, one) in self.expected.iter().filter(|(_, one)| one.running) {
            let read = "cat /workspace/lines 2>/dev/null || true";
            let text = self.daemon.execute(&format!("box-{which}"), read);
            let lines: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
            assert_eq!(lines, one.lines, "box-{which}");
        }
    }
}

fn expected_status(runs: Option<bool>) -> u16 {
    match runs {
        Some(true) => 200,
        Some(false) => 409,
        None => 404,
    }
}

#[test]
fn five_hundred_random_steps_lose_and_double_nothing() {
    let seed = std::env::var("SOMA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ seed);
    let mut world = World { daemon: Daemon::start(), expected: BTreeMap::new() };
    for step in 0..STEPS {
        let (which, kind) = (chance.below(NAMES), chance.below(100));
        world.take(step, which, kind);
        world.compare();
        if step % 10 == 0 {
            world.read_all();
        }
    }
    world.read_all();
    for which in world.expected.keys() {
        super::delete(&world.daemon, &format!("box-{which}"));
    }
    world.daemon.close();
}
