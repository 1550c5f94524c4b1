//! Requests that are changed on their way out: the secret goes to whom it is for, and is seen by
//! nobody inside.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::world::{HERE, World};
use super::{fetch, log, python, sandbox};

const SECRET: &str = "Bearer very-secret-word-42";

/// An authority that the operator trusts, and a server of TLS with a certificate of it for some
/// names. It tells what it was asked, or sends whoever asks for `/away` to the second name.
fn secure(names: &[&str]) -> (String, SocketAddr) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let signed = CertificateParams::new(names.clone()).unwrap().signed_by(&own, &issuer).unwrap();
    let chain = vec![CertificateDer::from(signed.der().to_vec())];
    let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (config, other) = (Arc::new(config), names.last().unwrap().clone());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(connection) = ServerConnection::new(Arc::clone(&config)) else { continue };
            let (mut stream, other) = (StreamOwned::new(connection, stream), other.clone());
            thread::spawn(move || {
                let mut head = String::new();
                let mut reader = BufReader::new(&mut stream);
                while reader.read_line(&mut head).is_ok_and(|length| length > 2) {}
                let port = address.port();
                let answer = if head.starts_with("GET /away ") {
                    format!(
                        "HTTP/1.1 302 Found\r\nlocation: https://{other}:{port}/\r\n\
                         content-length: 0\r\nconnection: close\r\n\r\n"
                    )
                } else {
                    // Whether the secret came, and not what it is.
                    let came = if head.contains(SECRET) { "came" } else { "did not come" };
                    let text = format!("the secret {came}\n");
                    let length = text.len();
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
                    )
                };
                let _ = stream.write_all(answer.as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    (authority, address)
}

#[test]
fn n16_a_secret_goes_to_whom_it_is_for_and_nobody_inside_ever_sees_it() {
    let world = World::new();
    let (authority, address) = secure(&["api.example.com", "other.example.com"]);
    let port = address.port();
    world.name("api.example.com", &[HERE]);
    world.name("other.example.com", &[HERE]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    rustix::fs::chmod(file.path(), 0o644.into()).unwrap();
    let daemon = world.daemon(&format!("certificates = {:?}", file.path()));
    let policy = json!({
        "mode": "custom",
        "allow_domains": ["other.example.com"],
        "transforms": [{
            "domain": "api.example.com",
            "inject_headers": { "Authorization": SECRET },
            "strip_headers": ["X-Telling"],
        }],
    });
    let id = sandbox(&daemon, &policy);
    let said = fetch(&daemon, &id, &format!("https://api.example.com:{port}/"));
    assert!(said.starts_with("200 the secret came"), "{said}\n{:#?}", log(&daemon, &id));
    // Other programs trust the sandbox's own authority too.
    let curl = format!("curl -sS https://api.example.com:{port}/");
    assert_eq!(daemon.execute(&id, &curl), "the secret came\n");
    let node = format!(
        "node -e 'require(\"https\").get(\"https://api.example.com:{port}/\", \
         r => r.on(\"data\", d => process.stdout.write(d)))'"
    );
    assert_eq!(daemon.execute(&id, &node), "the secret came\n");
    // What git says of something else than a repository, which it does once it was answered.
    let git = format!("git ls-remote https://api.example.com:{port}/ 2>&1");
    assert!(daemon.execute(&id, &git).contains("is this a git repository?"));
    // Who is not named gets nothing: not by itself, and not by being redirected to.
    let away = r"
import sys, ssl, urllib.request
context = ssl._create_unverified_context()
print(urllib.request.urlopen(sys.argv[1], context=context).read().decode(), end='')
";
    let away = python(&daemon, &id, away, &format!("https://api.example.com:{port}/away"));
    assert_eq!(away, "the secret did not come\n");
    // It is in nothing that can be read inside, nor in what the API or the log tell.
    let hidden = &SECRET[7..20];
    let found = daemon.execute(
        &id,
        &format!(
            "sudo grep -rls -- {hidden} /etc /home /root /run /tmp /usr/local /var /workspace | \
             grep -v soma-search; env | grep -c -- {hidden}"
        ),
    );
    assert_eq!(found, "0\n");
    for path in ["", "/network", "/network/log"] {
        let answer = daemon.ask("GET", &format!("/v1/sandbox/{id}{path}"), "");
        assert!(!String::from_utf8_lossy(&answer.body).contains(hidden), "{path}");
    }
    let events = daemon.ask("GET", "/v1/events", "");
    assert!(!String::from_utf8_lossy(&events.body).contains(hidden));
    // What is shown and sent back as it was keeps the secret.
    let shown = daemon.ask("GET", &format!("/v1/sandbox/{id}/network"), "");
    let shown = String::from_utf8(shown.body).unwrap();
    let answer = daemon.ask("PUT", &format!("/v1/sandbox/{id}/network"), &shown);
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(daemon.execute(&id, &curl), "the secret came\n");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn java_trusts_the_sandboxs_own_authority() {
    if !std::path::Path::new("/usr/bin/java").exists() {
        return crate::support::skip(
            "java_trusts_the_sandboxs_own_authority",
            "this host has no Java for its sandboxes",
        );
    }
    let world = World::new();
    let (authority, address) = secure(&["api.example.com"]);
    let port = address.port();
    world.name("api.example.com", &[HERE]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    rustix::fs::chmod(file.path(), 0o644.into()).unwrap();
    let daemon = world.daemon(&format!("certificates = {:?}", file.path()));
    let transform =
        json!({ "domain": "api.example.com", "inject_headers": { "Authorization": SECRET } });
    let id = sandbox(&daemon, &json!({ "mode": "custom", "transforms": [transform] }));
    let program = format!(
        r#"cat > Fetch.java <<'END'
public class Fetch {{
    public static void main(String[] arguments) throws Exception {{
        var address = new java.net.URL("https://api.example.com:{port}/");
        System.out.print(new String(address.openStream().readAllBytes()));
    }}
}}
END
java Fetch.java 2>errors || cat errors"#
    );
    assert_eq!(daemon.execute(&id, &program), "the secret came\n");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn a_policy_that_names_a_secret_can_come_while_the_sandbox_runs() {
    let world = World::new();
    let (authority, address) = secure(&["api.example.com"]);
    let port = address.port();
    world.name("api.example.com", &[HERE]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    rustix::fs::chmod(file.path(), 0o644.into()).unwrap();
    let daemon = world.daemon(&format!("certificates = {:?}", file.path()));
    let id = sandbox(&daemon, &json!({ "mode": "deny-all" }));
    let transform =
        json!({ "domain": "api.example.com", "inject_headers": { "Authorization": SECRET } });
    let policy = json!({ "mode": "custom", "transforms": [transform] }).to_string();
    let answer = daemon.ask("PUT", &format!("/v1/sandbox/{id}/network"), &policy);
    assert_eq!(answer.status, 200, "{}", answer.json());
    let curl = format!("curl -sS https://api.example.com:{port}/ 2>&1");
    assert_eq!(daemon.execute(&id, &curl), "the secret came\n");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
