//! What the processes of one home have in memory.
//!
//! Shares (PSS): what several processes have together, such as the program's pages, counts for
//! each by its part, so that their sum is what the machine lacks.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::processes::{self, Process, share};

/// KiB of the daemon, its starter and the engine of a home, by what they are.
///
/// Guests and supervisors are not among them: their memory is the sandboxes' own.
pub(super) fn of(home: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for Process { role, folder } in processes::of(home) {
        let kibibytes =
            share(&folder).with_context(|| format!("the memory of the {role} cannot be read"))?;
        *found.entry(role.to_owned()).or_insert(0) += kibibytes;
    }
    for role in ["engine", "daemon"] {
        ensure!(found.contains_key(role), "the {role} was not found among the processes");
    }
    Ok(found)
}
