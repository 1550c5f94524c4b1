//! What is mounted, as this process sees it.

use std::fs;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Which part of its file system is mounted, `/` for all of it.
    pub(crate) root: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) kind: String,
    /// The options of the file system, not of this mount of it.
    pub(crate) options: String,
}

impl Mount {
    pub(crate) fn has_option(&self, wanted: &str) -> bool {
        self.options.split(',').any(|option| option == wanted)
    }
}

/// All mounts, in the order in which they were made.
pub(crate) fn mounts() -> Vec<Mount> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The mount that a path is on: the one with the longest path above it, and of several at one
/// place the last, which hides the others.
pub(crate) fn mount_of<'mounts>(mounts: &'mounts [Mount], path: &Path) -> Option<&'mounts Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.path))
        .max_by_key(|mount| mount.path.components().count())
}

pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let (root, path) = (before.nth(3)?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?.to_owned(), after.nth(1)?.to_owned());
    Some(Mount { root: unescape(root).into(), path: unescape(path).into(), kind, options })
}

/// Spaces and the like are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut plain = text.to_owned();
    for (escaped, character) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
    {
        plain = plain.replace(escaped, character);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_spaces_and_extra_fields_is_read() {
        let text =
            "36 35 98:0 /part /mnt\\040two rw,noatime master:1 - ext3 /dev/root rw,errors=x\n";
        let expected = Mount {
            root: "/part".into(),
            path: "/mnt two".into(),
            kind: "ext3".into(),
            options: "rw,errors=x".into(),
        };
        assert_eq!(parse(text), [expected]);
        assert_eq!(parse("garbage\n"), []);
    }

    #[test]
    fn a_path_is_on_the_nearest_mount_and_on_the_last_of_several() {
        let text = "\
1 0 0:1 / / rw - ext4 a rw
2 1 0:2 / /var rw - xfs b rw
3 1 0:3 / /var rw - btrfs c rw
";
        let mounts = parse(text);
        let kind = |path: &str| mount_of(&mounts, Path::new(path)).unwrap().kind.clone();
        assert_eq!(kind("/var/lib"), "btrfs");
        assert_eq!(kind("/variety"), "ext4");
    }
}
