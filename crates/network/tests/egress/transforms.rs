//! Headers that are injected outside: for the name that they are for, and nowhere else.

use network::Configuration;

use crate::connections::tls;
use crate::servers::{Pki, Resolver, echo_web};
use crate::world::{World, rest};
use std::io::Write;

const SECRET: &str = "Bearer very-secret-token";

fn policy(mode: &str) -> String {
    format!(
        r#"{{"mode":"{mode}","allow_domains":["other.example"],"transforms":[{{
            "domain":"api.example","inject_headers":{{"Authorization":"{SECRET}"}},
            "strip_headers":["X-Stripped"]}}]}}"#
    )
}

fn world(mode: &str) -> Option<(World, Pki)> {
    let names = ["api.example", "other.example", "bad.example"].map(|name| (name, "127.0.0.1"));
    let resolver = Resolver::new(&names);
    let pki = Pki::new();
    let configuration = Configuration { certificates: Some(pki.pem()), ..resolver.configuration() };
    World::new(&policy(mode), configuration).map(|world| (world, pki))
}

fn get(host: &str, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: mine\r\nX-Stripped: yes\r\n\
         X-Kept: yes\r\n\r\n"
    )
}

#[test]
fn the_secret_is_sent_and_never_seen_inside() {
    for mode in ["custom", "allow-all"] {
        let Some((world, pki)) = world(mode) else { return };
        let seen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let config = pki.config(&["api.example"], &["http/1.1"]);
        let kept = std::sync::Arc::clone(&seen);
        let port = crate::servers::serve(move |stream| {
            let server = rustls::ServerConnection::new(std::sync::Arc::clone(&config)).unwrap();
            let mut reader = std::io::BufReader::new(rustls::StreamOwned::new(server, stream));
            let head = crate::servers::read_head(&mut reader).unwrap();
            kept.lock().unwrap().push_str(&head);
            let length = head.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nX-Echo: {SECRET}\r\nContent-Length: {length}\r\n\r\n{head}"
            );
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        });
        let stream = world.dial_name("api.example", port);
        let trusted = world.authority.certificate.clone();
        let answer = tls(stream, "api.example", &trusted, &get("api.example", "/")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains("very-secret-token"), "{answer}");
        assert!(answer.contains("X-Kept: yes"), "{answer}");
        let seen = seen.lock().unwrap().clone();
        assert!(seen.to_lowercase().contains("authorization: bearer very-secret-token"), "{seen}");
        assert!(!seen.contains("mine") && !seen.contains("X-Stripped"), "{seen}");
        let entry = world.logged(|entry| entry.port == port);
        assert_eq!(entry.name.as_deref(), Some("api.example"));
        assert!(entry.sent > 0 && entry.received > 0);
        let text = serde_json::to_string(&world.log()).unwrap();
        assert!(!text.contains("very-secret-token"));
    }
}

#[test]
fn a_redirect_to_another_host_does_not_carry_it() {
    let Some((world, pki)) = world("custom") else { return };
    let port = pki.echo_web(&["api.example", "other.example"]);
    let trusted = world.authority.certificate.clone();
    let stream = world.dial_name("api.example", port);
    let answer = tls(stream, "api.example", &trusted, &get("api.example", "/away")).unwrap();
    assert!(answer.contains("Location: https://other.example/"), "{answer}");
    // The other host's TLS is not ended here: its own certificate is seen.
    let stream = world.dial_name("other.example", port);
    let answer = tls(stream, "other.example", &pki.pem(), &get("other.example", "/")).unwrap();
    assert!(answer.contains("Authorization: mine"), "{answer}");
    assert!(!answer.contains("very-secret-token") && !answer.contains("***"), "{answer}");
    // Nor does it get it on the first one's connection.
    let stream = world.dial_name("api.example", port);
    let answer = tls(stream, "api.example", &trusted, &get("other.example", "/")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
}

#[test]
fn a_server_that_is_not_trusted_gets_nothing() {
    let Some((world, _pki)) = world("custom") else { return };
    let port = Pki::new().echo_web(&["api.example"]);
    let stream = world.dial_name("api.example", port);
    let trusted = world.authority.certificate.clone();
    assert!(tls(stream, "api.example", &trusted, &get("api.example", "/")).is_err());
    let entry = world.logged(|entry| entry.port == port);
    assert!(entry.detail.unwrap().contains("certificate"), "it says why");
}

#[test]
fn nothing_is_injected_in_clear() {
    let Some((world, _pki)) = world("custom") else { return };
    let port = echo_web();
    let mut stream = world.dial_name("api.example", port);
    let request = get("api.example", "/").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = rest(stream).unwrap();
    assert!(answer.contains("Authorization: mine"), "{answer}");
    assert!(!answer.contains("very-secret-token"));
    let entry = world.logged(|entry| entry.port == port);
    assert!(entry.detail.unwrap().contains("in clear"));
}

#[test]
fn http_2_is_spoken_where_both_can() {
    let Some((world, pki)) = world("custom") else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = pki.config(&["api.example"], &["h2", "http/1.1"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let serving = async move {
        use hyper_util::rt::{TokioExecutor, TokioIo};
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let service = hyper::service::service_fn(|request: http::Request<_>| async move {
            let _: &hyper::body::Incoming = request.body();
            let sent = request.headers()["authorization"].to_str().unwrap().to_owned();
            let body = http_body_util::Full::new(bytes::Bytes::from(format!("got {sent}")));
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    };
    runtime.spawn(serving);
    let stream = world.dial_name("api.example", port);
    stream.set_nonblocking(true).unwrap();
    let trusted = world.authority.certificate.clone();
    runtime.block_on(async move {
        use http_body_util::BodyExt as _;
        use hyper_util::rt::{TokioExecutor, TokioIo};
        use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        let name = ServerName::try_from("api.example").unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let ask = async {
            let request = |host: &str| {
                http::Request::get(format!("https://{host}/"))
                    .body(http_body_util::Empty::<bytes::Bytes>::new())
                    .unwrap()
            };
            let answer = sender.send_request(request("api.example")).await.unwrap();
            assert_eq!(answer.status(), 200);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(&body[..], format!("got {}", "*".repeat(SECRET.len())).as_bytes());
            let answer = sender.send_request(request("other.example")).await.unwrap();
            assert_eq!(answer.status(), 421);
        };
        tokio::select! {
            () = ask => {}
            _ = connection => panic!("the connection ended"),
        }
    });
}
