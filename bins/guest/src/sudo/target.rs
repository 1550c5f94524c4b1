//! Whom `sudo` makes of its caller, and what that user runs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::process::{getgid, getgroups, getuid};

use super::arguments::Options;
use crate::users::{self, User};

/// The account that the program runs as, with its group and groups as asked for.
pub(super) fn find(options: &Options) -> Result<User, String> {
    let mut target = match (&options.user, &options.group) {
        (Some(name), _) => named(name)?,
        // A group alone changes nothing else.
        (None, Some(_)) => by_id(getuid().as_raw()),
        (None, None) => named("root")?,
    };
    if options.keep_groups {
        let groups = getgroups().map_err(|errno| format!("cannot read the groups: {errno}"))?;
        target.groups = groups.into_iter().map(rustix::fs::Gid::as_raw).collect();
    }
    if let Some(name) = &options.group {
        let number = name.strip_prefix('#').and_then(users::parse_id);
        let group = number.or_else(|| users::group_id(name));
        target.gid = group.ok_or_else(|| format!("unknown group {name}"))?;
        if !target.groups.contains(&target.gid) {
            target.groups.push(target.gid);
        }
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    check_id(&map, target.uid)?;
    Ok(target)
}

/// The account of whoever called, also where the id has no name.
pub(super) fn caller() -> User {
    let mut caller = by_id(getuid().as_raw());
    caller.gid = getgid().as_raw();
    caller
}

fn named(name: &str) -> Result<User, String> {
    let number = name.strip_prefix('#').and_then(users::parse_id);
    match number {
        Some(uid) => Ok(by_id(uid)),
        None => users::find(name).ok_or_else(|| format!("unknown user {name}")),
    }
}

fn by_id(uid: u32) -> User {
    users::find_by_id(uid).unwrap_or_else(|| User {
        name: uid.to_string(),
        uid,
        gid: uid,
        groups: vec![uid],
        home: PathBuf::from("/"),
        shell: PathBuf::from("/bin/sh"),
    })
}

/// Whether there is such an id in the sandbox at all, by the kernel's map of its ids.
fn check_id(map: &str, uid: u32) -> Result<(), String> {
    let ranges: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(str::parse);
            let first = numbers.next()?.ok()?;
            let length = numbers.nth(1)?.ok()?;
            Some((first, length))
        })
        .collect();
    let uid = u64::from(uid);
    if ranges.iter().any(|(first, length)| (*first..first.saturating_add(*length)).contains(&uid)) {
        return Ok(());
    }
    match ranges.as_slice() {
        [(_, 1)] if uid == 0 => {
            Err("this sandbox has only one id, so there is no root in it".to_owned())
        }
        [(only, 1)] => Err(format!("this sandbox has only one id, {only}, and not {uid}")),
        _ => Err(format!("this sandbox has no id {uid}")),
    }
}

/// The program and the arguments with which it is called, its own name first.
pub(super) fn command(
    options: &Options,
    caller: &User,
    target: &User,
) -> (OsString, Vec<OsString>) {
    if !options.login && !options.shell {
        let name = options.command.first().cloned().unwrap_or_default();
        return (name, options.command.clone());
    }
    let shell = if options.login {
        target.shell.clone().into_os_string()
    } else {
        let own = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        own.unwrap_or_else(|| caller.shell.clone().into_os_string())
    };
    let name = shell.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // By the dash a shell knows that it is one to log in with.
    let name = if options.login { [b"-", name].concat() } else { name.to_vec() };
    let mut arguments = vec![OsString::from_vec(name)];
    if !options.command.is_empty() {
        arguments.push("-c".into());
        arguments.push(escaped(&options.command));
    }
    (shell, arguments)
}

/// Words in one line for a shell, which splits them as they are; variables are left to it.
fn escaped(words: &[OsString]) -> OsString {
    let mut line = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        for byte in word.as_bytes() {
            // A shell takes a backslash at the end of a line for a line that goes on.
            if *byte == b'\n' {
                line.extend(b"'\n'");
                continue;
            }
            if !byte.is_ascii_alphanumeric() && byte.is_ascii() && !b"_-$".contains(byte) {
                line.push(b'\\');
            }
            line.push(*byte);
        }
    }
    OsString::from_vec(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_outside_of_the_map_is_not_there() {
        let whole = "         0          0 4294967295\n";
        assert_eq!(check_id(whole, 0), Ok(()));
        let sandbox = "         0     100000      65536\n";
        assert_eq!(check_id(sandbox, 65535), Ok(()));
        assert_eq!(check_id(sandbox, 65536), Err("this sandbox has no id 65536".to_owned()));
    }

    #[test]
    fn a_sandbox_with_one_id_says_so() {
        let one = "      1000       1000          1\n";
        assert_eq!(check_id(one, 1000), Ok(()));
        let why = check_id(one, 0).unwrap_err();
        assert_eq!(why, "this sandbox has only one id, so there is no root in it");
        assert!(check_id(one, 33).unwrap_err().contains("1000"));
    }

    #[test]
    fn unknown_names_are_named() {
        let options = Options { user: Some("nobodyatall".to_owned()), ..Options::default() };
        assert_eq!(find(&options), Err("unknown user nobodyatall".to_owned()));
        let options = Options { group: Some("nogroupatall".to_owned()), ..Options::default() };
        assert_eq!(find(&options), Err("unknown group nogroupatall".to_owned()));
    }

    #[test]
    fn a_number_is_a_user_without_a_name() {
        let options = Options { user: Some("#54321".to_owned()), ..Options::default() };
        let target = find(&options).unwrap();
        assert_eq!((target.uid, target.name.as_str()), (54321, "54321"));
    }

    #[test]
    fn a_shell_gets_the_words_in_one_line() {
        let words = ["echo", "a b", "$HOME", "it's;\n", "ü-_1"].map(OsString::from);
        assert_eq!(escaped(&words), "echo a\\ b $HOME it\\'s\\;'\n' ü-_1");
        let options = Options { login: true, command: words[..2].to_vec(), ..Options::default() };
        let root = by_id(0);
        let (program, arguments) = command(&options, &root, &root);
        assert_eq!(program, root.shell);
        assert_eq!(arguments[0].as_bytes()[0], b'-');
        assert_eq!(arguments[1..], ["-c", "echo a\\ b"].map(OsString::from));
    }
}
