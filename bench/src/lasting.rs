//! What it costs to last: the state that a create writes, and a daemon that comes back to many
//! sandboxes.

use std::fs::{self, File};
use std::io::Write as _;
use std::time::{Duration, Instant};

use domain::Lifetime;

use crate::contest::{Allowance, Contest, Settings};
use crate::engine::{PREPARED, Running};

/// What writing state may add to a create.
const MOST_FOR_STATE: Duration = Duration::from_millis(3);

/// A create that writes its state beside one that writes none, and a bare write of as much.
pub(crate) fn print(settings: &Settings) -> anyhow::Result<()> {
    let engine = Running::start(settings, PREPARED);
    let folder = tempfile::tempdir()?;
    let mut contest = Contest::new("A sandbox, and what it costs to write it down");
    contest.row("a file of 2 KB, its folder, both to the disk", &[], || bare(folder.path()));
    match &engine {
        Ok(engine) => {
            let name = "soma, prepared parts, nothing written";
            let peer = contest.row(name, &[], || engine.made(Lifetime::WithCaller));
            let name = "soma, prepared parts, kept";
            contest.row_above(name, Allowance { peer, most: MOST_FOR_STATE }, || {
                engine.made(Lifetime::Kept)
            });
        }
        Err(error) => {
            contest.absent("soma, prepared parts, kept", format!("{error:#}"));
        }
    }
    contest.run(settings);
    Ok(())
}

/// What any program must do that wants a file to be there after a power cut.
fn bare(folder: &std::path::Path) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let mut file = File::create(folder.join("new"))?;
    file.write_all(&[b'x'; 2048])?;
    file.sync_all()?;
    fs::rename(folder.join("new"), folder.join("file"))?;
    File::open(folder)?.sync_all()?;
    Ok(begin.elapsed())
}
