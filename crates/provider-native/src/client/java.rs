//! The certificates of a file as Java reads them.
//!
//! Java looks into no file of PEM, whatever the variables say: it has stores of its own. The oldest
//! kind, which every version still reads, is a plain list with a keyed digest at its end.

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

/// What such a store begins with, and its version.
const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;

/// An entry that is a certificate to trust, and no key.
const TRUSTED: u32 = 2;

/// The digest is keyed with a password that everybody knows, and with these words.
const PASSWORD: &str = "changeit";
const WORDS: &[u8] = b"Mighty Aphrodite";

/// A store with every certificate of a text of PEM. What cannot be read is left out.
pub(super) fn key_store(bundle: &[u8]) -> Vec<u8> {
    let certificates = certificates(&String::from_utf8_lossy(bundle));
    let mut store = Vec::new();
    store.extend(MAGIC.to_be_bytes());
    store.extend(VERSION.to_be_bytes());
    store.extend(length(certificates.len()));
    for (number, certificate) in certificates.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        put_name(&mut store, &format!("soma-{number}"));
        // When it was added: nobody asks.
        store.extend(0_u64.to_be_bytes());
        put_name(&mut store, "X.509");
        store.extend(length(certificate.len()));
        store.extend(certificate);
    }
    let key = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    let digest = Sha1::new().chain_update(key).chain_update(WORDS).chain_update(&store).finalize();
    store.extend(digest);
    store
}

fn certificates(text: &str) -> Vec<Vec<u8>> {
    let blocks = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split_once("-----END CERTIFICATE-----"));
    blocks
        .filter_map(|(block, _)| {
            let block: String = block.split_ascii_whitespace().collect();
            base64::engine::general_purpose::STANDARD.decode(block).ok()
        })
        .collect()
}

fn put_name(store: &mut Vec<u8>, name: &str) {
    store.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    store.extend(name.as_bytes());
}

fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_lists_every_certificate_that_can_be_read() {
        let block = |text: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let bundle = block("b25l") + "a comment\n" + &block("not base64!") + &block("dH\ndv");
        let store = key_store(bundle.as_bytes());
        let mut expected = vec![0xFE, 0xED, 0xFE, 0xED, 0, 0, 0, 2, 0, 0, 0, 2];
        for (name, text) in [("soma-0", "one"), ("soma-1", "two")] {
            expected.extend([0, 0, 0, 2, 0, 6]);
            expected.extend(name.bytes());
            expected.extend([0; 8]);
            expected.extend([0, 5]);
            expected.extend(b"X.509");
            expected.extend([0, 0, 0, 3]);
            expected.extend(text.bytes());
        }
        assert_eq!(store[..expected.len()], expected);
        assert_eq!(store.len(), expected.len() + 20);
    }
}
