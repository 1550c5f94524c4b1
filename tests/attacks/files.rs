//! Through names, links and kinds of files, by the API.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Arena;
use crate::support::is_root;

/// Every call that takes a path, with this one in it.
fn calls(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("read-file", json!({"path": path})),
        ("read-files", json!({"paths": [path]})),
        ("stat", json!({"path": path})),
        ("exists", json!({"path": path})),
        ("ls", json!({"path": path})),
        ("tree", json!({"path": path, "max_depth": 2})),
        ("glob", json!({"path": path, "pattern": "*"})),
        ("grep", json!({"path": path, "pattern": "canary"})),
        ("edit-file", json!({"path": path, "edits": [{"find": "canary", "replace": "x"}]})),
        ("set-permissions", json!({"path": path, "mode": "777"})),
        ("copy", json!({"src_path": path, "dst_path": "/workspace/stolen", "recursive": true})),
        ("move", json!({"src_path": path, "dst_path": "/workspace/stolen"})),
        ("mkdir", json!({"path": path})),
        ("delete", json!({"path": path, "recursive": true})),
    ]
}

/// A file of the host that nobody inside may see or change.
pub(super) struct Canary {
    folder: tempfile::TempDir,
}

impl Canary {
    pub(super) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("soma-canary").tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "canary").unwrap();
        Self { folder }
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(super) fn file(&self) -> String {
        self.folder.path().join("file").display().to_string()
    }

    #[track_caller]
    pub(super) fn assert_untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.file()).unwrap(), "canary");
        let names = std::fs::read_dir(self.folder.path()).unwrap().count();
        assert_eq!(names, 1, "something was put beside it");
    }
}

#[test]
fn f1_paths_lead_out_of_the_root() {
    let arena = Arena::new();
    let canary = Canary::new();
    let file = canary.file();
    let up = "../".repeat(30);
    let bare = file.trim_start_matches('/');
    let paths = [
        format!("{up}{bare}"),
        format!("/{up}{bare}"),
        format!("/workspace/{up}{bare}"),
        format!("/workspace/./.././{up}{bare}"),
        format!("//..//..//{bare}"),
        format!("/proc/self/root{file}"),
        format!("/proc/1/root{file}"),
        format!("/proc/self/cwd/{up}{bare}"),
        format!("/proc/1/cwd{file}"),
        format!("/proc/2/root{file}"),
        format!("{}{bare}", "%2e%2e/".repeat(30)),
        format!("{}{bare}", "%252e%252e%252f".repeat(10)),
        format!("{}{}", "..\\".repeat(30), bare.replace('/', "\\")),
        file.clone(),
    ];
    for path in &paths {
        for (call, body) in calls(path) {
            let answer = arena.ask("POST", &format!("filesystem/{call}"), &body);
            let text = String::from_utf8_lossy(&answer.body).replace(path.as_str(), "");
            let found = text.contains("canary") && answer.status == 200;
            assert!(!found, "{call} of {path}: {text}");
            assert!(answer.status < 500, "{call} of {path}: {} {text}", answer.status);
        }
        // Whatever was written went into the sandbox's own tree.
        let query = path.replace('%', "%25").replace('\\', "%5C");
        let written =
            arena.ask("POST", &format!("filesystem/write-file?path={query}"), &json!("x"));
        assert!(written.status < 500, "{path}: {}", written.status);
        canary.assert_untouched();
    }
    arena.close();
}

#[test]
fn f2_links_are_swapped_between_check_and_use() {
    let arena = Arena::new();
    let canary = Canary::new();
    let folder = canary.folder.path().display();
    let outside = format!("/proc/1/root{folder}");
    let swap = format!(
        "mkdir -p /workspace/real && echo inside > /workspace/real/file && cd /workspace && \
         ln -sfn /workspace/real link && ln -s loop loop && ln -s nowhere dangling && \
         (while :; do ln -sfn {folder} link; ln -sfn {outside} link; ln -sfn real link; done) \
         >/dev/null 2>&1 & echo started"
    );
    assert_eq!(arena.execute(&json!({"command": swap, "timeout": 30}))["stdout"], "started\n");
    let rounds = if std::env::var_os("SOMA_LONG").is_some() { 5000 } else { 60 };
    for round in 0..rounds {
        for name in ["link/file", "link/new", "link", "loop", "loop/file", "dangling", "link/a/b"] {
            let path = format!("/workspace/{name}");
            let query = format!("filesystem/write-file?path={path}");
            assert!(arena.ask("POST", &query, &json!("from the API")).status < 500);
            let (call, body) = &calls(&path)[round % calls(&path).len()];
            let answer = arena.ask("POST", &format!("filesystem/{call}"), body);
            assert!(answer.status < 500, "{call} of {path}: {}", answer.status);
        }
        canary.assert_untouched();
    }
    arena.close();
}

#[test]
fn f4_other_things_stand_where_a_file_is_expected() {
    let arena = Arena::new();
    let made = arena.execute(&json!({"command":
        "cd /workspace && mkfifo fifo && mkdir folder && \
         python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\" && echo made"}));
    assert_eq!(made["stdout"], "made\n");
    for name in ["fifo", "socket", "folder", "../dev/tty", "../dev/null", "../dev/ptmx"] {
        let path = format!("/workspace/{name}");
        for call in ["read-file", "edit-file", "grep"] {
            let (_, body) = calls(&path).into_iter().find(|(name, _)| *name == call).unwrap();
            let begun = Instant::now();
            let answer = arena.ask("POST", &format!("filesystem/{call}"), &body);
            assert!(begun.elapsed() < Duration::from_secs(10), "{call} of {name} hung");
            let fine = answer.status < 500 && (call == "grep" || answer.status >= 400);
            assert!(fine, "{call} of {name}: {}", answer.status);
        }
        let begun = Instant::now();
        let written = arena.ask("POST", &format!("filesystem/write-file?path={path}"), &json!("x"));
        assert!(begun.elapsed() < Duration::from_secs(10), "writing {name} hung");
        assert!((400..500).contains(&written.status), "{name} was written: {}", written.status);
    }
    arena.close();
}

#[test]
fn f5_files_without_an_end_are_read() {
    let arena = Arena::new();
    let made = arena.execute(&json!({"command": "truncate -s 15T /workspace/sparse && echo made"}));
    assert_eq!(made["stdout"], "made\n", "{made}");
    let before = memory_of_daemon(&arena);
    for path in ["/dev/zero", "/dev/urandom", "/proc/kmsg", "/workspace/sparse"] {
        if path != "/workspace/sparse" {
            let begun = Instant::now();
            let answer = arena.ask("POST", "filesystem/read-file", &json!({"path": path}));
            assert!(begun.elapsed() < Duration::from_secs(20), "{path} hung");
            assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        }
        let part = json!({"path": path, "offset": 0, "limit": 100});
        let answer = arena.ask("POST", "filesystem/read-file", &part);
        assert!(answer.status < 500 && answer.body.len() < 10_000, "{path}: {}", answer.status);
    }
    // The large one comes as a stream, of which somebody reads a part and goes.
    let body = r#"{"path": "/workspace/sparse"}"#;
    let head = format!(
        "POST /v1/sandbox/{}/filesystem/read-file HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        arena.attacker,
        arena.daemon.key(),
        body.len()
    );
    let mut stream = arena.daemon.connect();
    stream.write_all(head.as_bytes()).unwrap();
    let mut piece = vec![0; 1 << 20];
    for _ in 0..64 {
        stream.read_exact(&mut piece).unwrap();
    }
    drop(stream);
    let grown = memory_of_daemon(&arena).saturating_sub(before);
    assert!(grown < 64 << 10, "the daemon grew by {grown} KiB");
    arena.close();
}

#[test]
fn f7_a_tree_with_odd_names_and_kinds_is_exported() {
    let arena = Arena::new();
    let made = arena.python(
        "user",
        r"
os.makedirs('/workspace/tree/sub/deep'); os.chdir('/workspace/tree')
for name in (b'plain', b'with space', b'new\nline', b'\xff\xfe', 'ümläut'.encode(), b'-rf', b'a' * 255,
             b'tab\there', b'quote\x27s', b'\\back', b'*?[x]', b'sub/deep/file', b'.hidden', b'%2e%2e'):
    open(name, 'wb').write(b'bytes of ' + name)
os.symlink('sub', 'link'); os.symlink('nowhere', 'dangling'); os.symlink('.', 'loop')
os.link('plain', 'hard'); os.chmod('plain', 0o640)
os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('socket')
open('secret', 'w').write('x'); os.chmod('secret', 0)
",
    );
    assert_eq!(made["exit_code"], 0, "{made}");
    let target = tempfile::tempdir().unwrap();
    let source = format!("{}:/workspace/tree", arena.attacker);
    let copied = arena
        .daemon
        .home
        .soma(["cp", &source, target.path().join("tree").to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(
        said.contains("fifo") && said.contains("socket"),
        "what was left out is not said: {said}"
    );
    let tree = target.path().join("tree");
    assert_eq!(copied.status.code(), Some(0), "{said}");
    for name in [&b"plain"[..], b"new\nline", b"-rf", b"\xff\xfe", &[b'a'; 255], b"sub/deep/file"] {
        let path = tree.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}: {said}"));
        assert_eq!(text, [b"bytes of ", name].concat(), "{path:?}");
    }
    assert!(std::fs::symlink_metadata(tree.join("loop")).unwrap().is_symlink());
    arena.close();
}

#[test]
fn f8_names_that_no_file_should_have() {
    let arena = Arena::new();
    let long = "n".repeat(256);
    let deep = "d/".repeat(3000);
    for (name, fits) in [
        ("", false),
        (".", false),
        ("..", false),
        ("a/", false),
        (long.as_str(), false),
        (deep.as_str(), false),
        ("emoji \u{1f600}", true),
        ("e\u{301}", true),
        ("\u{e9}", true),
        ("\u{202e}evil", true),
        ("C:\\windows", true),
        (" leading", true),
        ("trailing ", true),
        ("a\nb", true),
        ("~", true),
        ("$HOME", true),
        ("`id`", true),
        ("-", true),
    ] {
        let mut query = String::from("filesystem/write-file?path=");
        for byte in format!("/workspace/{name}").bytes() {
            let _ = write!(query, "%{byte:02x}");
        }
        let written = arena.ask("POST", &query, &json!(name));
        let refused = (400..500).contains(&written.status);
        assert_eq!(
            !refused,
            fits,
            "{name:?}: {} {:?}",
            written.status,
            String::from_utf8_lossy(&written.body)
        );
        if fits {
            // The very name, and not one that looks like it.
            let path = format!("/workspace/{name}");
            let seen = arena.ask("POST", "filesystem/read-file", &json!({"path": path})).json();
            assert_eq!(seen, json!(name), "{name:?}");
        }
    }
    let listed = arena.ask("POST", "filesystem/ls", &json!({"path": "/workspace"})).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 12, "twins became one: {listed}");
    let zero = arena.ask("POST", "filesystem/stat", &json!({"path": "/workspace/a\0b"}));
    assert!((400..500).contains(&zero.status), "{}", zero.status);
    arena.close();
}

#[test]
fn f10_a_folder_of_very_many_files_and_a_deep_one() {
    let arena = Arena::new();
    // The second is nearly as many as a listing may have, the first is too many.
    let many = match (std::env::var_os("SOMA_LONG").is_some(), is_root()) {
        (true, _) => 600_000,
        (false, true) => 190_000,
        // A second time, with nothing that depends on the number but the time.
        (false, false) => 60_000,
    };
    let made = format!(
        "mkdir /workspace/many && cd /workspace/many && seq {many} | xargs touch && cd .. && \
         python3 -c \"
import os
for _ in range(1000): os.mkdir('deep'); os.chdir('deep')\" && echo made"
    );
    let done = arena.execute(&json!({"timeout": 300, "command": made}));
    assert_eq!(done["stdout"], "made\n", "{done}");
    let before = memory_of_daemon(&arena);
    for (call, path) in
        [("ls", "/workspace/many"), ("tree", "/workspace/deep"), ("ls", "/workspace")]
    {
        let body = json!({"path": path, "recursive": true});
        let begun = Instant::now();
        let answer = arena.ask("POST", &format!("filesystem/{call}"), &body);
        assert!(begun.elapsed() < Duration::from_secs(50), "{call} of {path} hung");
        assert!(answer.status < 500, "{call} of {path}: {}", answer.status);
        if path.ends_with("many") && many < 200_000 {
            assert_eq!(answer.json()["items"].as_array().map(Vec::len), Some(many));
        }
    }
    let grown = memory_of_daemon(&arena).saturating_sub(before);
    assert!(grown < 256 << 10, "the daemon grew by {grown} KiB");
    let gone = arena.ask(
        "POST",
        "filesystem/delete",
        &json!({"path": "/workspace/deep", "recursive": true}),
    );
    assert!(gone.status < 300, "{}", gone.status);
    arena.close();
}

#[tokio::test]
async fn f11_a_storm_of_events_in_a_watched_folder() {
    use guest_proto::client::{Change, WatchOptions};
    let home = crate::support::Home::new();
    let crate::support::Kept { provider, id, guest } = home.sandbox().await;
    guest.make_dir("/workspace/storm", None).await.unwrap();
    let mut watching =
        guest.watch("/workspace/storm", None, WatchOptions::default()).await.unwrap();
    let storm =
        "cd /workspace/storm && for i in $(seq 60000); do : > f$((i % 50)); done; touch last";
    // Nobody reads for a while, so the queue is full.
    crate::conformance::run(&guest, "sh", &["-c", storm]).await;
    let (mut seen, mut lost) = (0_u64, false);
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), watching.next()).await;
        match next.expect("the last event never came, nor a word of its loss").unwrap() {
            Change::Happened { name, .. } if name == "last" => break,
            Change::Happened { .. } => seen += 1,
            Change::Lost(_) => {
                lost = true;
                break;
            }
        }
    }
    assert!(lost || seen >= 60_000, "{seen} events of 60000, and no word of a loss");
    guest.health().await.unwrap();
    provider.destroy(&id).await.unwrap();
    drop((guest, watching, provider));
    home.assert_nothing_left();
}

#[test]
fn f14_ranges_that_make_no_sense() {
    let arena = Arena::new();
    let written =
        arena.ask("POST", "filesystem/write-file?path=/workspace/file", &json!("0123456789"));
    assert!(written.status < 300);
    let many: Vec<String> = (0..10_000).map(|n| format!("{}-{}", n % 5, n % 5 + 3)).collect();
    let many = many.join(",");
    for range in [
        "bytes=-0",
        "bytes=100-200",
        "bytes=5-2",
        "bytes=--1",
        "bytes=0-18446744073709551616",
        "bytes=",
        "lines=1-2",
        "bytes=-99999999999999999999",
        many.get(..7000).unwrap(),
    ] {
        let lines = format!(
            "Authorization: Bearer {}\r\nE2b-Sandbox-Id: {}\r\nE2b-Sandbox-Port: 49983\r\nRange: {range}\r\n",
            arena.daemon.key(),
            arena.attacker
        );
        let answer = arena.daemon.send("GET", "/files?path=/workspace/file", &lines, b"");
        assert!(matches!(answer.status, 200 | 206 | 400 | 416), "{range}: {}", answer.status);
        assert!(answer.body.len() < 1000, "{range}: {} bytes", answer.body.len());
    }
    arena.close();
}

/// What the daemon has in memory, in KiB.
pub(super) fn memory_of_daemon(arena: &Arena) -> u64 {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    arena.daemon.home.daemons().into_iter().map(of).sum()
}
