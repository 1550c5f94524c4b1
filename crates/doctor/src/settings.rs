//! The kernel's settings.

use std::fs;

/// The value of a setting such as `user.max_user_namespaces`; some kernels do not have it.
pub(crate) fn setting(name: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some(value.trim().to_owned())
}
