//! What a daemon says when it is ready: where it is, its key, and three lines to paste.
//!
//! The lines work in another shell as they stand: they name this program where `soma` would be
//! another or none, the home where it is not the usual one, and what an ordinary user's sandboxes
//! need to be allowed.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use domain::Token;

use crate::arguments::{HOME_OF_ROOT, default_home};
use crate::failure::Failure;
use crate::output;

/// What there is to say about a daemon.
pub(super) struct Daemon<'a> {
    pub(super) address: SocketAddr,
    pub(super) key: &'a Token,
    pub(super) key_file: &'a Path,
    pub(super) home: &'a Path,
    /// Whether root started it, and not an ordinary user.
    pub(super) is_root: bool,
}

/// Says it.
pub(super) fn print(daemon: &Daemon<'_>) -> Result<(), Failure> {
    let usual = if daemon.is_root { Some(HOME_OF_ROOT.into()) } else { default_home().ok() };
    output::words(&words(daemon, &program(), usual.as_deref())).map(|_| ())
}

fn words(daemon: &Daemon<'_>, program: &str, usual: Option<&Path>) -> String {
    let Daemon { address, key, key_file, home, is_root } = daemon;
    let (key, near) = (key.reveal(), near(*address));
    let home = if usual == Some(*home) {
        String::new()
    } else {
        format!(" --home {}", quoted(&home.to_string_lossy()))
    };
    // Nothing limits the disk of an ordinary user's sandbox, so it is made only when that is said.
    let (flag, body) =
        if *is_root { ("", "{}") } else { (" --allow-unenforced", "{\"allow_unenforced\":true}") };
    format!(
        "Soma listens at http://{address}\n\
         API key: {key}\n\
         It is kept in {}\n\
         \n\
         Try:\n\
         \x20 {program}{home} run{flag} 'print(6*7)'\n\
         \x20 curl -H 'Authorization: Bearer {key}' --json '{body}' http://{near}/v1/sandbox\n\
         \x20 xdg-open http://{near}/docs\n",
        key_file.display()
    )
}

/// How to type this program: by its bare name where that finds it.
fn program() -> String {
    let Ok(own) = env::current_exe() else { return "soma".to_owned() };
    let folders = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&folders).map(|folder| folder.join("soma")).find(|it| it.is_file());
    if found.is_some_and(|found| is_same(&found, &own)) {
        "soma".to_owned()
    } else {
        quoted(&own.to_string_lossy())
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| fs::metadata(path).map(|it| (it.dev(), it.ino())));
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

/// An address that can be dialled on this machine.
fn near(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(listen: &str, home: &str, is_root: bool) -> String {
        let daemon = Daemon {
            address: listen.parse().unwrap(),
            key: &Token::new("e2b_0123456789abcdef"),
            key_file: Path::new("/h/daemon/api-key"),
            home: Path::new(home),
            is_root,
        };
        words(&daemon, "soma", Some(Path::new("/var/lib/soma")))
    }

    #[test]
    fn the_first_line_is_the_address_and_the_rest_can_be_pasted() {
        let said = said("127.0.0.1:7070", "/var/lib/soma", true);
        assert!(said.starts_with("Soma listens at http://127.0.0.1:7070\n"), "{said}");
        let lines: Vec<&str> = said.lines().skip_while(|line| *line != "Try:").skip(1).collect();
        assert_eq!(
            lines,
            [
                "  soma run 'print(6*7)'",
                "  curl -H 'Authorization: Bearer e2b_0123456789abcdef' --json '{}' \
                 http://127.0.0.1:7070/v1/sandbox",
                "  xdg-open http://127.0.0.1:7070/docs",
            ]
        );
    }

    #[test]
    fn another_home_is_named_and_what_a_user_has_to_allow_is_allowed() {
        let said = said("127.0.0.1:7070", "/home/a b/it's", false);
        let line = "soma --home '/home/a b/it'\\''s' run --allow-unenforced 'print(6*7)'";
        assert!(said.contains(line), "{said}");
        assert!(said.contains("--json '{\"allow_unenforced\":true}'"), "{said}");
    }

    #[test]
    fn every_address_of_the_machine_is_dialled_at_its_own() {
        let said = said("[::]:7070", "/var/lib/soma", true);
        assert!(said.starts_with("Soma listens at http://[::]:7070\n"), "{said}");
        assert!(said.contains("xdg-open http://[::1]:7070/docs"), "{said}");
    }
}
