//! Watches folders through the real guest, by asking and by a stream.

#![expect(clippy::unwrap_used, reason = "where a helper fails, the test has failed")]

mod plain;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use plain::{Guest, wait_until};
use serde_json::{Value, json};

/// A guest with a folder to watch.
fn start() -> Guest {
    let guest = Guest::start();
    fs::create_dir(guest.path("")).unwrap();
    guest
}

/// Begins to watch `name`, and gives the id to ask with.
fn watch(guest: &Guest, name: &str, mut request: Value) -> String {
    request["path"] = guest.path(name).to_str().into();
    let answer = guest.call("CreateWatcher", &request);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()["watcherId"].as_str().unwrap().to_owned()
}

fn asked(guest: &Guest, id: &str) -> Vec<Value> {
    let answer = guest.call("GetWatcherEvents", &json!({ "watcherId": id })).json();
    answer["events"].as_array().cloned().unwrap_or_default()
}

/// Events in short: `CREATE name`.
fn short(events: &[Value]) -> Vec<String> {
    let kind = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or("EVENT_TYPE_UNSPECIFIED");
        kind.strip_prefix("EVENT_TYPE_").unwrap().to_owned()
    };
    events
        .iter()
        .map(|event| format!("{} {}", kind(event), event["name"].as_str().unwrap_or_default()))
        .collect()
}

fn events(guest: &Guest, id: &str) -> Vec<String> {
    short(&asked(guest, id))
}

#[test]
fn a_new_file_is_made_changed_and_written_and_told_at_once() {
    let guest = start();
    let id = watch(&guest, "", json!({}));
    assert_eq!(guest.upload("new", b"content").status, 200);
    assert_eq!(events(&guest, &id), ["CREATE new", "CHMOD new", "WRITE new"]);
    assert!(events(&guest, &id).is_empty());

    fs::rename(guest.path("new"), guest.path("other")).unwrap();
    fs::remove_file(guest.path("other")).unwrap();
    assert_eq!(events(&guest, &id), ["RENAME new", "CREATE other", "REMOVE other"]);

    // Not recursive: what is in a folder is nobody's business.
    fs::create_dir(guest.path("below")).unwrap();
    fs::write(guest.path("below/file"), "x").unwrap();
    assert_eq!(events(&guest, &id), ["CREATE below"]);
}

#[test]
fn a_file_that_is_replaced_is_told_under_its_name() {
    let guest = start();
    guest.upload("file", b"old");
    let id = watch(&guest, "", json!({}));
    guest.upload("file", b"new");
    let told = events(&guest, &id);
    assert_eq!(told.last().unwrap(), "CREATE file", "{told:?}");
}

#[test]
fn what_is_there_is_told_with_the_event_where_it_was_asked_for() {
    let guest = start();
    let id = watch(&guest, "", json!({ "includeEntry": true }));
    guest.upload("new", b"content");
    let told = asked(&guest, &id);
    for event in &told {
        assert_eq!(event["entry"]["path"], guest.path("new").to_str().unwrap(), "{event}");
        assert_eq!(event["entry"]["size"], "7");
    }
    assert_eq!(told.len(), 3);
    fs::rename(guest.path("new"), guest.path("x")).unwrap();
    fs::remove_file(guest.path("x")).unwrap();
    for event in asked(&guest, &id) {
        assert_eq!(event["entry"], Value::Null, "{event}");
    }
}

#[test]
fn folders_that_are_made_later_are_watched_with_what_is_in_them() {
    let guest = start();
    fs::create_dir_all(guest.path("there/deep")).unwrap();
    let id = watch(&guest, "", json!({ "recursive": true }));
    fs::write(guest.path("there/deep/file"), "x").unwrap();
    assert_eq!(events(&guest, &id), ["CREATE there/deep/file", "WRITE there/deep/file"]);
    for round in 0..20 {
        let name = format!("nested{round}");
        fs::create_dir_all(guest.path(&name).join("a/b")).unwrap();
        fs::write(guest.path(&name).join("new.txt"), "x").unwrap();
        fs::write(guest.path(&name).join("a/b/empty"), "").unwrap();
        let told = events(&guest, &id);
        for wanted in ["", "/a", "/a/b", "/new.txt", "/a/b/empty"] {
            let wanted = format!("CREATE {name}{wanted}");
            let count = told.iter().filter(|event| **event == wanted).count();
            assert_eq!(count, 1, "{wanted} in {told:?}");
        }
        assert!(told.contains(&format!("WRITE {name}/new.txt")), "{told:?}");
        fs::remove_file(guest.path(&name).join("a/b/empty")).unwrap();
        assert_eq!(events(&guest, &id), [format!("REMOVE {name}/a/b/empty")]);
    }
}

#[test]
fn folders_that_are_removed_or_moved_are_told_under_their_right_names() {
    let guest = start();
    fs::create_dir_all(guest.path("watched/one/deep")).unwrap();
    fs::create_dir_all(guest.path("outside")).unwrap();
    let id = watch(&guest, "watched", json!({ "recursive": true }));

    fs::rename(guest.path("watched/one"), guest.path("watched/two")).unwrap();
    assert_eq!(events(&guest, &id), ["RENAME one", "CREATE two"]);
    fs::write(guest.path("watched/two/deep/file"), "").unwrap();
    assert_eq!(events(&guest, &id), ["CREATE two/deep/file"]);

    // Out of the tree: told once, and then no more.
    fs::rename(guest.path("watched/two"), guest.path("outside/two")).unwrap();
    assert_eq!(events(&guest, &id), ["RENAME two"]);
    for round in 0..3 {
        fs::write(guest.path("outside/two/deep").join(round.to_string()), "x").unwrap();
        assert!(events(&guest, &id).is_empty());
    }
    // Back again, with what is in it.
    fs::rename(guest.path("outside/two"), guest.path("watched/three")).unwrap();
    let told = events(&guest, &id);
    assert!(told.contains(&"CREATE three/deep/file".to_owned()), "{told:?}");
    fs::write(guest.path("watched/three/deep/file"), "x").unwrap();
    assert_eq!(events(&guest, &id), ["WRITE three/deep/file"]);

    fs::remove_dir_all(guest.path("watched/three")).unwrap();
    let told = events(&guest, &id);
    assert_eq!(told.last().unwrap(), "REMOVE three", "{told:?}");
    assert_eq!(told.iter().filter(|event| *event == "REMOVE three/deep").count(), 1, "{told:?}");
    // A new folder of the old name is watched as well.
    fs::create_dir(guest.path("watched/three")).unwrap();
    fs::write(guest.path("watched/three/file"), "").unwrap();
    assert_eq!(events(&guest, &id), ["CREATE three", "CREATE three/file"]);
}

#[test]
fn links_below_the_folder_are_not_followed_and_a_link_as_the_folder_is() {
    let guest = start();
    fs::create_dir_all(guest.path("real/below")).unwrap();
    fs::create_dir_all(guest.path("elsewhere")).unwrap();
    symlink(guest.path("real"), guest.path("link")).unwrap();
    symlink(guest.path("elsewhere"), guest.path("real/away")).unwrap();
    let id = watch(&guest, "link", json!({ "recursive": true }));
    fs::write(guest.path("elsewhere/file"), "x").unwrap();
    fs::write(guest.path("real/below/file"), "").unwrap();
    symlink(guest.path("elsewhere"), guest.path("real/more")).unwrap();
    assert_eq!(events(&guest, &id), ["CREATE below/file", "CREATE more"]);
}

#[test]
fn changes_of_the_folder_itself_have_the_name_of_a_dot() {
    let guest = start();
    fs::create_dir(guest.path("folder")).unwrap();
    let id = watch(&guest, "folder", json!({ "recursive": true }));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(guest.path("folder"), mode).unwrap();
    fs::remove_dir(guest.path("folder")).unwrap();
    assert_eq!(events(&guest, &id), ["CHMOD .", "REMOVE ."]);
    assert!(events(&guest, &id).is_empty());
}

/// Whether the guest still watches anything.
fn holds_inotify(guest: &Guest) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", guest.child.id())).unwrap();
    open.flatten().any(|one| {
        fs::read_link(one.path()).is_ok_and(|link| link == Path::new("anon_inode:inotify"))
    })
}

#[test]
fn what_cannot_be_watched_and_watchers_that_are_not_there_are_told() {
    let guest = start();
    fs::write(guest.path("file"), "").unwrap();
    let refusal = |method: &str, request: Value| {
        let answer = guest.call(method, &request);
        (answer.status, answer.json()["code"].as_str().unwrap().to_owned())
    };
    let path = |name: &str| json!({ "path": guest.path(name).to_str() });
    assert_eq!(refusal("CreateWatcher", path("none")), (404, "not_found".to_owned()));
    assert_eq!(refusal("CreateWatcher", path("file")), (400, "invalid_argument".to_owned()));
    for method in ["GetWatcherEvents", "RemoveWatcher"] {
        let unknown = json!({ "watcherId": "w0" });
        assert_eq!(refusal(method, unknown), (404, "not_found".to_owned()));
    }
    let id = watch(&guest, "", json!({}));
    assert!(holds_inotify(&guest));
    assert_eq!(guest.call("RemoveWatcher", &json!({ "watcherId": id })).status, 200);
    let gone = json!({ "watcherId": id });
    assert_eq!(refusal("GetWatcherEvents", gone), (404, "not_found".to_owned()));
    wait_until(|| !holds_inotify(&guest));

    let mut stream = Stream::open(&guest, &path("none"), &[]);
    assert_eq!(stream.next()["error"]["code"], "not_found");
}

#[test]
fn there_are_so_many_watchers_and_no_more_and_those_that_ended_make_room() {
    let guest = start();
    let ids: Vec<_> = (0..64).map(|_| watch(&guest, "", json!({}))).collect();
    let path = json!({ "path": guest.path("").to_str() });
    let refused = guest.call("CreateWatcher", &path);
    assert_eq!(refused.json()["code"], "failed_precondition");
    guest.call("RemoveWatcher", &json!({ "watcherId": ids[0] }));
    let stream = Stream::open(&guest, &path, &[]);
    assert_eq!(guest.call("CreateWatcher", &path).status, 400);
    drop(stream);
    wait_until(|| guest.call("CreateWatcher", &path).status == 200);
}

#[test]
fn a_loss_of_the_kernel_is_said_and_the_tree_is_watched_afterwards() {
    let guest = start();
    fs::create_dir(guest.path("busy")).unwrap();
    let id = watch(&guest, "", json!({ "recursive": true }));
    // Stopped, the guest cannot empty the kernel's queue.
    let pid = rustix::process::Pid::from_child(&guest.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    for number in 0..limit / 2 + 10 {
        let path = guest.path("busy").join(number.to_string());
        fs::write(&path, "x").unwrap();
    }
    fs::create_dir_all(guest.path("late/deep")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let told = asked(&guest, &id);
    let lost: Vec<_> = told.iter().filter(|event| event["overflow"].is_object()).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0], &json!({ "overflow": {} }));
    assert!(told.len() >= limit, "{}", told.len());
    // Made while events were lost, and watched all the same.
    fs::write(guest.path("late/deep/file"), "").unwrap();
    assert_eq!(events(&guest, &id), ["CREATE late/deep/file"]);
}

/// A stream of events as they come.
struct Stream {
    reader: BufReader<UnixStream>,
    /// Bytes left of the chunk.
    left: usize,
}

impl Stream {
    fn open(guest: &Guest, request: &Value, headers: &[(&str, &str)]) -> Self {
        let message = request.to_string();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = [&[0], &length[..], message.as_bytes()].concat();
        let mut lines =
            vec![("content-type", "application/connect+json"), ("connect-protocol-version", "1")];
        lines.extend(headers);
        let mut stream = guest.connect();
        let address = "/filesystem.Filesystem/WatchDir";
        stream.write_all(&plain::head("POST", address, &lines, body.len())).unwrap();
        stream.write_all(&body).unwrap();
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let mut line = String::new();
        let mut head = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            head.push_str(&line.to_lowercase());
        }
        assert!(head.contains("content-type: application/connect+json\r\n"), "{head}");
        Self { reader, left: 0 }
    }

    /// The next message.
    fn next(&mut self) -> Value {
        let head = self.read(5);
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        serde_json::from_slice(&self.read(length as usize)).unwrap()
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let mut line = String::new();
            while self.left == 0 {
                line.clear();
                self.reader.read_line(&mut line).unwrap();
                self.left = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            }
            let most = self.left.min(length - bytes.len());
            let taken = (&mut self.reader).take(most as u64).read_to_end(&mut bytes).unwrap();
            assert_eq!(taken, most, "the stream broke off");
            self.left -= taken;
        }
        bytes
    }

    fn next_event(&mut self) -> String {
        let message = self.next();
        short(&[message["filesystem"].clone()]).remove(0)
    }
}

#[test]
fn a_stream_begins_with_its_start_and_tells_what_happens() {
    let guest = start();
    let request = json!({ "path": guest.path("").to_str(), "recursive": true });
    let mut stream = Stream::open(&guest, &request, &[]);
    assert_eq!(stream.next(), json!({ "start": {} }));
    guest.upload("new", b"x");
    assert_eq!(stream.next_event(), "CREATE new");
    assert_eq!(stream.next_event(), "CHMOD new");
    assert_eq!(stream.next_event(), "WRITE new");
    fs::create_dir(guest.path("nested")).unwrap();
    assert_eq!(stream.next_event(), "CREATE nested");
    fs::write(guest.path("nested/file"), "").unwrap();
    assert_eq!(stream.next_event(), "CREATE nested/file");
}

#[test]
fn a_quiet_stream_gives_signs_of_life_and_ends_with_its_time() {
    let guest = start();
    let request = json!({ "path": guest.path("").to_str() });
    let headers = [("keepalive-ping-interval", "1"), ("connect-timeout-ms", "2500")];
    let begin = Instant::now();
    let mut stream = Stream::open(&guest, &request, &headers);
    assert_eq!(stream.next(), json!({ "start": {} }));
    assert_eq!(stream.next(), json!({ "keepalive": {} }));
    assert_eq!(stream.next(), json!({ "keepalive": {} }));
    assert_eq!(stream.next()["error"]["code"], "deadline_exceeded");
    assert!(begin.elapsed() >= Duration::from_millis(2400));
}

#[test]
fn ten_thousand_files_in_a_second_are_all_told() {
    let guest = start();
    let request = json!({ "path": guest.path("").to_str(), "recursive": true });
    let mut stream = Stream::open(&guest, &request, &[]);
    assert_eq!(stream.next(), json!({ "start": {} }));
    let polled = watch(&guest, "", json!({ "recursive": true }));
    let folder = guest.path("");
    let maker = std::thread::spawn(move || {
        let begin = Instant::now();
        for number in 0..10_000 {
            fs::File::create(Path::new(&folder).join(number.to_string())).unwrap();
            // Spread over a second: a burst is another test.
            if number % 100 == 99 {
                let due = Duration::from_millis(number / 10);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
        }
    });
    for number in 0..10_000 {
        assert_eq!(stream.next_event(), format!("CREATE {number}"));
    }
    maker.join().unwrap();
    let told = events(&guest, &polled);
    assert_eq!(told.len(), 10_000);
}
