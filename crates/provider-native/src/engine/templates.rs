//! The templates that are there: seen, chosen, removed.

use domain::{SandboxId, TemplateName};

use super::Engine;
use crate::failure::{Failure, Kind, Step};
use crate::random::random_id;
use crate::snapshot::Sealed;
use crate::template::{Imported, remove_unused};
use crate::verbs::{Listed, Record, Refusal};

/// More templates than this are more than a list can show, and than anybody needs.
const MOST_TEMPLATES: usize = 256;

/// So many of the sandboxes on a template are named.
const MOST_NAMED: usize = 5;

impl Engine {
    /// What a sandbox that is made from this name stands on.
    pub(super) fn find_template(&self, name: &TemplateName) -> Result<Imported, Refusal> {
        Imported::latest(&self.host.options.home, name)
            .ok_or_else(|| Refusal::NoTemplate(name.clone()))
    }

    pub(super) fn templates(&self) -> Vec<Listed> {
        let home = &self.host.options.home;
        let all = Imported::all(home).into_iter().take(MOST_TEMPLATES);
        let listed = all.map(|imported| Listed {
            sandboxes: self.standing_on(&imported.name),
            is_stale: imported.is_stale(home),
            name: imported.name,
        });
        listed.collect()
    }

    pub(super) fn read_template(&self, name: &TemplateName) -> Result<Record, Refusal> {
        let record = self.find_template(name)?.record(&self.host.options.home);
        Ok(record.step("read the template's record")?)
    }

    /// Removes every import of a name, unless sandboxes stand on one.
    pub(super) fn remove_template(&mut self, name: &TemplateName) -> Result<(), Refusal> {
        self.find_template(name)?;
        let sandboxes = self.standing_on(name);
        if !sandboxes.is_empty() {
            return Err(Refusal::TemplateInUse(name.clone(), sandboxes));
        }
        let snapshots = Sealed::all(&self.host.options.home).step("read the snapshots")?;
        let on_it = |sealed: &&Sealed| sealed.template.as_ref().is_some_and(|t| t.name == *name);
        if let Some(sealed) = snapshots.iter().find(on_it) {
            let reason =
                format!("snapshot `{}` stands on template `{name}`: delete it first", sealed.id);
            return Err(Refusal::Conflict(reason));
        }
        // From the latest on: what is left when one stays is one that was there.
        while let Some(imported) = Imported::latest(&self.host.options.home, name) {
            self.put_away(imported.path(&self.host.options.home))?;
        }
        self.remove_unused_imports(name);
        Ok(())
    }

    /// Whether one more name fits.
    pub(super) fn check_room_for_template(&self, name: &TemplateName) -> Result<(), Refusal> {
        let home = &self.host.options.home;
        let is_new = Imported::latest(home, name).is_none();
        if is_new && Imported::all(home).len() >= MOST_TEMPLATES {
            let cause = format!("there are {MOST_TEMPLATES} of them: remove some");
            return Err(Failure::new("keep another template", cause, Kind::NoCapacity).into());
        }
        Ok(())
    }

    /// Removes earlier imports of a name that no sandbox stands on.
    pub(super) fn remove_unused_imports(&mut self, name: &TemplateName) {
        let home = self.host.options.home.clone();
        let mut unused = Vec::new();
        // What cannot be read may stand on anything.
        let Ok(snapshots) = Sealed::all(&home) else { return };
        let is_used = |other: &TemplateName, number: u64| {
            let number = Some(number);
            let of_sandboxes = self.sandboxes.values().filter_map(|s| s.template.as_ref());
            let of_snapshots = snapshots.iter().filter_map(|sealed| sealed.template.as_ref());
            let mut templates = of_sandboxes.chain(of_snapshots);
            other != name || templates.any(|t| t.name == *name && Some(t.number) == number)
        };
        remove_unused(&home, is_used, &mut |folder| unused.push(folder));
        for folder in unused {
            // A copy that a launcher is making now ends with this.
            if folder.extension().is_none() {
                let _ = self.put_away(folder);
            }
        }
    }

    /// Takes a folder out of the templates at once; its files go in their own time.
    fn put_away(&mut self, folder: std::path::PathBuf) -> Result<(), Failure> {
        let step = "remove the template";
        let name = random_id().step(step)?;
        let aside = self.host.options.home.prepared().join(name.as_str());
        std::fs::rename(folder, &aside).step(step)?;
        self.remove(aside, None);
        Ok(())
    }

    /// Some of the sandboxes on any import of a name, running or ended.
    fn standing_on(&self, name: &TemplateName) -> Vec<SandboxId> {
        let on_it = self.sandboxes.iter().filter(|(_, sandbox)| {
            sandbox.template.as_ref().is_some_and(|template| template.name == *name)
        });
        on_it.map(|(id, _)| id.clone()).take(MOST_NAMED).collect()
    }
}
