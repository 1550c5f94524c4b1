//! What a sandbox may use, changed while it runs.
//!
//! Memory, processors and processes are figures of its cgroups and change at once. Its disk and
//! its descriptors were given to it when it was made; asking for others is refused, never
//! silently passed over.

use domain::{Bytes, Lifetime, Limit, Limits, SandboxId};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_string, fspick};
use rustix::process::Pid;

use super::bodies::Stage;
use super::{Engine, log};
use crate::failure::{Failure, Kind, Step};
use crate::manifest::Manifest;
use crate::missing;
use crate::verbs::Refusal;

/// What marks a file system in memory.
const IN_MEMORY: i64 = 0x0102_1994;

impl Engine {
    /// Lets a sandbox use this from now on; all of it, or nothing changes.
    pub(super) fn limit(&mut self, id: &SandboxId, wanted: &Limits) -> Result<(), Refusal> {
        let sandbox = self.find(id)?;
        if let Some(ending) = sandbox.known_ending() {
            return Err(Refusal::NotRunning(ending.clone()));
        }
        if sandbox.asleep {
            return Err(Refusal::Paused);
        }
        let (before, unenforced) = (sandbox.limits.clone(), sandbox.unenforced.clone());
        let lifetime = sandbox.lifetime;
        // How long it lives is its supervisor's to keep.
        let limits = Limits { timeout: before.timeout, ..wanted.clone() };
        let limits = limits.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        refuse_what_stays(&before, &limits)?;
        self.refuse_what_nothing_holds(&before, &limits, &unenforced)?;
        let body = sandbox.body.and_then(|key| self.bodies.get(&key)).ok_or(Refusal::NotFound)?;
        let Stage::Ready(reach) = &body.stage else { return Err(Refusal::NotFound) };
        if body.stands_still() {
            return Err(Refusal::Paused);
        }
        refuse_less_than_is_used(&before, &limits, body.group.memory_in_use())?;

        let changed = body.group.limit(&limits).map_err(|failure| {
            // Between the look and the change it may have taken more.
            match refuse_less_than_is_used(&before, &limits, body.group.memory_in_use()) {
                Err(refusal) => refusal,
                Ok(()) => Refusal::Failed(failure),
            }
        });
        let kept = changed.and_then(|()| match lifetime {
            Lifetime::Kept => Ok(Manifest::read(&body.folder)
                .and_then(|manifest| manifest.with_limits(limits.clone()).write(&body.folder))
                .step("write the sandbox's manifest")?),
            Lifetime::WithCaller => Ok(()),
        });
        if let Err(refusal) = kept {
            if let Err(failure) = body.group.limit(&before) {
                log(&format!("the limits of `{id}` are neither the old nor the new: {failure}"));
            }
            return Err(refusal);
        }
        if body.group.is_there()
            && before.memory != limits.memory
            && let Err(failure) = size_shared_memory(reach.first, limits.memory)
        {
            // It holds more than that, and counts against the memory all the same.
            log(&format!("`/dev/shm` of `{id}` stays as large as it was: {failure}"));
        }
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.limits = limits;
        }
        Ok(())
    }

    /// A figure that nothing holds a sandbox to is not worth changing, and says more than is true.
    fn refuse_what_nothing_holds(
        &self,
        before: &Limits,
        wanted: &Limits,
        unenforced: &[Limit],
    ) -> Result<(), Refusal> {
        let changed = [
            (Limit::Memory, before.memory != wanted.memory),
            (Limit::Cpus, before.cpus != wanted.cpus),
        ];
        let loose: Vec<Limit> = changed
            .iter()
            .filter(|(limit, changed)| *changed && unenforced.contains(limit))
            .map(|(limit, _)| *limit)
            .collect();
        if !loose.is_empty() {
            let fix = missing::enforcement(&loose, self.host.rights);
            return Err(Refusal::Unenforced(loose, fix));
        }
        if before.pids != wanted.pids && self.host.counts_processes_by_id() {
            let cause = "without cgroups the number of processes is set when a sandbox is made: \
                         make another";
            return Err(Failure::new("change its limits", cause, Kind::Unsupported).into());
        }
        Ok(())
    }
}

fn refuse_what_stays(before: &Limits, wanted: &Limits) -> Result<(), Refusal> {
    let what = if before.disk != wanted.disk {
        "the size of its disk"
    } else if before.inodes() != wanted.inodes() {
        "the number of its inodes"
    } else if before.open_files != wanted.open_files {
        "the number of its open files"
    } else {
        return Ok(());
    };
    let reason = format!(
        "{what} is set when a sandbox is made and cannot be changed: make another sandbox, and \
         copy what it needs with `soma cp`"
    );
    Err(Refusal::Invalid(reason))
}

/// Below what is used the kernel would kill, or refuse without a figure.
fn refuse_less_than_is_used(
    before: &Limits,
    wanted: &Limits,
    used: Option<Bytes>,
) -> Result<(), Refusal> {
    match used {
        Some(used) if wanted.memory < before.memory && wanted.memory < used => {
            let used = Bytes(used.0.div_ceil(1 << 20) << 20);
            Err(Refusal::Conflict(format!(
                "it uses {used} of memory now, which is more than {}: end some of its processes \
                 first, or ask for more",
                wanted.memory
            )))
        }
        _ => Ok(()),
    }
}

/// Makes `/dev/shm` half as large as the memory: full, it leaves room for processes that die for
/// want of memory instead of the one that forks them.
pub(super) fn size_shared_memory(first: Pid, memory: Bytes) -> Result<(), Failure> {
    let step = "size `/dev/shm`";
    let size = Bytes(memory.0 / 2);
    let root = format!("/proc/{}/root", first.as_raw_pid());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty()).step(step)?;
    // The tree may be anybody's by now.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let shared = openat2(&root, "dev/shm", flags, Mode::empty(), resolve).step(step)?;
    let known = fstatfs(&shared).step(step)?;
    if known.f_type != IN_MEMORY {
        return Err(Failure::new(step, "something else is there", Kind::Broken));
    }
    let has = u64::try_from(known.f_bsize).unwrap_or(0).saturating_mul(known.f_blocks);
    if has == size.0 {
        return Ok(());
    }
    let context = fspick(&shared, "", FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC)
        .step(step)?;
    fsconfig_set_string(&context, "size", size.0.to_string()).step(step)?;
    fsconfig_reconfigure(&context).step(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_used_is_not_taken_away_and_the_figure_is_said() {
        let before = Limits::default();
        let wanted = Limits { memory: Bytes::mebibytes(100), ..before.clone() };
        let used = |mebibytes| Some(Bytes::mebibytes(mebibytes));
        assert!(refuse_less_than_is_used(&before, &wanted, used(100)).is_ok());
        assert!(refuse_less_than_is_used(&before, &wanted, None).is_ok());
        let refusal = refuse_less_than_is_used(&before, &wanted, used(101));
        assert!(matches!(refusal, Err(Refusal::Conflict(text)) if text.contains("101 MiB")));
        // More than before is never too little.
        let more = Limits { memory: Bytes::gibibytes(3), ..before.clone() };
        assert!(refuse_less_than_is_used(&before, &more, used(5000)).is_ok());
    }

    #[test]
    fn what_stays_is_named() {
        let before = Limits::default();
        for (wanted, name) in [
            (Limits { disk: Bytes::gibibytes(20), ..before.clone() }, "disk"),
            (Limits { inodes: Some(5000), ..before.clone() }, "inodes"),
            (Limits { open_files: Some(5000), ..before.clone() }, "open files"),
        ] {
            let refusal = refuse_what_stays(&before, &wanted);
            assert!(matches!(refusal, Err(Refusal::Invalid(text)) if text.contains(name)));
        }
        let wanted = Limits { pids: 9, ..before.clone() };
        assert!(refuse_what_stays(&before, &wanted).is_ok());
    }
}
