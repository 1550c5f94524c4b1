//! A daemon that others are about to kill, and what is asked of it before and after.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::orphans::Traces;
use super::witness::Witness;
use crate::daemon::{Answer, Daemon, parse};
use crate::support::{Home, eventually};

/// How long any answer may take, whatever failed.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// A wish as it goes over the wire.
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn new(method: &'static str, path: String, body: impl Into<Vec<u8>>) -> Self {
        Self { method, path, body: body.into() }
    }
}

pub(super) struct Scene {
    pub(super) daemon: Daemon,
    witness: Witness,
    traces: Traces,
    /// How many things were made here, each with a name of its own.
    made: u64,
}

impl Scene {
    pub(super) fn set() -> Self {
        let daemon = Daemon::start();
        let witness = Witness::call(&daemon);
        let traces = Traces::of(&daemon.home, &witness.id);
        Self { daemon, witness, traces, made: 0 }
    }

    /// A word that nothing else here has.
    pub(super) fn word(&mut self) -> String {
        self.made += 1;
        format!("word{}", self.made)
    }

    /// Asks a daemon that may die over it, and then gives no answer.
    #[track_caller]
    pub(super) fn attempt(&self, request: &Request) -> Option<Answer> {
        let begun = Instant::now();
        let bytes = self.exchange(request).unwrap_or_default();
        let took = begun.elapsed();
        assert!(took < LONGEST_ANSWER, "{} {}: {took:?}", request.method, request.path);
        let answer = parse(&bytes);
        let length = answer.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        // Half an answer is none.
        let is_whole =
            answer.status != 0 && length.is_none_or(|length| length == answer.body.len());
        is_whole.then_some(answer)
    }

    fn exchange(&self, Request { method, path, body }: &Request) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.daemon.address)?;
        stream.set_read_timeout(Some(LONGEST_ANSWER))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            self.daemon.key(),
            body.len()
        );
        // One that refuses early, or dies, may not read all.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Ok(bytes)
    }

    /// Starts the daemon again that died.
    pub(super) fn restart_daemon(&mut self) {
        self.daemon.kill();
        self.daemon.restart();
    }

    /// Checks that whoever has nothing to do with it did not notice.
    #[track_caller]
    pub(super) fn witness_testifies(&mut self) {
        self.witness.testifies(&self.daemon);
    }

    /// Checks that no cgroup is left of what nobody has any more.
    #[track_caller]
    pub(super) fn assert_no_group(&self) {
        self.traces.assert_no_group();
    }

    /// Puts a process into cgroups of the home that are nobody's.
    pub(super) fn forge_orphan(&self, process: u32) {
        self.traces.forge(process);
    }

    pub(super) fn witness(&self) -> &str {
        &self.witness.id
    }

    /// The process that is the daemon without privileges.
    pub(super) fn daemon_process(&self) -> u32 {
        let is_inner = |process: &u32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("--inside")
        };
        self.home().daemons().into_iter().find(is_inner).unwrap()
    }

    /// The process that is the engine. Whoever has just killed one meets the next.
    #[track_caller]
    pub(super) fn engine_process(&self) -> u32 {
        self.daemon.ask("GET", "/v1/templates", "");
        *self.home().engines().first().unwrap()
    }

    /// The process that supervises a sandbox.
    pub(super) fn supervisor_process(&self, id: &str) -> u32 {
        let manifest = self.home().manifest(&id.parse().unwrap());
        u32::try_from(manifest["supervisor"]["pid"].as_u64().unwrap()).unwrap()
    }

    pub(super) fn home(&self) -> &Home {
        &self.daemon.home
    }

    /// A sandbox that can be found by its word, inside and outside.
    #[track_caller]
    pub(super) fn make(&self, word: &str) -> String {
        self.daemon.create(&wish(word, None).to_string())
    }

    /// The sandboxes with this word, as they are listed.
    #[track_caller]
    pub(super) fn found(&self, word: &str) -> Vec<Value> {
        let path = format!("/v1/sandboxes?label=word%3D{word}");
        let answer = self.daemon.ask("GET", &path, "");
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer.json()["items"].as_array().unwrap().clone()
    }

    /// A sandbox as it is told, or that it is not there.
    #[track_caller]
    pub(super) fn seen(&self, id: &str) -> Option<Value> {
        let answer = self.daemon.ask("GET", &format!("/v1/sandbox/{id}"), "");
        assert!([200, 404].contains(&answer.status), "{}", answer.json());
        (answer.status == 200).then(|| answer.json())
    }

    /// Checks that a sandbox is whole: it runs, has what it was made with, and commands work.
    #[track_caller]
    pub(super) fn assert_usable(&self, id: &str, word: &str) {
        let seen = self.seen(id).unwrap_or_else(|| panic!("sandbox {id} is gone"));
        assert_eq!(seen["state"], "running", "{seen}");
        assert_eq!(seen["labels"]["word"], word, "{seen}");
        assert_eq!(self.daemon.execute(id, "echo $PROOF"), format!("{word}\n"), "{seen}");
    }

    /// Checks that a sandbox is whole, or that it honestly says why it is not.
    #[track_caller]
    pub(super) fn assert_usable_or_explained(&self, seen: &Value, word: &str) {
        let id = seen["id"].as_str().unwrap();
        match seen["state"].as_str().unwrap() {
            "running" => self.assert_usable(id, word),
            "stopped" | "error" => {
                assert!(seen["reason"].as_str().is_some_and(|why| !why.is_empty()), "{seen}");
            }
            state => panic!("{state}: {seen}"),
        }
    }

    /// Checks the same of a sandbox that may be ending in this moment.
    #[track_caller]
    pub(super) fn assert_usable_or_ended(&self, id: &str, word: &str) {
        let path = format!("/v1/sandbox/{id}/process/execute");
        eventually("it neither works nor ends", || {
            let works = self.daemon.ask("POST", &path, r#"{"command": "true"}"#).status == 200;
            works || self.seen(id).is_some_and(|seen| seen["state"] != "running")
        });
        self.assert_usable_or_explained(&self.seen(id).unwrap(), word);
    }

    /// Deletes a sandbox, which has to work.
    #[track_caller]
    pub(super) fn delete(&self, id: &str) {
        let answer = self.daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
        assert_eq!(answer.status, 204, "{}", answer.json());
    }

    /// Ends everything, of which nothing is left then.
    #[track_caller]
    pub(super) fn close(self) {
        self.delete(&self.witness.id);
        let left = self.daemon.ask("GET", "/v1/sandboxes", "").json();
        assert_eq!(left["items"], json!([]), "sandboxes are left");
        self.daemon.close();
        self.traces.assert_none();
    }
}

/// The wish for a sandbox with this word. With a size of its own none is prepared for it.
pub(super) fn wish(word: &str, disk: Option<u64>) -> Value {
    // The usual time would be over before a long test is.
    let mut wish =
        json!({ "labels": { "word": word }, "env_vars": { "PROOF": word }, "timeout": 86400 });
    if let Some(disk) = disk {
        wish["disk"] = disk.into();
    }
    wish
}
