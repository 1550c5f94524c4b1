//! Sandboxes on the disk: their processes with their memory, written and read by CRIU.
//!
//! ```text
//!  hibernate: dump to `asleep.new` -> images edited, summed, on the disk -> renamed to `asleep`
//!             -> the processes, which stand still all the while, are killed
//!       wake: restored and held before their first instruction -> manifest written
//!             -> `asleep` renamed to `awoken` -> they run -> `awoken` removed
//! ```
//!
//! While `asleep.new` is there a dump is under way or was interrupted, and the sandbox is to stand
//! still, be it that CRIU let it go and died. The folder's name is the whole truth: as long as `asleep` is there, whatever lives of the sandbox
//! has not run since, and is killed by the next engine; once it is not, it is never restored again.
//! So a sandbox is never there twice, and never lost between the two.
//!
//! Start at [`dump`], then `launch/wake.rs`, which needs a launcher's surroundings.

mod about;
mod dump;
mod images;
mod program;
mod unsettled;

use std::path::Path;

pub(crate) use about::About;
pub(crate) use dump::{Sleeper, Subject, follow, inside_id, start, usual};
pub(crate) use program::{Program, blame};

/// A sandbox's images, whole.
pub(crate) const ASLEEP: &str = "asleep";
/// Images that are being written.
pub(crate) const NEW: &str = "asleep.new";
/// Images that were used, and are worth nothing any more.
pub(crate) const AWOKEN: &str = "awoken";
/// Says that its processes were restored since it was started, and lack what CRIU does not carry.
pub(crate) const WOKEN: &str = "woken";
/// What CRIU says.
pub(crate) const LOG: &str = "checkpoint.log";

/// Whether the truth about the sandbox in this folder is its images.
pub(crate) fn is_asleep(folder: &Path) -> bool {
    folder.join(ASLEEP).exists()
}
