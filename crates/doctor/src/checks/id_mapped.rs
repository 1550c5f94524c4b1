//! Id-mapped mounts: how one copy of the files serves sandboxes with different ids.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use sys_linux::mount::{Attributes, map_ids};
use sys_linux::namespace::Namespaces;

use super::ids::{RANGE, ROOTS_FIRST};
use crate::attempt::{QUICK, Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::holder::Holder;
use crate::host::Host;
use crate::mounts::{mount_of, mounts};

const NAME: &str = "id-mapped-mounts";

pub(crate) fn check(host: &Host) -> Finding {
    let places = [Path::new("/usr"), host.nearest()];
    let tried = attempt(QUICK, || {
        if host.is_root() {
            let holder = Holder::start()?;
            holder.map(ROOTS_FIRST, RANGE)?;
            let ids = holder.namespace()?;
            return places.into_iter().try_for_each(|place| map(place, &ids));
        }
        within(Namespaces::USER.and(Namespaces::MOUNT), || {
            super::namespaces::map_own_id(host)?;
            let ids = File::open("/proc/self/ns/user").step("open the user namespace")?;
            places.into_iter().try_for_each(|place| map(place, &ids))
        })
    });
    let finding = match tried {
        Ok(()) => Finding::works(NAME, format!("mapped `/usr` and `{}`", places[1].display())),
        Err(refusal) if !host.is_root() => {
            Finding::missing(NAME, format!("only root can map the ids of a mount: {refusal}"))
        }
        Err(refusal) => explain(&refusal, places),
    };
    let without = if host.is_root() {
        "cannot make root's sandboxes: their files have ids of their own"
    } else {
        "shows the host's files with the ids that the user namespace has for them"
    };
    finding.required(host.is_root()).without(without)
}

fn map(place: &Path, ids: &File) -> Result<(), Refusal> {
    let step = format!("map the ids of `{}`", place.display());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, place, flags).step(&step)?;
    map_ids(&tree, Attributes::SAFE_READ_ONLY, ids.as_fd()).step(&step)
}

fn explain(refusal: &Refusal, places: [&Path; 2]) -> Finding {
    if refusal.errno() != Some(Errno::INVAL) {
        return Finding::missing(NAME, refusal.to_string());
    }
    let mounts = mounts();
    let kind_of = |place: &Path| mount_of(&mounts, place).map_or("unknown", |mount| &mount.kind);
    let at_home =
        refusal.step.contains(&format!("`{}`", places[1].display())) && places[1] != places[0];
    let kind = kind_of(places[usize::from(at_home)]);
    let says = format!("{refusal}: the file system {kind} cannot do that on this kernel");
    let fix =
        at_home.then(|| Fix::shown_to_anybody("export SOMA_HOME=/a/folder/on/ext4/xfs/or/btrfs"));
    Finding::missing(NAME, says).fix(fix)
}
