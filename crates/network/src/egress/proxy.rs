//! The operator's proxy: HTTP's `CONNECT`, or SOCKS 5, with a name and a password or without.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::SecretText;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::judge::normal_name;
use super::resolver::resolve;

const PATIENCE: Duration = Duration::from_secs(20);
/// What a proxy may say before the connection is through.
const LARGEST_HEAD: usize = 16 * 1024;

/// Where the proxy is and how it is spoken to.
#[derive(Debug)]
pub(crate) struct Proxy {
    protocol: Protocol,
    host: Host,
    pub(crate) port: u16,
    login: Option<Login>,
}

#[derive(Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Socks5,
}

#[derive(Debug)]
enum Host {
    Name(String),
    Address(IpAddr),
}

#[derive(Debug)]
struct Login {
    name: SecretText,
    password: SecretText,
}

/// What the proxy is to connect to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Name(&'a str),
    Address(IpAddr),
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl Proxy {
    /// Reads `http://` or `socks5://`, with `NAME:PASSWORD@` or without. The reason of a failure
    /// repeats nothing of the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("the proxy's address {what}; write http://HOST:PORT");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
        let (protocol, usual_port) = match scheme {
            "http" => (Protocol::Http, 8080),
            "socks5" | "socks5h" => (Protocol::Socks5, 1080),
            _ => return Err(wrong("begins with neither http:// nor socks5://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let login = login.map(|login| {
            let (name, password) = login.split_once(':').unwrap_or((login, ""));
            let plain = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            Login { name: SecretText::new(plain(name)), password: SecretText::new(plain(password)) }
        });
        let (host, port) = if let Ok(whole) = place.parse::<SocketAddr>() {
            (Host::Address(whole.ip()), whole.port())
        } else {
            let (host, port) = match place.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => {
                    (host, port.parse().map_err(|_| wrong("has a port that is no number"))?)
                }
                _ => (place, usual_port),
            };
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let host = match bare.parse() {
                Ok(address) => Host::Address(address),
                Err(_) => Host::Name(normal_name(host).ok_or_else(|| wrong("names no host"))?),
            };
            (host, port)
        };
        Ok(Self { protocol, host, port, login })
    }

    /// Where the proxy itself is. The operator chose it, so it may be anywhere.
    pub(crate) async fn addresses(&self, resolvers: &[SocketAddr]) -> io::Result<Vec<IpAddr>> {
        match &self.host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) => {
                let resolved = resolve(resolvers, name).await;
                if resolved.addresses.is_empty() {
                    return Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("the proxy's name `{name}` has no address"),
                    ));
                }
                Ok(resolved.addresses)
            }
        }
    }

    /// Has the proxy connect to a target, on a connection to the proxy. Nothing of what the
    /// target says is read.
    pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        target: Target<'_>,
        port: u16,
    ) -> io::Result<()> {
        let speak = async {
            match self.protocol {
                Protocol::Http => self.connect_by_http(stream, target, port).await,
                Protocol::Socks5 => self.connect_by_socks(stream, target, port).await,
            }
        };
        timeout(PATIENCE, speak).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn connect_by_http<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        target: Target<'_>,
        port: u16,
    ) -> io::Result<()> {
        let mut request = format!("CONNECT {target}:{port} HTTP/1.1\r\nHost: {target}:{port}\r\n");
        if let Some(login) = &self.login {
            let both = format!("{}:{}", login.name.expose(), login.password.expose());
            request.push_str("Proxy-Authorization: Basic ");
            request.push_str(&STANDARD.encode(both));
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        // Byte by byte, because what follows the head is the target's.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= LARGEST_HEAD {
                return Err(said("too much before it was through"));
            }
            head.push(stream.read_u8().await?);
        }
        let first = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let code = first.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        match code {
            b"200" => Ok(()),
            code => Err(said(&format!("answered {}", String::from_utf8_lossy(code)))),
        }
    }

    async fn connect_by_socks<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        target: Target<'_>,
        port: u16,
    ) -> io::Result<()> {
        const OPEN: u8 = 0;
        const PASSWORD: u8 = 2;
        let method = if self.login.is_some() { PASSWORD } else { OPEN };
        stream.write_all(&[5, 1, method]).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [5, method] {
            return Err(said("wants another way to log in"));
        }
        if let Some(login) = &self.login {
            let mut message = vec![1];
            for part in [login.name.expose(), login.password.expose()] {
                let length = u8::try_from(part.len()).map_err(|_| said("takes no such login"))?;
                message.push(length);
                message.extend(part.bytes());
            }
            stream.write_all(&message).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(said("does not take the login"));
            }
        }
        let mut request = vec![5, 1, 0];
        match target {
            Target::Address(IpAddr::V4(address)) => {
                request.push(1);
                request.extend(address.octets());
            }
            Target::Address(IpAddr::V6(address)) => {
                request.push(4);
                request.extend(address.octets());
            }
            Target::Name(name) => {
                request.push(3);
                request.push(u8::try_from(name.len()).map_err(|_| said("takes no such name"))?);
                request.extend(name.bytes());
            }
        }
        request.extend(port.to_be_bytes());
        stream.write_all(&request).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        if answer[..2] != [5, 0] {
            return Err(said(&format!("answered {}", answer[1])));
        }
        let rest = match answer[3] {
            1 => 4,
            4 => 16,
            3 => usize::from(stream.read_u8().await?),
            _ => return Err(said("answered in no known way")),
        };
        stream.read_exact(&mut vec![0; rest + 2]).await?;
        Ok(())
    }
}

fn said(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_written_in_the_usual_ways() {
        let proxy = Proxy::parse("http://user:p%40ss@proxy.example:3128/").unwrap();
        assert_eq!(proxy.port, 3128);
        assert_eq!(proxy.login.unwrap().password.expose(), "p@ss");
        assert_eq!(Proxy::parse("socks5://[::1]:9050").unwrap().port, 9050);
        assert_eq!(Proxy::parse("socks5://10.0.0.1").unwrap().port, 1080);
        assert_eq!(Proxy::parse("http://proxy.example").unwrap().port, 8080);
    }

    #[test]
    fn a_proxy_that_cannot_be_read_is_not_repeated() {
        for text in ["secret", "ftp://secret@x", "http://secret:secret@x:secret", "http://se cret"]
        {
            let reason = Proxy::parse(text).unwrap_err();
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
