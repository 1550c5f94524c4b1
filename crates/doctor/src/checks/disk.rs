//! The home's file system: its kind, how much is free, and whether copies of it are free too.

use std::fs::File;
use std::io::Write;

use crate::attempt::{Refusal, Step};
use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::mounts::{mount_of, mounts};
use crate::scratch::Scratch;

const NAME: &str = "disk";

/// The template and one sandbox that does little.
const LEAST: u64 = 64 << 20;
/// A few sandboxes that install something.
const COMFORTABLE: u64 = 2 << 30;

pub(crate) fn check(host: &Host) -> Finding {
    let place = host.nearest();
    let mounts = mounts();
    let kind = mount_of(&mounts, place).map_or("unknown", |mount| mount.kind.as_str());
    let free =
        rustix::fs::statvfs(place).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    let finding = match (free, can_write(host)) {
        (Err(error), _) => {
            let words = crate::attempt::in_words(error);
            Finding::unknown(NAME, format!("could not ask `{}`: {words}", place.display()))
        }
        (_, Err(refusal)) => {
            Finding::missing(NAME, format!("the home `{}`: {refusal}", host.home.display()))
                .fix(Fix::shown_to_anybody("export SOMA_HOME=/a/folder/that/you/can/write"))
        }
        (Ok(free), Ok(())) => judge(free, kind, &place.to_string_lossy(), shares_blocks(host)),
    };
    finding.required(true).without(
        "cannot make sandboxes with nothing free; sandboxes whose disk the host cannot back \
         see errors when they write",
    )
}

fn judge(free: u64, kind: &str, place: &str, shares: bool) -> Finding {
    let copies = match (kind, shares) {
        ("tmpfs", _) => "it is memory, and gone after a boot",
        (_, true) => "copies share their blocks",
        (_, false) => "copies take space and time",
    };
    let says = format!("{} free on `{place}`, {kind}: {copies}", amount(free));
    if free < LEAST {
        Finding::missing(NAME, says).fix(elsewhere())
    } else if free < COMFORTABLE {
        Finding::limited(NAME, says).fix(elsewhere())
    } else {
        Finding::works(NAME, says)
    }
}

fn elsewhere() -> Fix {
    Fix::shown_to_anybody("export SOMA_HOME=/a/folder/with/more/space")
}

/// Whether the home is there and this user's, or could be made.
fn can_write(host: &Host) -> Result<(), Refusal> {
    let place = host.nearest();
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(rustix::fs::CWD, place, wanted, rustix::fs::AtFlags::EACCESS)
        .step(&format!("write to `{}`", place.display()))
}

/// Tries to make a copy that shares its blocks with the original.
fn shares_blocks(host: &Host) -> bool {
    let tried = || -> std::io::Result<()> {
        let scratch =
            Scratch::make(host).map_err(|refusal| std::io::Error::other(refusal.to_string()))?;
        let original = scratch.path().join("original");
        File::create_new(&original)?.write_all(&[1; 4096])?;
        let copy = File::create_new(scratch.path().join("copy"))?;
        Ok(rustix::fs::ioctl_ficlone(&copy, &File::open(original)?)?)
    };
    tried().is_ok()
}

/// A number of bytes as people say it.
pub(super) fn amount(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes / MIB {
        0..1024 => format!("{} MiB", bytes / MIB),
        tenths => format!("{}.{} GiB", tenths / 1024, tenths % 1024 * 10 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn little_is_limited_and_next_to_nothing_is_missing() {
        for (free, state) in
            [(LEAST - 1, State::Missing), (LEAST, State::Limited), (COMFORTABLE, State::Works)]
        {
            assert_eq!(judge(free, "ext4", "/var", false).state, state, "{free}");
        }
    }

    #[test]
    fn amounts_are_said_in_units_that_people_use() {
        assert_eq!(amount(5 << 20), "5 MiB");
        assert_eq!(amount((1 << 30) + (512 << 20)), "1.5 GiB");
        assert_eq!(amount(0), "0 MiB");
    }
}
