//! The variables that a program gets from `sudo`.
//!
//! Few of the caller's, as everywhere: what says how to show things, and, because packages are
//! what `sudo` is mostly used for, where the network's proxy is and whom to trust.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use sys_linux::command::SYSTEM_PATH;

use super::arguments::Options;
use crate::users::User;

/// What is kept of the caller's environment.
const KEPT: &[&str] = &[
    "COLORTERM",
    "COLUMNS",
    "CURL_CA_BUNDLE",
    "DISPLAY",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LS_COLORS",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TZ",
    "XAUTHORITY",
];

/// Kept as well, in capital letters too.
const PROXIES: &[&str] = &["all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy"];

/// Not kept even where all are: what changes how every program begins.
const NEVER_KEPT: &[&str] = &["BASH_ENV", "CDPATH", "ENV", "IFS"];

/// The longest `SUDO_COMMAND`.
const LONGEST_COMMAND: usize = 4096;

/// Who called, and what.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    pub(super) name: &'a str,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// What is run, in one line.
    pub(super) command: OsString,
}

/// The whole environment of the program, as `NAME=value`.
pub(super) fn make(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    options: &Options,
    target: &User,
    caller: Caller<'_>,
) -> Vec<OsString> {
    let mut variables: BTreeMap<OsString, OsString> =
        own.into_iter().filter(|(name, value)| is_kept(name, value, options)).collect();
    variables.entry("TERM".into()).or_insert_with(|| "unknown".into());
    variables.insert("PATH".into(), SYSTEM_PATH.into());
    let wanted = |name: &str| options.keep.iter().any(|kept| kept == name);
    let mut set = |name: &str, value: OsString, stays: bool| {
        if !(stays && variables.contains_key(OsStr::new(name))) {
            variables.insert(name.into(), value);
        }
    };
    // With all variables kept, those two remain the caller's, which is what is wanted then.
    let home_stays = (options.keep_all || wanted("HOME")) && !options.set_home && !options.login;
    set("HOME", target.home.clone().into_os_string(), home_stays);
    let shell_stays = (options.keep_all || wanted("SHELL")) && !options.login;
    set("SHELL", target.shell.clone().into_os_string(), shell_stays);
    set("USER", target.name.clone().into(), wanted("USER"));
    set("LOGNAME", target.name.clone().into(), wanted("LOGNAME"));
    set("SUDO_USER", caller.name.into(), false);
    set("SUDO_UID", caller.uid.to_string().into(), false);
    set("SUDO_GID", caller.gid.to_string().into(), false);
    let mut command = caller.command.into_vec();
    command.truncate(LONGEST_COMMAND);
    set("SUDO_COMMAND", OsString::from_vec(command), false);
    for pair in &options.variables {
        let bytes = pair.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
        let name = OsStr::from_bytes(&bytes[..at]).to_owned();
        let value = OsStr::from_bytes(bytes.get(at + 1..).unwrap_or_default()).to_owned();
        variables.insert(name, value);
    }
    let pair = |(name, value): (OsString, OsString)| {
        OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    variables.into_iter().map(pair).collect()
}

fn is_kept(name: &OsStr, value: &OsStr, options: &Options) -> bool {
    if options.keep.iter().any(|kept| kept == name) {
        return true;
    }
    // A function that a shell exported is code.
    if value.as_bytes().starts_with(b"()") {
        return false;
    }
    let Some(name) = name.to_str() else { return options.keep_all };
    let starts_programs = name.starts_with("LD_") || NEVER_KEPT.contains(&name);
    if options.keep_all {
        return !starts_programs;
    }
    KEPT.contains(&name)
        || name.starts_with("LC_")
        || PROXIES.iter().any(|proxy| name == *proxy || name == proxy.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn root() -> User {
        User {
            name: "root".to_owned(),
            uid: 0,
            gid: 0,
            groups: vec![0],
            home: PathBuf::from("/root"),
            shell: PathBuf::from("/bin/bash"),
        }
    }

    fn make_from(own: &[(&str, &str)], options: &Options) -> BTreeMap<String, String> {
        let own = own.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let caller = Caller { name: "user", uid: 1000, gid: 1001, command: "/usr/bin/id".into() };
        make(own, options, &root(), caller)
            .into_iter()
            .map(|pair| {
                let pair = pair.into_string().unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            })
            .collect()
    }

    const OWN: &[(&str, &str)] = &[
        ("HOME", "/home/user"),
        ("USER", "user"),
        ("LOGNAME", "user"),
        ("SHELL", "/bin/zsh"),
        ("PATH", "/home/user/bin"),
        ("TERM", "xterm"),
        ("LANG", "C.UTF-8"),
        ("LC_TIME", "de_DE"),
        ("HTTPS_PROXY", "http://a"),
        ("http_proxy", "http://b"),
        ("SSL_CERT_FILE", "/ca"),
        ("SECRET", "x"),
        ("LD_PRELOAD", "/evil.so"),
        ("BASH_FUNC_x%%", "() { :; }"),
        ("SUDO_USER", "somebody"),
    ];

    #[test]
    fn the_environment_is_the_new_users_with_a_few_of_the_callers() {
        let variables = make_from(OWN, &Options::default());
        let expected = [
            ("HOME", "/root"),
            ("HTTPS_PROXY", "http://a"),
            ("LANG", "C.UTF-8"),
            ("LC_TIME", "de_DE"),
            ("LOGNAME", "root"),
            ("PATH", SYSTEM_PATH),
            ("SHELL", "/bin/bash"),
            ("SSL_CERT_FILE", "/ca"),
            ("SUDO_COMMAND", "/usr/bin/id"),
            ("SUDO_GID", "1001"),
            ("SUDO_UID", "1000"),
            ("SUDO_USER", "user"),
            ("TERM", "xterm"),
            ("USER", "root"),
            ("http_proxy", "http://b"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables, BTreeMap::from(expected));
    }

    #[test]
    fn a_missing_terminal_is_called_unknown() {
        assert_eq!(make_from(&[], &Options::default())["TERM"], "unknown");
    }

    #[test]
    fn all_are_kept_but_for_what_changes_every_program() {
        let variables = make_from(OWN, &Options { keep_all: true, ..Options::default() });
        assert_eq!(variables["SECRET"], "x");
        assert_eq!((&*variables["HOME"], &*variables["SHELL"]), ("/home/user", "/bin/zsh"));
        assert_eq!((&*variables["USER"], &*variables["PATH"]), ("root", SYSTEM_PATH));
        assert!(!variables.contains_key("LD_PRELOAD") && !variables.contains_key("BASH_FUNC_x%%"));
        let options = Options { keep_all: true, set_home: true, ..Options::default() };
        assert_eq!(make_from(OWN, &options)["HOME"], "/root");
    }

    #[test]
    fn named_ones_are_kept_and_given_ones_win() {
        let options = Options {
            keep: vec!["SECRET".into(), "USER".into(), "MISSING".into()],
            variables: vec!["LANG=de".into(), "NEW=a=b".into(), "EMPTY=".into()],
            ..Options::default()
        };
        let variables = make_from(OWN, &options);
        assert_eq!((&*variables["SECRET"], &*variables["USER"]), ("x", "user"));
        assert_eq!((&*variables["LANG"], &*variables["NEW"]), ("de", "a=b"));
        assert_eq!(variables["EMPTY"], "");
        assert!(!variables.contains_key("MISSING"));
    }
}
