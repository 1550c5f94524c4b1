//! Which files of the host's `/etc` a sandbox sees.
//!
//! An allow-list: what is not here is not there. A name stands for a file or for all below a
//! folder. Of what it stands for, only files that every user of the host may read are taken,
//! and nothing that can hold a credential.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What is copied, by the need it serves.
const ALLOWED: &[&str] = &[
    // Programs are reached through these links.
    "alternatives",
    // The dynamic loader.
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    // Whom to trust, without private keys.
    "ca-certificates.conf",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/ca-trust",
    "pki/tls/certs",
    // Names of protocols, types, terminals, times and places.
    "host.conf",
    "gai.conf",
    "protocols",
    "services",
    "rpc",
    "ethertypes",
    "mime.types",
    "mailcap",
    "magic",
    "magic.mime",
    "terminfo",
    "localtime",
    "timezone",
    "locale.alias",
    "locale.conf",
    "default/locale",
    // Which system this is.
    "debian_version",
    "issue",
    "issue.net",
    "lsb-release",
    "os-release",
    "redhat-release",
    "dpkg",
    // Where packages come from; its credentials are refused below.
    "apt/sources.list",
    "apt/sources.list.d",
    "apt/trusted.gpg",
    "apt/trusted.gpg.d",
    "apt/keyrings",
    "apt/preferences",
    "apt/preferences.d",
    "apt/apt.conf.d",
    // Shells and editors.
    "bash.bashrc",
    "bash_completion",
    "bash_completion.d",
    "inputrc",
    "shells",
    "skel",
    "vim",
    "nanorc",
    // Languages, fonts and what draws with them.
    "python3",
    "python3.9",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "perl",
    "R",
    "java-17-openjdk",
    "java-21-openjdk",
    "fonts",
    "ImageMagick-6",
    "ImageMagick-7",
    "matplotlibrc",
    "xattr.conf",
];

/// Names that can hold a credential, wherever they lie.
const NEVER: &[&str] = &["auth.conf", "auth.conf.d", "private", "credentials", "netrc"];

/// Copies what is allowed from `from` (the host's `/etc`) to `to`.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for name in ALLOWED {
        let target = to.join(name);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        copy_entry(&from.join(name), &target)?;
    }
    Ok(())
}

fn copy_entry(from: &Path, to: &Path) -> io::Result<()> {
    let forbidden = |name: &str| NEVER.contains(&name);
    if from.file_name().and_then(|name| name.to_str()).is_some_and(forbidden) {
        return Ok(());
    }
    let Ok(metadata) = fs::symlink_metadata(from) else { return Ok(()) };
    let kind = metadata.file_type();
    let for_all = metadata.permissions().mode() & 0o004 != 0;
    if kind.is_symlink() {
        // Whether it leads anywhere inside is decided there.
        return symlink(fs::read_link(from)?, to);
    }
    if !for_all {
        return Ok(());
    }
    if kind.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_entry(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if kind.is_file() && !holds_credential(from)? {
        fs::copy(from, to)?;
    }
    Ok(())
}

/// apt takes names and passwords also within the addresses of sources and proxies.
fn holds_credential(path: &Path) -> io::Result<bool> {
    if !path.components().any(|part| part.as_os_str() == "apt") {
        return Ok(false);
    }
    let text = fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.split("://").skip(1).any(|rest| {
        let host = rest.split(['/', ' ', '"', '\n']).next().unwrap_or("");
        host.contains('@')
    }))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn only_what_is_allowed_public_and_free_of_credentials_is_copied() {
        let host = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode| {
            let path = host.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        file("shadow", "root:secret", 0o600);
        file("services", "ssh 22/tcp", 0o644);
        file("ssl/certs/one.pem", "public", 0o644);
        file("ssl/private/key.pem", "secret", 0o644);
        file("apt/auth.conf", "secret", 0o644);
        file("apt/sources.list", "deb http://mirror.example/debian stable main", 0o644);
        file("apt/sources.list.d/own.list", "deb http://me:secret@mirror.example/ x", 0o644);
        file("apt/apt.conf.d/01proxy", "Acquire::http::Proxy \"http://u:p@proxy:1\";", 0o644);
        file("fonts/hidden.conf", "secret", 0o640);

        let copy_of = tempfile::tempdir().unwrap();
        copy(host.path(), copy_of.path()).unwrap();
        let there = |name: &str| copy_of.path().join(name).exists();
        assert!(there("services") && there("ssl/certs/one.pem") && there("apt/sources.list"));
        for name in [
            "shadow",
            "ssl/private/key.pem",
            "apt/auth.conf",
            "apt/sources.list.d/own.list",
            "apt/apt.conf.d/01proxy",
            "fonts/hidden.conf",
        ] {
            assert!(!there(name), "{name} was copied");
        }
    }
}
