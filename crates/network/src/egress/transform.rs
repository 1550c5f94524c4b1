//! Ends TLS for a name that has a transform, and begins it again towards the server.
//!
//! The server is asked first: with which protocol it answers is what the client is offered, so
//! that both sides speak the same, and a server that cannot be trusted is never hidden behind a
//! certificate that can.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::server::{ClientHello as Asked, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::certificates;
use super::hello::ClientHello;
use super::web::{self, Client, Web};

const PATIENCE: Duration = Duration::from_secs(20);
const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";
/// A fatal alert: an error that is not the client's.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Serves a connection whose client wants the name that it is connected to.
pub(crate) async fn serve(
    web: Web,
    mut client: TcpStream,
    said: Vec<u8>,
    server: TcpStream,
    hello: &ClientHello,
) -> io::Result<()> {
    let prepared = timeout(PATIENCE, begin(&web, server, hello)).await;
    let (server, acceptor, protocol) = match prepared {
        Ok(Ok(prepared)) => prepared,
        failed => {
            // The client may be gone.
            let _ = client.write_all(&INTERNAL_ERROR).await;
            let _ = client.shutdown().await;
            return Err(match failed {
                Ok(Err(error)) => error,
                _ => io::ErrorKind::TimedOut.into(),
            });
        }
    };
    let client = Client::new(client, said, Arc::clone(&web.counts));
    let client = timeout(PATIENCE, acceptor.accept(client)).await;
    let client = client.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    if protocol.as_deref() == Some(HTTP_2) {
        return web::serve_2(web, client, server).await;
    }
    web::serve_1(web, client, server).await
}

type Begun = (tokio_rustls::client::TlsStream<TcpStream>, TlsAcceptor, Option<Vec<u8>>);

/// Begins TLS with the server, and makes ready for what the client is to be offered.
async fn begin(web: &Web, server: TcpStream, hello: &ClientHello) -> io::Result<Begun> {
    let name = web.subject.name.clone().unwrap_or_default();
    let rules = web.sandbox.rules();
    let authority = rules.rules.authority.as_ref();
    let authority =
        authority.ok_or_else(|| io::Error::other("the sandbox has no certificate authority"))?;
    let leaf = rules.leaves.get(authority, &name).map_err(io::Error::other)?;
    let trust = web.world.settings().trust().map_err(io::Error::other)?;
    let mut trust = ClientConfig::clone(&trust);
    trust.alpn_protocols = [HTTP_2, HTTP_1]
        .into_iter()
        .filter(|protocol| hello.protocols.iter().any(|wanted| wanted == protocol))
        .map(<[u8]>::to_vec)
        .collect();
    let to = ServerName::try_from(name).map_err(io::Error::other)?;
    let connecting = TlsConnector::from(Arc::new(trust)).connect(to, server);
    let server = connecting.await.map_err(|error| {
        io::Error::new(error.kind(), format!("TLS with the server failed: {error}"))
    })?;
    let protocol = server.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let mut offered = ServerConfig::builder_with_provider(certificates::provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Only(leaf)));
    offered.alpn_protocols = protocol.iter().cloned().collect();
    offered.session_storage = Arc::new(NoServerSessionStorage {});
    offered.send_tls13_tickets = 0;
    Ok((server, TlsAcceptor::from(Arc::new(offered)), protocol))
}

/// The one certificate of a connection.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _asked: Asked<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
