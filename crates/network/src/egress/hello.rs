//! Reads what a TLS client says first, as far as it says whom it wants.
//!
//! It is strict: a hello that two readers could read in two ways is none. So lengths must fit to
//! the last byte, and nothing may be said twice.

/// What a client said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHello {
    /// The name that it wants.
    pub server_name: Option<String>,
    /// The protocols that it would speak inside, as they are.
    pub protocols: Vec<Vec<u8>>,
    /// Whether it says, or seems to say, encrypted, that it wants another.
    pub has_encrypted_hello: bool,
}

/// What some first bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// The whole hello.
    Whole(ClientHello),
    /// A part of one.
    Part,
    /// None that we would read.
    Wrong,
}

/// More than this is no hello.
pub const LARGEST: usize = 32 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// A record has no more than this and a little.
const LARGEST_RECORD: usize = 16 * 1024;

const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// The drafts of it that were in use, with the names that they encrypted.
const EARLIER_ENCRYPTED: [u16; 4] = [0xffce, 0xfe08, 0xfe09, 0xfe0a];

/// Reads a hello from the first bytes of a connection, in one record or several.
pub fn read(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(length) = message_length(&message) {
            if length > LARGEST || message.first() != Some(&CLIENT_HELLO) {
                return Hello::Wrong;
            }
            if message.len() >= 4 + length {
                // What follows in the same record would be another message, before any answer.
                let is_alone = message.len() == 4 + length;
                let hello = if is_alone { body(&message[4..]) } else { None };
                return hello.map_or(Hello::Wrong, Hello::Whole);
            }
        }
        let Some((header, after)) = rest.split_first_chunk::<5>() else {
            let is_fitting = rest.first().is_none_or(|kind| *kind == HANDSHAKE)
                && rest.get(1).is_none_or(|version| *version == 3)
                && bytes.len() < LARGEST;
            return if is_fitting { Hello::Part } else { Hello::Wrong };
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || !(1..=LARGEST_RECORD).contains(&length) {
            return Hello::Wrong;
        }
        let Some((record, after)) = after.split_at_checked(length) else {
            return if bytes.len() < LARGEST { Hello::Part } else { Hello::Wrong };
        };
        message.extend_from_slice(record);
        rest = after;
    }
}

/// The length that a message says, once it has said it.
fn message_length(message: &[u8]) -> Option<usize> {
    let [_, high, middle, low, ..] = message else { return None };
    Some(usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low))
}

fn body(bytes: &[u8]) -> Option<ClientHello> {
    // Version and random bytes.
    let mut rest = bytes.get(34..)?;
    let session = short_vector(&mut rest)?;
    let suites = vector(&mut rest)?;
    let compressions = short_vector(&mut rest)?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compressions.is_empty() {
        return None;
    }
    let mut hello = ClientHello::default();
    if rest.is_empty() {
        // As it was before there were extensions.
        return Some(hello);
    }
    let mut extensions = vector(&mut rest)?;
    let mut seen = Vec::new();
    while !extensions.is_empty() {
        let kind = number(&mut extensions)?;
        let data = vector(&mut extensions)?;
        if seen.contains(&kind) {
            return None;
        }
        seen.push(kind);
        match kind {
            SERVER_NAME => hello.server_name = Some(server_name(data)?),
            PROTOCOLS => hello.protocols = protocols(data)?,
            ENCRYPTED_HELLO => hello.has_encrypted_hello = true,
            kind if EARLIER_ENCRYPTED.contains(&kind) => hello.has_encrypted_hello = true,
            _ => {}
        }
    }
    rest.is_empty().then_some(hello)
}

/// Exactly one name, of a host.
fn server_name(mut data: &[u8]) -> Option<String> {
    let mut list = vector(&mut data)?;
    let (kind, mut after) = list.split_first()?;
    let name = vector(&mut after)?;
    list = after;
    let is_one = *kind == 0 && list.is_empty() && data.is_empty() && !name.is_empty();
    let text = std::str::from_utf8(name).ok()?;
    (is_one && text.is_ascii()).then(|| text.to_owned())
}

fn protocols(mut data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut list = vector(&mut data)?;
    let mut protocols = Vec::new();
    while !list.is_empty() {
        protocols.push(short_vector(&mut list)?.to_vec());
    }
    data.is_empty().then_some(protocols)
}

fn number(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, after) = rest.split_first_chunk::<2>()?;
    *rest = after;
    Some(u16::from_be_bytes(*bytes))
}

/// Bytes whose count is said in two before them.
fn vector<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(number(rest)?);
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

/// Bytes whose count is said in one before them.
fn short_vector<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first()?;
    let (bytes, after) = after.split_at_checked(usize::from(*length))?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::certificates;
    use rustls::ClientConnection;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    fn hello_of(name: &str, protocols: &[&str]) -> Vec<u8> {
        let config = rustls::ClientConfig::builder_with_provider(certificates::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut config = config;
        config.alpn_protocols = protocols.iter().map(|text| text.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_real_hello_is_read() {
        let bytes = hello_of("api.example.com", &["h2", "http/1.1"]);
        let Hello::Whole(hello) = read(&bytes) else { panic!("not read") };
        assert_eq!(hello.server_name.as_deref(), Some("api.example.com"));
        assert_eq!(hello.protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert!(!hello.has_encrypted_hello);
        let Hello::Whole(hello) = read(&hello_of("127.0.0.1", &[])) else { panic!("not read") };
        assert_eq!(hello.server_name, None);
    }

    #[test]
    fn a_part_is_a_part_at_every_length() {
        let bytes = hello_of("api.example.com", &[]);
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Hello::Part, "{length}");
        }
    }

    #[test]
    fn records_of_one_byte_are_put_together() {
        let whole = hello_of("api.example.com", &[]);
        let mut bytes = Vec::new();
        for byte in &whole[5..] {
            bytes.extend([22, 3, 1, 0, 1, *byte]);
        }
        let Hello::Whole(hello) = read(&bytes) else { panic!("not read") };
        assert_eq!(hello.server_name.as_deref(), Some("api.example.com"));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_wrong() {
        let bytes = hello_of("api.example.com", &[]);
        // Another message behind the hello in the same record.
        let mut longer = bytes.clone();
        longer.push(0);
        let length = u16::try_from(longer.len() - 5).unwrap();
        longer[3..5].copy_from_slice(&length.to_be_bytes());
        assert_eq!(read(&longer), Hello::Wrong);
        assert_eq!(read(&[22, 3, 1, 0, 0]), Hello::Wrong);
        assert_eq!(read(&[23, 3, 3, 0, 1, 0]), Hello::Wrong);
        assert_eq!(read(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), Hello::Wrong);
    }

    #[test]
    fn an_encrypted_hello_is_noticed() {
        let bytes = hello_of("api.example.com", &[]);
        let Hello::Whole(plain) = read(&bytes) else { panic!("not read") };
        assert!(!plain.has_encrypted_hello);
        // One more extension at the end, and all the lengths around it.
        let mut message = bytes[5..].to_vec();
        message.extend([0xfe, 0x0d, 0, 1, 0]);
        let end = u32::try_from(message.len() - 4).unwrap().to_be_bytes();
        message[1..4].copy_from_slice(&end[1..]);
        let mut at = 4 + 34;
        at += 1 + usize::from(message[at]);
        at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
        at += 1 + usize::from(message[at]);
        let extensions = u16::try_from(message.len() - at - 2).unwrap().to_be_bytes();
        message[at..at + 2].copy_from_slice(&extensions);
        let mut bytes = vec![22, 3, 1];
        bytes.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend(message);
        let Hello::Whole(hello) = read(&bytes) else { panic!("not read") };
        assert!(hello.has_encrypted_hello);
    }
}
