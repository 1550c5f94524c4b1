//! Writes tar files, also such as no program would write.

use std::io::Write as _;

/// A tar file in the making.
#[derive(Default, Clone)]
pub(crate) struct Archive(Vec<u8>);

/// What a header says.
#[derive(Clone)]
pub(crate) struct Item<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) target: &'a str,
    pub(crate) content: &'a [u8],
    pub(crate) owner: u32,
    pub(crate) device: (u32, u32),
}

impl Default for Item<'_> {
    fn default() -> Self {
        Self {
            name: "",
            kind: b'0',
            mode: 0o644,
            target: "",
            content: b"",
            owner: 0,
            device: (0, 0),
        }
    }
}

impl Archive {
    /// A system as small as can be.
    pub(crate) fn system() -> Self {
        Self::default().folder("usr").folder("etc").file("etc/os-release", "ID=small\n")
    }

    pub(crate) fn item(mut self, item: &Item<'_>) -> Self {
        let mut block = [0u8; 512];
        let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
        put(0, &item.name.as_bytes()[..item.name.len().min(100)]);
        put(100, format!("{:07o}", item.mode).as_bytes());
        put(108, format!("{:07o}", item.owner).as_bytes());
        put(116, format!("{:07o}", item.owner).as_bytes());
        put(124, format!("{:011o}", item.content.len()).as_bytes());
        put(136, b"00000000001");
        put(148, b"        ");
        put(156, &[item.kind]);
        put(157, item.target.as_bytes());
        put(257, b"ustar\x0000");
        put(329, format!("{:07o}", item.device.0).as_bytes());
        put(337, format!("{:07o}", item.device.1).as_bytes());
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(item.content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.item(&Item { name, content: content.as_bytes(), ..Item::default() })
    }

    pub(crate) fn bytes(self, name: &str, content: &[u8]) -> Self {
        self.item(&Item { name, content, ..Item::default() })
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.item(&Item { name, kind: b'5', mode: 0o755, ..Item::default() })
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.item(&Item { name, kind: b'2', target, mode: 0o777, ..Item::default() })
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.item(&Item { name, kind: b'1', target, ..Item::default() })
    }

    /// What is said about the next item.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            write!(text, "{length} {key}=").unwrap();
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        self.item(&Item { name: "pax", kind: b'x', content: &text, ..Item::default() })
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}
