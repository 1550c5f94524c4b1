//! Images made to fit the namespaces in which they are restored.
//!
//! CRIU restores a sandbox from within a user namespace that a launcher made, so that it has no power
//! outside and the kernel counts what the sandbox uses for the sandbox's own id. Two things in the
//! images stand against that or against what CRIU can restore, and are changed right after the dump:
//!
//! - which namespaces are CRIU's own (`inventory.img`): those of users, host name and cgroups are
//!   made by the launcher, and CRIU is to take them as they are;
//! - processes whose session leader is gone and whose parent is not process 1 (`pstree.img`): CRIU
//!   restores such only as children of process 1, which reaps them as well.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// The numbers of fields in `inventory.img` and in `ids-*.img`.
const ROOT_IDS: u64 = 3;
const HOST_NAME: u64 = 8;
const USERS: u64 = 10;
const CGROUPS: u64 = 11;

/// The numbers of fields in `pstree.img`.
const PID: u64 = 1;
const PARENT: u64 = 2;
const SESSION: u64 = 4;

/// Changes the images in this folder.
pub(super) fn fit(folder: &Path) -> io::Result<()> {
    let ids = fs::read(folder.join("ids-1.img"))?;
    let ids = entries(&ids, 8)?.into_iter().next().ok_or_else(odd)?;
    let path = folder.join("inventory.img");
    let inventory = fs::read(&path)?;
    fs::write(path, own_namespaces(&inventory, &ids)?)?;
    let path = folder.join("pstree.img");
    let tree = fs::read(&path)?;
    fs::write(path, adopt_orphans(&tree)?)
}

/// The inventory, in which the launcher's namespaces are CRIU's own.
fn own_namespaces(inventory: &[u8], ids: &Message) -> io::Result<Vec<u8>> {
    let mut entry = entries(inventory, 4)?.into_iter().next().ok_or_else(odd)?;
    for field in &mut entry.0 {
        if let (ROOT_IDS, Value::Bytes(bytes)) = (field.0, &mut field.1) {
            let mut root = Message::parse(bytes)?;
            for (number, value) in &mut root.0 {
                if [HOST_NAME, USERS, CGROUPS].contains(number)
                    && let Some(known) = ids.number(*number)
                {
                    *value = Value::Number(known);
                }
            }
            *bytes = root.bytes();
        }
    }
    Ok(image(&inventory[..4], &[entry]))
}

/// The tree, in which process 1 is the parent of whoever has a session that no ancestor leads.
fn adopt_orphans(tree: &[u8]) -> io::Result<Vec<u8>> {
    let mut all = entries(tree, 8)?;
    let of = |entry: &Message| {
        let number = |field| entry.number(field).ok_or_else(odd);
        Ok::<_, io::Error>((number(PID)?, (number(PARENT)?, number(SESSION)?)))
    };
    let known: BTreeMap<u64, (u64, u64)> = all.iter().map(of).collect::<io::Result<_>>()?;
    for entry in &mut all {
        let (pid, (parent, session)) = of(entry)?;
        let of_parent = known.get(&parent).map(|(_, session)| *session);
        if session == pid || of_parent.is_none() || of_parent == Some(session) {
            continue;
        }
        let mut ancestor = parent;
        // As many steps as there are processes, should the image go in circles.
        for _ in 0..known.len() {
            match known.get(&ancestor) {
                Some((above, _)) if ancestor != session => ancestor = *above,
                _ => break,
            }
        }
        if ancestor != session {
            for (number, value) in &mut entry.0 {
                if *number == PARENT {
                    *value = Value::Number(1);
                }
            }
        }
    }
    Ok(image(&tree[..8], &all))
}

/// The messages of an image, behind its marks.
fn entries(image: &[u8], marks: usize) -> io::Result<Vec<Message>> {
    let mut rest = image.get(marks..).ok_or_else(odd)?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(odd)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| odd())?;
        entries.push(Message::parse(behind.get(..length).ok_or_else(odd)?)?);
        rest = &behind[length..];
    }
    Ok(entries)
}

fn image(marks: &[u8], entries: &[Message]) -> Vec<u8> {
    let mut image = marks.to_vec();
    for entry in entries {
        let bytes = entry.bytes();
        image.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        image.extend(bytes);
    }
    image
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an image of CRIU's is not what it should be")
}

/// A message of protocol buffers, as far as it must be known to change one number.
#[derive(Debug, PartialEq, Eq)]
struct Message(Vec<(u64, Value)>);

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
    /// Of four or of eight bytes.
    Fixed(Vec<u8>),
}

impl Message {
    fn parse(mut bytes: &[u8]) -> io::Result<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = take_number(&mut bytes)?;
            let mut take = |length: usize| {
                let taken = bytes.get(..length).ok_or_else(odd)?.to_vec();
                bytes = &bytes[length..];
                Ok::<_, io::Error>(taken)
            };
            let value = match key & 7 {
                0 => Value::Number(take_number(&mut bytes)?),
                1 => Value::Fixed(take(8)?),
                5 => Value::Fixed(take(4)?),
                2 => {
                    let length = take_number(&mut bytes)?;
                    let length = usize::try_from(length).map_err(|_| odd())?;
                    let taken = bytes.get(..length).ok_or_else(odd)?.to_vec();
                    bytes = &bytes[length..];
                    Value::Bytes(taken)
                }
                _ => return Err(odd()),
            };
            fields.push((key >> 3, value));
        }
        Ok(Self(fields))
    }

    /// The first number with this field.
    fn number(&self, field: u64) -> Option<u64> {
        self.0.iter().find_map(|(number, value)| match value {
            Value::Number(value) if *number == field => Some(*value),
            _ => None,
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, value) in &self.0 {
            let kind = match value {
                Value::Number(_) => 0,
                Value::Bytes(_) => 2,
                Value::Fixed(bytes) if bytes.len() == 8 => 1,
                Value::Fixed(_) => 5,
            };
            put_number(&mut bytes, number << 3 | kind);
            match value {
                Value::Number(value) => put_number(&mut bytes, *value),
                Value::Bytes(value) => {
                    put_number(&mut bytes, value.len() as u64);
                    bytes.extend(value);
                }
                Value::Fixed(value) => bytes.extend(value),
            }
        }
        bytes
    }
}

fn take_number(bytes: &mut &[u8]) -> io::Result<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or_else(odd)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(odd())
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fields: &[(u64, u64)]) -> Message {
        Message(fields.iter().map(|(field, value)| (*field, Value::Number(*value))).collect())
    }

    #[test]
    fn the_launchers_namespaces_become_crius_own_and_all_else_stays() {
        let ids = message(&[(1, 2), (8, 12), (9, 13), (10, 300), (11, 15)]);
        let root = message(&[(1, 1), (8, 4), (9, 6), (10, 7), (11, 8)]);
        let before = Message(vec![
            (1, Value::Number(2)),
            (3, Value::Bytes(root.bytes())),
            (9, Value::Fixed(vec![1; 4])),
        ]);
        let inventory = own_namespaces(&image(b"mark", &[before]), &ids).unwrap();
        let after = entries(&inventory, 4).unwrap().pop().unwrap();
        let root = message(&[(1, 1), (8, 12), (9, 6), (10, 300), (11, 15)]);
        assert_eq!(after.0[1], (3, Value::Bytes(root.bytes())));
        assert_eq!(after.0[2], (9, Value::Fixed(vec![1; 4])));
    }

    #[test]
    fn whoever_has_a_session_without_a_leader_above_becomes_process_ones_child() {
        let process = |pid, parent, session| message(&[(1, pid), (2, parent), (4, session)]);
        let tree = [
            process(1, 0, 1),
            process(2, 1, 1),
            process(4, 2, 1),
            // Its leader, 5, is gone; its child is in the same session.
            process(7, 4, 5),
            process(9, 7, 5),
            // A leader with a child that has a child.
            process(20, 4, 20),
            process(21, 20, 20),
        ];
        let image = adopt_orphans(&image(b"twomarks", &tree)).unwrap();
        let parents: Vec<u64> = entries(&image, 8)
            .unwrap()
            .iter()
            .map(|process| process.number(PARENT).unwrap())
            .collect();
        assert_eq!(parents, [0, 1, 2, 1, 7, 4, 20]);
    }

    #[test]
    fn what_is_no_image_is_an_error() {
        for bytes in [&b"x"[..], b"twomarks\xff\xff\xff\xff", b"twomarks\x02\x00\x00\x00\x08"] {
            assert!(entries(bytes, 8).is_err(), "{bytes:?}");
        }
    }
}
