//! Who is who in the sandbox.
//!
//! `/etc/passwd` and `/etc/group` are read anew for every question: users are added while the
//! sandbox runs, and the guest is static and has no name service of the C library to ask. Both
//! files belong to whoever is root in the sandbox, so they are read with a limit, lines that make
//! no sense are passed over, and a pipe in their place does not hang the guest.
//!
//! Start at [`find`].

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use base64::Engine as _;
use http::HeaderMap;
use rustix::fs::{FileType, Mode, OFlags};

/// As much as is read of `/etc/passwd` and of `/etc/group`.
const LARGEST_FILE: u64 = 4 << 20;

/// As many groups as a user is given; the kernel takes 65536.
const MOST_GROUPS: usize = 1024;

/// An account of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// The name of the account.
    pub(crate) name: String,
    /// The user id.
    pub(crate) uid: u32,
    /// The id of the primary group.
    pub(crate) gid: u32,
    /// All groups, the primary one first.
    pub(crate) groups: Vec<u32>,
    /// The home folder, always absolute.
    pub(crate) home: PathBuf,
    /// The login shell.
    pub(crate) shell: PathBuf,
}

/// Finds the account called `name`.
pub(crate) fn find(name: &str) -> Option<User> {
    find_in(&read("/etc/passwd"), &read("/etc/group"), name)
}

/// Finds the account whose id is `uid`.
pub(crate) fn find_by_id(uid: u32) -> Option<User> {
    let passwd = read("/etc/passwd");
    let account = passwd.lines().filter_map(Account::parse).find(|one| one.uid == uid)?;
    find_in(&passwd, &read("/etc/group"), account.name)
}

/// The id of the group called `name`.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    let groups = read("/etc/group");
    let group = groups.lines().filter_map(Group::parse).find(|one| one.name == name)?;
    Some(group.gid)
}

/// Finds the account called `name`, or says that there is none in the words of the protocol.
///
/// A sandbox that a user of the host made may have few ids, or only one: nobody can be whom it
/// has no id for.
pub(crate) fn require(name: &str) -> Result<User, String> {
    let mut user = find(name).ok_or_else(|| format!("invalid username: '{name}'"))?;
    if !has_id(&read("/proc/self/uid_map"), user.uid) {
        let uid = user.uid;
        return Err(format!(
            "invalid username: '{name}' (this sandbox does not have its id {uid})"
        ));
    }
    let groups = read("/proc/self/gid_map");
    user.groups.retain(|group| has_id(&groups, *group));
    Ok(user)
}

/// Whether an id is in a map of the kernel's: lines of first id, its counterpart, count.
fn has_id(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap_or(0));
        let (first, count): (u32, u32) = (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0));
        id.checked_sub(first).is_some_and(|distance| distance < count)
    })
}

/// The user that a request names in its `Authorization: Basic` header.
///
/// There is no password: the name only says whom to act for.
pub(crate) fn named_in(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded.trim()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let name = decoded.split_once(':').map_or(decoded.as_str(), |(name, _)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

/// The names of all users and groups, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    /// Reads the names as they are now.
    pub(crate) fn read() -> Self {
        let mut names = Self::default();
        // The first line of an id wins, as it does for the C library.
        for account in read("/etc/passwd").lines().filter_map(Account::parse) {
            names.users.entry(account.uid).or_insert_with(|| account.name.to_owned());
        }
        for group in read("/etc/group").lines().filter_map(Group::parse) {
            names.groups.entry(group.gid).or_insert_with(|| group.name.to_owned());
        }
        names
    }

    /// The name of the user `uid`, or the number where it has none.
    pub(crate) fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// The name of the group `gid`, or the number where it has none.
    pub(crate) fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

fn find_in(passwd: &str, group: &str, name: &str) -> Option<User> {
    let account = passwd.lines().filter_map(Account::parse).find(|one| one.name == name)?;
    let mut groups = vec![account.gid];
    for group in group.lines().filter_map(Group::parse) {
        let is_member = group.members.split(',').any(|member| member == name);
        if is_member && !groups.contains(&group.gid) && groups.len() < MOST_GROUPS {
            groups.push(group.gid);
        }
    }
    Some(User {
        name: account.name.to_owned(),
        uid: account.uid,
        gid: account.gid,
        groups,
        home: PathBuf::from(if account.home.starts_with('/') { account.home } else { "/" }),
        shell: PathBuf::from(if account.shell.is_empty() { "/bin/sh" } else { account.shell }),
    })
}

/// A line of `/etc/passwd`.
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

impl<'a> Account<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        let uid = parse_id(fields.next()?)?;
        let gid = parse_id(fields.next()?)?;
        let _comment = fields.next()?;
        let home = fields.next()?;
        Some(Self { name, uid, gid, home, shell: fields.next()?.trim_end() })
    }
}

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        let gid = parse_id(fields.next()?)?;
        Some(Self { name, gid, members: fields.next()?.trim_end() })
    }
}

/// Reads an id, as it stands in a file or after a `#`. The largest number is not one: to `setuid` and `chown` it means "leave as it
/// is", and a command of that user would run as root.
pub(crate) fn parse_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

/// Reads a small text file; what is not there, not a file or not text counts as empty.
fn read(path: &str) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return String::new() };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let mut bytes = Vec::new();
    if is_file {
        // An error in the middle leaves the lines that were read, which is the most there is.
        let _ = File::from(file).take(LARGEST_FILE).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        # a comment\n\
        broken:x:notanumber:5::/:/bin/sh\n\
        short:x:7\n\
        nogroup:x:9:none::/:/bin/sh\n\
        :x:8:8::/:/bin/sh\n\
        everyone:x:4294967295:4294967295::/:/bin/sh\n\
        user:x:1000:1001:A User,,,:/home/user:/bin/bash\n\
        bare:x:1002:1002::relative:\n\
        user:x:0:0:second line of a name:/root:/bin/sh\n";
    const GROUP: &str = "root:x:0:\n\
        sudo:x:27:other,user\n\
        users:x:1001:user\n\
        docker:x:notanumber:user\n\
        video:x:44:superuser,user2\n";

    #[test]
    fn only_ids_of_the_map_are_there() {
        let map = "         0     300000       2047\n     65534     302047          1\n";
        assert!(has_id(map, 0) && has_id(map, 2046) && has_id(map, 65_534));
        assert!(!has_id(map, 2047) && !has_id(map, 65_535) && !has_id("", 0));
    }

    #[test]
    fn a_user_has_the_groups_that_list_it_and_its_own_first() {
        let user = find_in(PASSWD, GROUP, "user").unwrap();
        assert_eq!(user.uid, 1000);
        assert_eq!(user.gid, 1001);
        assert_eq!(user.groups, [1001, 27]);
        assert_eq!(user.home, PathBuf::from("/home/user"));
        assert_eq!(user.shell, PathBuf::from("/bin/bash"));
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        for name in ["broken", "short", "nogroup", "", "# a comment", "nobody-here"] {
            assert_eq!(find_in(PASSWD, GROUP, name), None, "{name:?}");
        }
    }

    #[test]
    fn the_id_that_means_unchanged_is_nobody() {
        assert_eq!(find_in(PASSWD, GROUP, "everyone"), None);
    }

    #[test]
    fn a_home_that_is_not_absolute_and_a_missing_shell_get_defaults() {
        let bare = find_in(PASSWD, GROUP, "bare").unwrap();
        assert_eq!(bare.home, PathBuf::from("/"));
        assert_eq!(bare.shell, PathBuf::from("/bin/sh"));
    }

    #[test]
    fn an_id_without_a_name_is_its_number() {
        let names = Names::read();
        assert_eq!(names.user(0), "root");
        assert_eq!(names.group(0), "root");
        assert_eq!(names.user(3_999_999_999), "3999999999");
        assert_eq!(names.group(3_999_999_999), "3999999999");
    }

    #[test]
    fn a_device_in_place_of_a_file_is_empty() {
        assert_eq!(read("/dev/zero"), "");
        assert_eq!(read("/no/such/file"), "");
    }

    #[test]
    fn the_basic_header_names_the_user_and_any_other_names_nobody() {
        let named = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::AUTHORIZATION, value.parse().unwrap());
            named_in(&headers)
        };
        assert_eq!(named("Basic dXNlcjo=").as_deref(), Some("user"));
        assert_eq!(named("basic dXNlcg==").as_deref(), Some("user"));
        assert_eq!(named("Basic dXNlcjpwYXNzOndvcmQ=").as_deref(), Some("user"));
        for value in ["Bearer dXNlcjo=", "Basic", "Basic !!!", "Basic Og==", "Basic /w=="] {
            assert_eq!(named(value), None, "{value}");
        }
        assert_eq!(named_in(&HeaderMap::new()), None);
    }

    proptest! {
        #[test]
        fn no_content_of_the_files_breaks_the_search(passwd in ".{0,200}", group in ".{0,200}") {
            find_in(&passwd, &group, "user");
        }
    }
}
