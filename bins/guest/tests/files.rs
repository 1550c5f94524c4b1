//! Drives the real guest over its socket: files, uploads, downloads and the small routes.

mod plain;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Stdio;
use std::time::{Duration, Instant};

use plain::{Answer, FORM, GUEST, Guest, OCTETS, form, head, wait_until};
use serde_json::{Value, json};
use sys_linux::command::command;

#[test]
fn routes_that_are_not_there_are_told_in_json() {
    let guest = Guest::start();
    let health = guest.send("GET", "/health", &[], b"");
    assert_eq!((health.status, health.body.len()), (204, 0));
    assert_eq!(guest.send("GET", "/nothing", &[], b"").error(404), "there is no route '/nothing'");
    let wrong = guest.send("DELETE", "/files", &[], b"");
    wrong.error(405);
    assert_eq!(wrong.header("allow"), Some("get, head, post"));
}

#[test]
fn what_the_engine_tells_replaces_the_variables_and_nothing_else() {
    let guest = Guest::start();
    let tell = |body: Value| guest.send("POST", "/init", &[], body.to_string().as_bytes());
    let told = tell(json!({ "envVars": { "A": "1", "B": "2" }, "somethingNew": [1] }));
    assert_eq!((told.status, told.header("x-envd-version")), (204, Some("0.6.13")));
    assert_eq!(guest.send("GET", "/envs", &[], b"").json(), json!({ "A": "1", "B": "2" }));
    tell(json!({ "envVars": { "C": "3" } }));
    tell(json!({ "defaultWorkdir": "/tmp" }));
    assert_eq!(guest.send("POST", "/init", &[], b"").status, 204);
    assert_eq!(guest.send("GET", "/envs", &[], b"").json(), json!({ "C": "3" }));
    guest.send("POST", "/init", &[], b"{").error(400);
    guest.send("POST", "/init", &[], &vec![b' '; (1 << 20) + 1]).error(413);
    assert_eq!(guest.send("GET", "/envs", &[], b"").json(), json!({ "C": "3" }));
}

#[test]
fn metrics_have_all_figures_and_the_limits_that_were_told() {
    let guest = Guest::start();
    let limits = json!({ "limits": { "memoryBytes": 64_u64 << 40, "cpuMillis": 2500 } });
    guest.send("POST", "/init", &[], limits.to_string().as_bytes());
    let metrics = guest.send("GET", "/metrics", &[], b"").json();
    assert_eq!((&metrics["cpu_count"], &metrics["mem_total_mib"]), (&json!(3), &json!(64 << 20)));
    for name in ["ts", "mem_total", "mem_used", "mem_used_mib", "disk_used", "disk_total"] {
        assert!(metrics[name].as_u64().unwrap() > 0, "{name}: {metrics}");
    }
    assert!(metrics["cpu_used_pct"].is_number() && metrics["mem_cache"].is_number());
}

#[test]
fn a_file_comes_back_as_it_was_sent() {
    let guest = Guest::start();
    let content: Vec<u8> = (0..=255).cycle().take(5 << 20).collect();
    let sent = guest.upload("a/b/data.bin", &content);
    let path = guest.path("a/b/data.bin");
    let expected = json!([{ "path": path.to_str(), "name": "data.bin", "type": "file" }]);
    assert_eq!((sent.status, sent.json()), (200, expected));
    let got = guest.send("GET", &guest.address("a/b/data.bin"), &[], b"");
    assert_eq!(got.header("content-length"), Some("5242880"));
    assert_eq!(got.header("content-disposition"), Some("inline; filename=\"data.bin\""));
    assert_eq!(got.header("vary"), Some("accept-encoding"));
    assert!(got.body == content);
    guest.upload("empty", b"");
    let empty = guest.send("GET", &guest.address("empty"), &[], b"");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

#[test]
fn chunked_uploads_and_files_of_proc_are_whole() {
    let guest = Guest::start();
    let mut stream = guest.connect();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\
         content-type: application/octet-stream\r\ncontent-encoding: identity\r\n\r\n",
        guest.address("chunked")
    );
    stream.write_all(head.as_bytes()).unwrap();
    for letter in "hello".chars() {
        stream.write_all(format!("1\r\n{letter}\r\n").as_bytes()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(Answer::read(&mut stream).status, 200);
    assert_eq!(fs::read(guest.path("chunked")).unwrap(), b"hello");
    let version = guest.send("GET", "/files?path=/proc/version", &[], b"");
    assert_eq!(version.body, fs::read("/proc/version").unwrap());
}

#[test]
fn a_form_brings_many_files_in_its_order() {
    let guest = Guest::start();
    let (first, second) = (guest.path("é 1.txt"), guest.path("sub/😀"));
    let body = form(&[
        ("note", None, b"ignored"),
        ("file", first.to_str(), b"one\r\n--BX"),
        ("file", second.to_str(), b""),
    ]);
    let answer = guest.send("POST", "/files", &[FORM], &body);
    let expected = json!([
        { "path": first.to_str(), "name": "é 1.txt", "type": "file" },
        { "path": second.to_str(), "name": "😀", "type": "file" },
    ]);
    assert_eq!((answer.status, answer.json()), (200, expected));
    assert_eq!(fs::read(first).unwrap(), b"one\r\n--BX");
    assert_eq!(fs::read(second).unwrap(), b"");
    // With a path in the address the name of the part does not count.
    let body = form(&[("file", Some("/nowhere/x"), b"content")]);
    assert_eq!(guest.send("POST", &guest.address("named"), &[FORM], &body).status, 200);
    assert_eq!(fs::read(guest.path("named")).unwrap(), b"content");
}

#[test]
fn forms_that_cannot_be_are_refused_and_leave_nothing_half_done() {
    let guest = Guest::start();
    fs::create_dir(guest.path("")).unwrap();
    let twice = form(&[("file", Some("a"), b"1"), ("file", Some("b"), b"2")]);
    let message = guest.send("POST", &guest.address("same"), &[FORM], &twice).error(400);
    assert!(message.contains("same path"), "{message}");
    assert_eq!(fs::read(guest.path("same")).unwrap(), b"1");

    let whole = form(&[("file", Some("x"), &vec![7; 300_000])]);
    let cut = &whole[..whole.len() - 6];
    guest.send("POST", &guest.address("cut"), &[FORM], cut).error(400);
    guest.send("POST", "/files", &[FORM], &form(&[("other", None, b"")])).error(400);
    guest.send("POST", "/files", &[FORM], &form(&[("file", None, b"")])).error(400);
    let no_boundary = ("content-type", "multipart/form-data");
    guest.send("POST", &guest.address("x"), &[no_boundary], &whole).error(400);
    let names: Vec<_> =
        fs::read_dir(guest.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["same"]);
}

#[test]
fn parts_and_conditions_are_honoured() {
    let guest = Guest::start();
    guest.upload("file", b"0123456789");
    let get = |headers: &[(&str, &str)]| guest.send("GET", &guest.address("file"), headers, b"");
    let part = get(&[("range", "bytes=2-4")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"234"[..]));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(part.header("content-length"), Some("3"));
    let many = (0..10_000).map(|_| "0-9").collect::<Vec<_>>().join(",");
    for range in ["bytes=10-", "bytes=-0", "bytes=0-1,2-3", &format!("bytes={many}")] {
        let refused = get(&[("range", range)]);
        refused.error(416);
        assert_eq!(refused.header("content-range"), Some("bytes */10"));
    }
    let tag = get(&[]).header("etag").unwrap().to_owned();
    let modified = get(&[]).header("last-modified").unwrap().to_owned();
    let same = get(&[("if-none-match", &tag)]);
    assert_eq!((same.status, same.body.len()), (304, 0));
    let modified = modified.replace("gmt", "GMT");
    let date = capitalised(&modified);
    assert_eq!(get(&[("if-modified-since", &date)]).status, 304);

    let head = guest.send("HEAD", &guest.address("file"), &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("10"));
    assert_eq!(head.header("accept-ranges"), Some("bytes"));
}

/// Gives the day and the month of a date their capital letters back.
fn capitalised(date: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
    };
    date.split(' ').map(capital).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_cannot_be_read_or_written_says_why_at_once() {
    let guest = Guest::start();
    fs::create_dir(guest.path("")).unwrap();
    let pipe = guest.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink("loop", guest.path("loop")).unwrap();
    let get = |address: &str| guest.send("GET", address, &[], b"");
    let started = Instant::now();

    let missing = get(&guest.address("none")).error(404);
    assert_eq!(missing, format!("path '{}' does not exist", guest.path("none").display()));
    let folder = get(&guest.address("")).error(400);
    assert!(folder.ends_with("is a directory"), "{folder}");
    for name in ["pipe", "loop", &"n".repeat(256), &"n/".repeat(2100)] {
        get(&guest.address(name)).error(400);
        guest.upload(name, b"x").error(400);
    }
    for name in ["", "new/", "new/."] {
        guest.upload(name, b"x").error(400);
    }
    get("/files?path=/dev/zero").error(400);
    guest.send("POST", "/files?path=/dev/null", &[OCTETS], b"x").error(400);
    get("/files?path=a%00b").error(400);
    get("/files?path=~other/x").error(400);
    get("/files?path=%ff").error(404);
    get("/files?path=%00%ff").error(400);
    let user = get(&(guest.address("none") + "&username=nobody-here")).error(401);
    assert_eq!(user, "invalid username: 'nobody-here'");
    guest.send("POST", "/files", &[OCTETS], b"x").error(400);
    guest.send("POST", &guest.address("x"), &[], b"x").error(415);
    let other = [OCTETS, ("content-encoding", "br")];
    guest.send("POST", &guest.address("x"), &other, b"x").error(415);
    let metadata = [OCTETS, ("x-metadata-k", "\u{e9}")];
    guest.send("POST", &guest.address("x"), &metadata, b"x").error(400);
    assert!(started.elapsed() < Duration::from_secs(4));
    assert!(!guest.path("x").exists() && !guest.path("new").exists());
}

#[test]
fn a_client_that_vanishes_leaves_nothing_new_and_nothing_changed() {
    let guest = Guest::start();
    guest.upload("old", b"old");
    for name in ["new", "old"] {
        let mut stream = guest.connect();
        stream.write_all(&head("POST", &guest.address(name), &[OCTETS], 10 << 20)).unwrap();
        stream.write_all(&vec![1; 1 << 20]).unwrap();
        wait_until(|| fs::read_dir(guest.path("")).unwrap().count() == 2);
    }
    wait_until(|| fs::read_dir(guest.path("")).unwrap().count() == 1);
    assert_eq!(fs::read(guest.path("old")).unwrap(), b"old");
}

#[test]
fn who_is_refused_can_still_send_all_and_then_reads_why() {
    let guest = Guest::start();
    let body = vec![1; 8 << 20];
    let headers = [OCTETS, ("content-encoding", "br")];
    let mut stream = guest.connect();
    stream.write_all(&head("POST", &guest.address("x"), &headers, body.len())).unwrap();
    stream.write_all(&body).unwrap();
    Answer::read(&mut stream).error(415);
    // Who asked before sending is answered before.
    let mut stream = guest.connect();
    let headers = [OCTETS, ("content-encoding", "br"), ("expect", "100-continue")];
    stream.write_all(&head("POST", &guest.address("x"), &headers, body.len())).unwrap();
    Answer::read(&mut stream).error(415);
}

#[test]
fn a_watcher_sees_a_new_file_made_changed_and_written() {
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

    let guest = Guest::start();
    fs::create_dir(guest.path("")).unwrap();
    let watcher = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let flags = WatchFlags::CREATE | WatchFlags::ATTRIB | WatchFlags::MODIFY | WatchFlags::MOVE;
    add_watch(&watcher, guest.path(""), flags | WatchFlags::DELETE).unwrap();
    guest.upload("new", b"content");
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&watcher, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = reader.next() {
        seen.push(event.events());
    }
    assert_eq!(seen, [ReadFlags::CREATE, ReadFlags::ATTRIB, ReadFlags::MODIFY]);
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "mkdir files && mount -t tmpfs -o size=1m tmpfs files && exec \"$0\" outside socket";
    let child = command("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script, GUEST])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let guest = Guest::ready(child, folder);
    let message = guest.upload("large", &vec![1; 4 << 20]).error(507);
    assert_eq!(message, "not enough disk space available");
    let body = form(&[("file", Some("x"), &vec![1; 4 << 20])]);
    guest.send("POST", &guest.address("large"), &[FORM], &body).error(507);
    assert_eq!(guest.upload("small", b"fits").status, 200);
    let listed = guest.call("ListDir", &json!({ "path": guest.path("").to_str() })).json();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1);
    assert_eq!(listed["entries"][0]["name"], "small");
}

#[test]
fn memory_stays_flat_however_large_a_file_is() {
    let guest = Guest::start();
    fs::create_dir(guest.path("")).unwrap();
    let size: usize = 256 << 20;
    fs::File::create(guest.path("sparse")).unwrap().set_len(size as u64).unwrap();
    let mut stream = guest.connect();
    stream.write_all(&head("GET", &guest.address("sparse"), &[], 0)).unwrap();
    let received = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert!(received > size as u64);

    let mut stream = guest.connect();
    stream.write_all(&head("POST", &guest.address("up"), &[OCTETS], size)).unwrap();
    let chunk = vec![5; 1 << 20];
    for _ in 0..size >> 20 {
        stream.write_all(&chunk).unwrap();
    }
    assert_eq!(Answer::read(&mut stream).status, 200);
    assert_eq!(fs::metadata(guest.path("up")).unwrap().len(), size as u64);

    let kibibytes = guest.peak_memory_kibibytes();
    assert!(kibibytes < 32 << 10, "the guest took {kibibytes} KiB");
}

#[test]
fn the_service_makes_moves_lists_and_removes() {
    let guest = Guest::start();
    let path = |name: &str| guest.path(name).to_str().unwrap().to_owned();
    let made = guest.call("MakeDir", &json!({ "path": path("a/b") }));
    assert_eq!(made.json()["entry"]["type"], "FILE_TYPE_DIRECTORY");
    let again = guest.call("MakeDir", &json!({ "path": path("a/b") }));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("already_exists")));

    guest.upload("a/file", b"hello");
    let over = guest.call("MakeDir", &json!({ "path": path("a/file") }));
    assert_eq!((over.status, &over.json()["code"]), (400, &json!("invalid_argument")));
    let stat = guest.call("Stat", &json!({ "path": path("a/file") })).json();
    assert_eq!(stat["entry"]["size"], "5");
    assert_eq!(stat["entry"]["mode"], 0o644);
    assert_eq!(stat["entry"]["permissions"], "-rw-r--r--");
    assert!(stat["entry"]["modifiedTime"].as_str().unwrap().ends_with('Z'));

    let request = json!({ "source": path("a/file"), "destination": path("c/d/moved") });
    let moved = guest.call("Move", &request);
    assert_eq!(moved.json()["entry"]["name"], "moved");
    let gone = guest.call("Move", &request);
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("not_found")));

    let list = |depth: u32| {
        let answer = guest.call("ListDir", &json!({ "path": path(""), "depth": depth })).json();
        let entries = answer["entries"].as_array().unwrap().clone();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(0), ["a", "c"]);
    assert_eq!(list(9), ["a", "b", "c", "d", "moved"]);

    assert_eq!(guest.call("Remove", &json!({ "path": path("c") })).status, 200);
    assert_eq!(guest.call("Remove", &json!({ "path": path("c") })).status, 200);
    assert_eq!(list(9), ["a", "b"]);
    let mount = guest.call("Remove", &json!({ "path": "/proc" }));
    assert_eq!((mount.status, &mount.json()["code"]), (400, &json!("failed_precondition")));
}

#[test]
fn a_folder_of_a_hundred_thousand_files_is_listed() {
    let guest = Guest::start();
    fs::create_dir(guest.path("")).unwrap();
    for number in 0..100_000 {
        fs::File::create(guest.path(&format!("file-{number:06}"))).unwrap();
    }
    let listed = guest.call("ListDir", &json!({ "path": guest.path("").to_str() })).json();
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 100_000);
    assert_eq!(entries[99_999]["name"], "file-099999");
    let kibibytes = guest.peak_memory_kibibytes();
    assert!(kibibytes < 96 << 10, "the guest took {kibibytes} KiB");
}

#[test]
fn the_service_tells_who_is_unknown_and_which_paths_make_no_sense() {
    let guest = Guest::start();
    let headers = [("content-type", "application/json"), ("authorization", "Basic bm9vbmU6")];
    let answer = guest.send("POST", "/filesystem.Filesystem/Stat", &headers, b"{\"path\":\"/\"}");
    assert_eq!(answer.status, 401);
    assert_eq!(
        answer.json(),
        json!({ "code": "unauthenticated", "message": "invalid username: 'noone'" })
    );
    for path in ["a\0b", "~other"] {
        let answer = guest.call("Stat", &json!({ "path": path }));
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("invalid_argument")));
    }
}

#[test]
fn metadata_is_kept_with_the_file_until_the_next_upload() {
    let guest = Guest::start();
    let headers = [OCTETS, ("X-Metadata-Author", "me")];
    let answer = guest.send("POST", &guest.address("file"), &headers, b"x");
    if answer.status == 400 {
        assert!(answer.error(400).contains("keeps no metadata"));
        return;
    }
    assert_eq!(answer.json()[0]["metadata"], json!({ "author": "me" }));
    let stat = || {
        let request = json!({ "path": guest.path("file").to_str() });
        guest.call("Stat", &request).json()["entry"]["metadata"].clone()
    };
    assert_eq!(stat(), json!({ "author": "me" }));
    guest.upload("file", b"y");
    assert_eq!(stat(), Value::Null);
}

#[test]
fn what_is_made_belongs_to_the_user_that_was_named() {
    let guest = Guest::start();
    if rustix::process::getuid().as_raw() != 0 {
        // Nobody else may give files away.
        return;
    }
    let address = guest.address("sub/file") + "&username=daemon";
    assert_eq!(guest.send("POST", &address, &[OCTETS], b"x").status, 200);
    let owner = fs::metadata(guest.path("sub/file")).unwrap().uid();
    assert_ne!(owner, 0);
    assert_eq!(fs::metadata(guest.path("sub")).unwrap().uid(), owner);
    // A file that is there keeps its owner.
    assert_eq!(guest.upload("sub/file", b"y").status, 200);
    assert_eq!(fs::metadata(guest.path("sub/file")).unwrap().uid(), owner);
}
