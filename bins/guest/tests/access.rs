//! Who may ask the real guest for what, once it has a token.

#![expect(clippy::unwrap_used, reason = "where a helper fails, the test has failed")]

mod plain;

use std::fs;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use plain::{Answer, GUEST, Guest, OCTETS, encode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sys_linux::command::command;

const TOKEN: &str = "s3cret-token";
const SHOWN: (&str, &str) = ("x-access-token", TOKEN);

fn tell(guest: &Guest, headers: &[(&str, &str)], told: &Value) -> Answer {
    guest.send("POST", "/init", headers, told.to_string().as_bytes())
}

/// A guest with a token, and a file `file` in its folder.
fn secured() -> Guest {
    let guest = Guest::start();
    guest.upload("file", b"content");
    assert_eq!(tell(&guest, &[], &json!({ "accessToken": TOKEN })).status, 204);
    guest
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The address of a file, signed as E2B's SDK does.
fn signed(path: &str, operation: &str, user: &str, token: &str, expiration: Option<u64>) -> String {
    let until = expiration.map(|time| time.to_string());
    let text = [path, operation, user, token].into_iter().chain(until.as_deref());
    let text = text.collect::<Vec<_>>().join(":");
    let mut query = vec![("path", encode(path))];
    query.extend(until.map(|until| ("signature_expiration", until)));
    query.extend((!user.is_empty()).then(|| ("username", user.to_owned())));
    let signature = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
    query.push(("signature", encode(&signature)));
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("/files?{}", query.join("&"))
}

#[test]
fn every_route_but_health_asks_for_the_token() {
    let guest = secured();
    assert_eq!(guest.send("GET", "/health", &[], b"").status, 204);
    let connect = ("content-type", "application/json");
    let stream = ("content-type", "application/connect+json");
    for (method, address, kind) in [
        ("GET", "/envs", connect),
        ("GET", "/metrics", connect),
        ("GET", "/nothing", connect),
        ("POST", "/files/compose", connect),
        ("POST", "/filesystem.Filesystem/Stat", connect),
        ("POST", "/filesystem.Filesystem/WatchDir", stream),
        ("POST", "/process.Process/List", connect),
        ("POST", "/process.Process/Start", stream),
    ] {
        for header in [None, Some(("x-access-token", "")), Some(("x-access-token", "s3cret-tokeN"))]
        {
            let headers: Vec<_> = header.into_iter().chain([kind]).collect();
            let message = guest.send(method, address, &headers, b"{}").error(401);
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
    assert_eq!(guest.send("GET", "/envs", &[SHOWN], b"").json(), json!({}));
    guest.send("GET", "/nothing", &[SHOWN], b"").error(404);
    let list = guest.send("POST", "/process.Process/List", &[SHOWN, connect], b"{}");
    assert_eq!(list.status, 200);
    // A browser asks first, without anything.
    let preflight = [("access-control-request-method", "GET"), ("origin", "http://x")];
    assert_eq!(guest.send("OPTIONS", "/files", &preflight, b"").status, 204);
}

#[test]
fn a_file_is_asked_for_with_the_token_or_a_signed_address() {
    let guest = secured();
    let path = guest.path("file").to_str().unwrap().to_owned();
    let get = |address: &str| guest.send("GET", address, &[], b"");
    let plain = guest.address("file");
    assert_eq!(get(&plain).error(401), "missing signature query parameter");
    assert_eq!(guest.send("GET", &plain, &[SHOWN], b"").body, b"content");
    let wrong = guest.send("GET", &plain, &[("x-access-token", "other")], b"");
    assert_eq!(wrong.error(401), "access token present in header but does not match");

    assert_eq!(get(&signed(&path, "read", "", TOKEN, None)).body, b"content");
    assert_eq!(get(&signed(&path, "read", "root", TOKEN, None)).body, b"content");
    assert_eq!(get(&signed(&path, "read", "", TOKEN, Some(now() + 60))).body, b"content");
    let expired = "signature is already expired";
    assert_eq!(get(&signed(&path, "read", "", TOKEN, Some(now() - 60))).error(401), expired);
    // Which of two faults is told: the time.
    assert_eq!(get(&signed(&path, "read", "", "other", Some(now() - 60))).error(401), expired);
    for address in [
        signed(&path, "read", "", "other", None),
        signed(&path, "write", "", TOKEN, None),
        signed(&path, "read", "", TOKEN, None) + "&username=root",
        signed(&path, "read", "", TOKEN, None) + &format!("&signature_expiration={}", now() + 60),
        signed(&path, "read", "", TOKEN, Some(now() + 60)).replace("signature_expiration=", "x="),
        signed("/etc/passwd", "read", "", TOKEN, None).replace("passwd", "hosts"),
    ] {
        assert_eq!(get(&address).error(401), "invalid signature", "{address}");
    }
    get(&(signed(&path, "read", "", TOKEN, None) + "&signature_expiration=soon")).error(400);
}

#[test]
fn an_upload_may_be_signed_and_its_path_is_signed_as_it_was_given() {
    let guest = secured();
    let path = guest.path("up load").to_str().unwrap().to_owned();
    let post = |address: &str| guest.send("POST", address, &[OCTETS], b"new");
    assert_eq!(post(&signed(&path, "read", "", TOKEN, None)).error(401), "invalid signature");
    assert_eq!(post(&signed(&path, "write", "", TOKEN, Some(now() + 9))).status, 200);
    assert_eq!(fs::read(guest.path("up load")).unwrap(), b"new");
    // Without a path the empty one is signed, and the form says where the file goes.
    let form = plain::form(&[("file", Some(&path), b"by form")]);
    let address = signed("", "write", "", TOKEN, None);
    assert_eq!(guest.send("POST", &address, &[plain::FORM], &form).status, 200);
    assert_eq!(fs::read(guest.path("up load")).unwrap(), b"by form");
}

#[test]
fn only_who_knows_the_token_may_tell_anything_more() {
    let guest = secured();
    let other = json!({ "accessToken": "other", "envVars": { "A": "1" } });
    tell(&guest, &[], &other).error(401);
    tell(&guest, &[], &json!({ "envVars": { "A": "1" } })).error(401);
    tell(&guest, &[("x-access-token", "other")], &other).error(401);
    let envs = |token| guest.send("GET", "/envs", &[("x-access-token", token)], b"");
    assert_eq!(envs(TOKEN).json(), json!({}));

    let same = json!({ "accessToken": TOKEN, "envVars": { "A": "2" } });
    assert_eq!(tell(&guest, &[], &same).status, 204);
    assert_eq!(envs(TOKEN).json(), json!({ "A": "2" }));
    assert_eq!(tell(&guest, &[SHOWN], &other).status, 204);
    envs(TOKEN).error(401);
    assert_eq!(envs("other").json(), json!({ "A": "1" }));
    // Nothing takes a token away.
    for token in [json!(""), Value::Null] {
        let told = json!({ "accessToken": token });
        assert_eq!(tell(&guest, &[("x-access-token", "other")], &told).status, 204);
    }
    envs("").error(401);
}

#[test]
fn what_is_older_than_the_last_message_changes_nothing() {
    let guest = Guest::start();
    let told = |time: &str, value: &str| {
        tell(&guest, &[], &json!({ "timestamp": time, "envVars": { "A": value } })).status
    };
    let envs = || guest.send("GET", "/envs", &[], b"").json()["A"].clone();
    assert_eq!(told("2026-05-01T10:00:00.5Z", "1"), 204);
    assert_eq!(told("2026-05-01T10:00:00.4Z", "2"), 204);
    assert_eq!(envs(), "1");
    // The same moment, in other words.
    assert_eq!(told("2026-05-01T12:00:00.5+02:00", "3"), 204);
    assert_eq!(envs(), "3");
    assert_eq!(told("2026-05-01T10:00:01Z", "4"), 204);
    assert_eq!(envs(), "4");
    assert_eq!(tell(&guest, &[], &json!({ "envVars": { "A": "5" } })).status, 204);
    assert_eq!(envs(), "5");
    assert_eq!(told("today", "6"), 400);
}

#[test]
fn certificates_that_are_told_are_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs tmpfs /usr/local/share && mount -t tmpfs tmpfs /etc/ssl \
                  && mkdir /etc/ssl/certs && echo system > /etc/ssl/certs/ca-certificates.crt \
                  && exec \"$0\" outside socket";
    let child = command("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script, GUEST])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let guest = Guest::ready(child, folder);
    let bundle = "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n";
    for _ in 0..2 {
        assert_eq!(tell(&guest, &[], &json!({ "caBundle": bundle })).status, 204);
        let all = guest.send("GET", "/files?path=/etc/ssl/certs/ca-certificates.crt", &[], b"");
        let all = String::from_utf8(all.body).unwrap();
        assert!(all.starts_with("system\n"), "{all}");
        assert_eq!(all.matches("ours").count(), 1, "{all}");
    }
    let local = "/files?path=/usr/local/share/ca-certificates/soma.crt";
    assert_eq!(guest.send("GET", local, &[], b"").body, bundle.as_bytes());
    tell(&guest, &[], &json!({ "caBundle": "nothing of the kind" })).error(400);
}

#[test]
fn what_is_the_engines_work_is_told_so() {
    let guest = Guest::start();
    for route in ["/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"] {
        let message = guest.send("POST", route, &[], b"").error(501);
        assert!(message.starts_with(&format!("'{route}' is not for the guest")), "{message}");
    }
}
