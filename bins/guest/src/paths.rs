//! What a caller means by a path.
//!
//! The rules are those of E2B's agent: nothing means the default folder or the home, `~` is the
//! home, a relative path starts at the home, and an absolute one is taken as it is, so that the
//! kernel resolves its links and `..` in their order. Nothing is looked up here: that the guest
//! lives inside the sandbox is what keeps every path inside it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::users::User;

/// Makes `path` absolute, as `user` means it.
///
/// `default` is what an empty path stands for; without one that is the user's home.
pub(crate) fn expand(
    path: impl AsRef<OsStr>,
    user: &User,
    default: Option<&Path>,
) -> Result<PathBuf, String> {
    let path = path.as_ref();
    let bytes = path.as_bytes();
    if bytes.contains(&0) {
        return Err("a path cannot hold a NUL byte".to_owned());
    }
    if bytes.is_empty() {
        let default = default.unwrap_or(&user.home);
        return Ok(if default.is_absolute() { default.into() } else { below(&user.home, default) });
    }
    if let Some(rest) = bytes.strip_prefix(b"~") {
        if !rest.is_empty() && !rest.starts_with(b"/") {
            let path = path.to_string_lossy();
            return Err(format!("cannot expand the home of another user in '{path}'"));
        }
        // Slashes in front are taken out with the rest.
        return Ok(below(&user.home, Path::new(OsStr::from_bytes(rest))));
    }
    let path = Path::new(path);
    Ok(if path.is_absolute() { path.into() } else { below(&user.home, path) })
}

/// Joins a relative path to a folder and takes out `.` and `..`.
///
/// `..` takes back the part before it by name alone, as in the reference; at the root it stays.
fn below(folder: &Path, relative: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for component in folder.components().chain(relative.components()) {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user() -> User {
        User {
            name: "user".to_owned(),
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            home: PathBuf::from("/home/user"),
            shell: PathBuf::from("/bin/sh"),
        }
    }

    fn expanded(path: &str) -> String {
        expand(path, &user(), None).unwrap().into_os_string().into_string().unwrap()
    }

    #[test]
    fn nothing_means_the_default_folder_and_then_the_home() {
        assert_eq!(expanded(""), "/home/user");
        let workspace = Path::new("/workspace");
        assert_eq!(expand("", &user(), Some(workspace)).unwrap(), workspace);
        assert_eq!(
            expand("", &user(), Some(Path::new("code"))).unwrap(),
            Path::new("/home/user/code")
        );
        assert_eq!(expand("x", &user(), Some(workspace)).unwrap(), Path::new("/home/user/x"));
    }

    #[test]
    fn a_tilde_is_the_home_and_that_of_others_is_refused() {
        assert_eq!(expanded("~"), "/home/user");
        assert_eq!(expanded("~/"), "/home/user");
        assert_eq!(expanded("~/a/b"), "/home/user/a/b");
        assert_eq!(expanded("~//a"), "/home/user/a");
        assert_eq!(expanded("a/~"), "/home/user/a/~");
        let refused = expand("~root/x", &user(), None).unwrap_err();
        assert_eq!(refused, "cannot expand the home of another user in '~root/x'");
    }

    #[test]
    fn a_relative_path_starts_at_the_home_and_is_cleaned() {
        assert_eq!(expanded("a"), "/home/user/a");
        assert_eq!(expanded("./a/../b/."), "/home/user/b");
        assert_eq!(expanded("../../../../etc"), "/etc");
        assert_eq!(expanded("."), "/home/user");
    }

    #[test]
    fn an_absolute_path_is_left_to_the_kernel() {
        for path in ["/", "/a/../b", "//a//b/", "/C:\\x", "/a b\n", "/\u{202e}rtl", "/😀"] {
            assert_eq!(expanded(path), path);
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        for (path, expected) in [(&b"/a\xff"[..], &b"/a\xff"[..]), (b"~/\xfe", b"/home/user/\xfe")]
        {
            let expanded = expand(OsStr::from_bytes(path), &user(), None).unwrap();
            assert_eq!(expanded.as_os_str().as_bytes(), expected);
        }
    }

    #[test]
    fn a_nul_byte_is_refused() {
        assert!(expand("/a\0b", &user(), None).is_err());
        assert!(expand("\0", &user(), None).is_err());
    }

    proptest! {
        #[test]
        fn every_path_becomes_absolute_or_is_refused(path in any::<String>()) {
            match expand(&path, &user(), None) {
                Ok(path) => prop_assert!(path.is_absolute()),
                Err(message) => prop_assert!(!message.is_empty()),
            }
        }

        #[test]
        fn a_relative_path_keeps_its_names_exactly(names in prop::collection::vec("[^/\0]{1,8}", 1..5)) {
            prop_assume!(names.iter().all(|name| name != "." && name != ".."));
            prop_assume!(!names[0].starts_with('~'));
            let expected = format!("/home/user/{}", names.join("/"));
            prop_assert_eq!(expanded(&names.join("/")), expected);
        }
    }
}
