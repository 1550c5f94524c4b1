//! Compressed uploads and downloads, and files that are made of parts.

#![expect(clippy::unwrap_used, reason = "where a helper fails, the test has failed")]

mod plain;

use std::fs;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use plain::{Answer, FORM, Guest, OCTETS, form};
use serde_json::{Value, json};

const GZIP: (&str, &str) = ("content-encoding", "gzip");
const WANTED: (&str, &str) = ("accept-encoding", "gzip");

fn compressed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn expanded(body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(body).read_to_end(&mut content).unwrap();
    content
}

fn text() -> Vec<u8> {
    (0..200_000_u32).flat_map(|number| number.to_string().into_bytes()).collect()
}

#[test]
fn a_compressed_upload_is_the_file_in_both_forms() {
    let guest = Guest::start();
    let body = compressed(&text());
    let answer = guest.send("POST", &guest.address("one"), &[OCTETS, GZIP], &body);
    assert_eq!(answer.json()[0]["name"], "one");
    assert!(fs::read(guest.path("one")).unwrap() == text());

    let (two, three) = (guest.path("two"), guest.path("three"));
    let parts = form(&[("file", two.to_str(), &text()), ("file", three.to_str(), b"small")]);
    let answer = guest.send("POST", "/files", &[FORM, GZIP], &compressed(&parts));
    assert_eq!(answer.json().as_array().unwrap().len(), 2);
    assert!(fs::read(two).unwrap() == text());
    assert_eq!(fs::read(three).unwrap(), b"small");
}

#[test]
fn a_broken_upload_leaves_no_new_file_and_the_old_one_as_it_was() {
    let guest = Guest::start();
    let whole = compressed(&text());
    let mut changed = whole.clone();
    let last = changed.len() - 5;
    changed[last] ^= 1;
    guest.upload("old", b"old");
    for body in [&whole[..whole.len() / 2], &whole[..whole.len() - 1], b"plain", b"", &changed[..]]
    {
        for name in ["new", "old"] {
            let answer = guest.send("POST", &guest.address(name), &[OCTETS, GZIP], body);
            assert!(answer.error(400).starts_with("the upload is not whole gzip"));
        }
        let left: Vec<_> = fs::read_dir(guest.path("")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(fs::read(guest.path("old")).unwrap(), b"old");
    }
}

#[test]
fn an_upload_that_grows_a_thousandfold_takes_disk_and_no_memory() {
    let guest = Guest::start();
    let size: usize = 128 << 20;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    let body = encoder.finish().unwrap();
    assert!(body.len() < size / 500);
    let answer = guest.send("POST", &guest.address("bomb"), &[OCTETS, GZIP], &body);
    assert_eq!(answer.status, 200);
    assert_eq!(fs::metadata(guest.path("bomb")).unwrap().len(), size as u64);
    let kibibytes = guest.peak_memory_kibibytes();
    assert!(kibibytes < 32 << 10, "the guest took {kibibytes} KiB");
}

#[test]
fn a_download_is_compressed_for_who_wants_it_and_not_in_part() {
    let guest = Guest::start();
    guest.upload("file", &text());
    let get = |headers: &[(&str, &str)]| guest.send("GET", &guest.address("file"), headers, b"");
    let answer = get(&[WANTED]);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.header("vary"), Some("accept-encoding"));
    assert!(answer.body.len() < text().len() / 2);
    assert!(expanded(&answer.body) == text());
    let tag = answer.header("etag").unwrap().to_owned();
    assert!(tag.starts_with("w/"));

    let plain = get(&[]);
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(plain.header("vary"), Some("accept-encoding"));
    assert!(plain.body == text());
    let part = get(&[WANTED, ("range", "bytes=3-5")]);
    assert_eq!((part.status, part.header("content-encoding")), (206, None));
    assert_eq!(part.body, text()[3..6]);
    assert_eq!(get(&[WANTED, ("if-none-match", &tag.replace("w/", "W/"))]).status, 304);
    let head = guest.send("HEAD", &guest.address("file"), &[WANTED], b"");
    assert_eq!((head.header("content-encoding"), head.body.len()), (Some("gzip"), 0));
    guest.upload("empty", b"");
    assert!(expanded(&guest.send("GET", &guest.address("empty"), &[WANTED], b"").body).is_empty());
}

fn compose(guest: &Guest, sources: &[&str], destination: &str) -> Answer {
    let path = |name: &str| guest.path(name).to_str().unwrap().to_owned();
    let sources: Vec<_> = sources.iter().map(|name| path(name)).collect();
    let request = json!({ "source_paths": sources, "destination": path(destination) });
    guest.send("POST", "/files/compose", &[], request.to_string().as_bytes())
}

#[test]
fn parts_become_one_file_and_go() {
    let guest = Guest::start();
    guest.upload("part1", &vec![1; 600_000]);
    guest.upload("part2", b"");
    guest.upload("part3", b"end");
    let answer = compose(&guest, &["part1", "part2", "part3"], "new/whole").json();
    assert_eq!((&answer["name"], &answer["type"]), (&json!("whole"), &json!("file")));
    assert!(
        fs::read(guest.path("new/whole")).unwrap() == [vec![1; 600_000], b"end".to_vec()].concat()
    );
    assert_eq!(fs::read_dir(guest.path("")).unwrap().count(), 1);

    // The destination may be one of the parts.
    guest.upload("a", b"a");
    guest.upload("b", b"b");
    assert_eq!(compose(&guest, &["a", "b"], "a").status, 200);
    assert_eq!(fs::read(guest.path("a")).unwrap(), b"ab");
    assert!(!guest.path("b").exists());
}

#[test]
fn parts_that_are_missing_or_no_files_change_nothing() {
    let guest = Guest::start();
    guest.upload("a", b"a");
    guest.upload("whole", b"old");
    compose(&guest, &["a", "none"], "whole").error(404);
    compose(&guest, &["a", ""], "whole").error(400);
    compose(&guest, &["a", "a"], "whole").error(400);
    compose(&guest, &[], "whole").error(400);
    compose(&guest, &["a"; 1001], "whole").error(400);
    let send =
        |body: &Value| guest.send("POST", "/files/compose", &[], body.to_string().as_bytes());
    send(&json!({})).error(400);
    send(&json!({ "source_paths": [guest.path("a").to_str()], "destination": "" })).error(400);
    let unknown = json!({ "source_paths": ["a"], "destination": "b", "username": "noone" });
    send(&unknown).error(401);
    guest.send("GET", "/files/compose", &[], b"").error(405);
    assert_eq!(fs::read(guest.path("a")).unwrap(), b"a");
    assert_eq!(fs::read(guest.path("whole")).unwrap(), b"old");
    assert_eq!(fs::read_dir(guest.path("")).unwrap().count(), 2);
}
