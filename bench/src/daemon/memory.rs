//! What the processes of one home have in memory.
//!
//! Shares (PSS): what several processes have together, such as the program's pages, counts for
//! each by its part, so that their sum is what the machine lacks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

/// KiB of the daemon, its starter and the engine of a home, by what they are.
///
/// Guests and supervisors are not among them: their memory is the sandboxes' own.
pub(super) fn of(home: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let home = home.display().to_string();
    let mut found = BTreeMap::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(typed) = fs::read(process.path().join("cmdline")) else { continue };
        let typed = String::from_utf8_lossy(&typed).into_owned();
        let words: Vec<&str> = typed.split('\0').collect();
        let is_ours = words.iter().any(|word| *word == home || *word == format!("--home={home}"));
        let Some(role) = role(&words).filter(|_| is_ours) else { continue };
        let kibibytes = share(&process.path())
            .with_context(|| format!("the memory of the {role} cannot be read"))?;
        *found.entry(role.to_owned()).or_insert(0) += kibibytes;
    }
    for role in ["engine", "daemon"] {
        ensure!(found.contains_key(role), "the {role} was not found among the processes");
    }
    Ok(found)
}

fn role(words: &[&str]) -> Option<&'static str> {
    let has = |word: &str| words.iter().any(|each| each.starts_with(word));
    if has("engine") {
        Some("engine")
    } else if has("--inside") {
        Some("daemon")
    } else if has("serve") {
        // An ordinary user's daemon starts engines itself.
        Some(if rustix::process::geteuid().is_root() { "starter" } else { "daemon" })
    } else {
        None
    }
}

fn share(process: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(process.join("smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no share there")?;
    let number = line.split_whitespace().next().context("no number there")?;
    Ok(number.parse()?)
}
