//! The ids that a sandbox's users get on this host.
//!
//! Root gives each sandbox a range itself. An ordinary user has what `/etc/subuid` and
//! `/etc/subgid` promise, and needs `newuidmap` and `newgidmap` to use it: set-user-id programs
//! that a container or `no_new_privs` can make powerless, so they are tried.

use std::fs;
use std::time::Duration;

use crate::attempt::{QUICK, Refusal, attempt};
use crate::finding::{Finding, Fix};
use crate::holder::Holder;
use crate::host::{Host, find_in_system};
use crate::program;

const NAME: &str = "subordinate-ids";

/// How many ids one sandbox has.
pub(super) const RANGE: u32 = 65_536;

/// Where the ranges of root's sandboxes begin.
pub(super) const ROOTS_FIRST: u32 = 0x7001_0000;

/// What is read of a file at most.
const LONGEST: usize = 1 << 20;

/// How long the helper programs may take: each was seen to take 5 ms.
const HELPERS: Duration = Duration::from_secs(3);

/// A range of ids: the first, and how many.
type Range = (u32, u32);

pub(crate) fn check(host: &Host) -> Finding {
    if host.is_root() {
        let tried = attempt(QUICK, || Holder::start()?.map(ROOTS_FIRST, RANGE));
        let finding = match tried {
            Ok(()) => Finding::works(NAME, "root gives each sandbox 65536 ids of its own"),
            Err(refusal) => {
                Finding::missing(NAME, format!("{refusal}: root here does not have all ids"))
            }
        };
        return finding
            .required(true)
            .without("cannot make root's sandboxes, each of which has ids of its own");
    }
    of_user(host)
        .without("gives every sandbox a single id, so there is one user inside and no `sudo`")
}

fn of_user(host: &Host) -> Finding {
    let files = ["/etc/subuid", "/etc/subgid"].map(|file| {
        let mut text = fs::read_to_string(file).unwrap_or_default();
        text.truncate(text.floor_char_boundary(LONGEST));
        text
    });
    let [users, groups] = files.each_ref().map(|text| promised_to(host, text));
    let who = host.who();
    let (Some(users), Some(groups)) = (users, groups) else {
        let lacking = match (users, groups) {
            (None, None) => "neither /etc/subuid nor /etc/subgid gives",
            (None, _) => "/etc/subuid does not give",
            _ => "/etc/subgid does not give",
        };
        let says = format!("{lacking} any to {who}");
        return Finding::missing(NAME, says).fix(promise(host, &files));
    };
    let helpers = ["newuidmap", "newgidmap"];
    let absent: Vec<&str> =
        helpers.into_iter().filter(|name| find_in_system(name).is_none()).collect();
    if !absent.is_empty() {
        let says = format!("{who} has {}, but there is no {}", users.1, absent.join(" and no "));
        return Finding::missing(NAME, says).fix(Fix::package("uidmap"));
    }
    match attempt(QUICK + 2 * HELPERS, || map_by_helpers(host, users, groups)) {
        Ok(()) if users.1.min(groups.1) < RANGE => {
            let says = format!(
                "{who} has {} and can use them: too few for more than one sandbox, which wants {RANGE}",
                users.1.min(groups.1)
            );
            Finding::limited(NAME, says).fix(promise(host, &files))
        }
        Ok(()) => {
            Finding::works(NAME, format!("{who} has {} and can use them", users.1.min(groups.1)))
        }
        Err(refusal) => {
            let says = format!("{who} has {}, but {refusal}", users.1);
            let reinstall = Fix::shown("apt-get install -y --reinstall uidmap");
            Finding::missing(NAME, says).fix(reinstall)
        }
    }
}

fn map_by_helpers(host: &Host, users: Range, groups: Range) -> Result<(), Refusal> {
    let holder = Holder::start()?;
    for (helper, own, (first, count)) in
        [("newuidmap", host.user_id, users), ("newgidmap", host.group_id, groups)]
    {
        let numbers = [0, own, 1, 1, first, count].map(|number| number.to_string());
        let mut command = sys_linux::command::command(helper);
        command.arg(holder.number()).args(numbers);
        program::run(&mut command, HELPERS)
            .output()
            .map_err(|words| Refusal::new(format!("use {helper}"), words))?;
    }
    Ok(())
}

/// The largest range that a file gives to the user, by name or by number.
fn promised_to(host: &Host, text: &str) -> Option<Range> {
    let number = host.user_id.to_string();
    ranges(text)
        .filter(|(owner, _)| Some(*owner) == host.user.as_deref() || *owner == number)
        .map(|(_, range)| range)
        .filter(|range| range.1 > 0)
        .max_by_key(|range| range.1)
}

fn ranges(text: &str) -> impl Iterator<Item = (&str, Range)> {
    text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        Some((owner, (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)))
    })
}

/// Gives the user a range that nobody has, in both files.
fn promise(host: &Host, files: &[String; 2]) -> Option<Fix> {
    let user = host.user.as_deref()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if user.starts_with('-') || !user.chars().all(is_plain) {
        return None;
    }
    let taken: Vec<Range> =
        files.iter().flat_map(|text| ranges(text)).map(|(_, range)| range).collect();
    let free = |first: &u32| {
        taken.iter().all(|(start, count)| {
            first.saturating_add(RANGE) <= *start || start.saturating_add(*count) <= *first
        })
    };
    // Where `useradd` gives them too.
    let first = (0..9000).map(|step| 100_000 + step * RANGE).find(free)?;
    let range = format!("{first}-{}", first + RANGE - 1);
    Some(Fix::safe(&["usermod", "--add-subuids", &range, "--add-subgids", &range, user]))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn ann() -> Host {
        let mut host = Host::here(Path::new("/nowhere"));
        host.user_id = 1000;
        host.user = Some("ann".to_owned());
        host
    }

    #[test]
    fn the_largest_range_counts_by_name_or_number() {
        let text =
            "root:1:5\nann:100000:10\n1000:200000:65536\nann:broken\nann:7:0\n10001:5:99999\n";
        assert_eq!(promised_to(&ann(), text), Some((200_000, 65_536)));
        assert_eq!(promised_to(&ann(), "ann:7:0\n"), None);
        assert_eq!(promised_to(&ann(), "annabel:7:9\n"), None);
    }

    #[test]
    fn a_new_range_overlaps_nobodys() {
        let files = ["bob:100000:65536\n".to_owned(), "eve:200000:10\n".to_owned()];
        let fix = promise(&ann(), &files).unwrap();
        assert_eq!(
            fix.command,
            "usermod --add-subuids 231072-296607 --add-subgids 231072-296607 ann"
        );
    }

    #[test]
    fn a_name_that_a_command_line_could_misread_gets_no_command() {
        let mut host = ann();
        for name in ["-rf", "a b", "x;y"] {
            host.user = Some(name.to_owned());
            assert_eq!(promise(&host, &[String::new(), String::new()]), None, "{name}");
        }
    }
}
