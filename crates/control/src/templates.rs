//! Templates: imported, seen, chosen, removed.
//!
//! Everybody with a key sees and uses them; only who imported one replaces or removes it. An image
//! is unpacked by the provider; what is written down with it is made here.

use std::sync::Arc;

use domain::{TemplateName, TemplateRecord};
use policy::{Action, Caller, Denied, Permitted};
use provider::{Archive, ProviderError, Template as Found, TemplateKind};

use crate::wish::Wish;
use crate::{Control, ControlError, Shared, build, now};

/// A template that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// What is written down with it.
    pub record: TemplateRecord,
    /// Some of the sandboxes that stand on it.
    pub sandboxes: Vec<domain::SandboxId>,
    /// Whether sandboxes can be made from it as it is.
    pub state: TemplateState,
}

/// Whether sandboxes can be made from a template as it is. All but the first is only said of the
/// one that Soma builds, and whoever wants it waits until it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateState {
    /// They can.
    Ready,
    /// It is being built.
    Building {
        /// What is being done.
        progress: String,
    },
    /// It was built for a Python that the host has no more, or with other packages.
    Outdated,
    /// Nobody wanted it yet.
    NotBuilt,
    /// The last build failed.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Control {
    /// Makes a template from an image, which is read no faster than it is unpacked.
    ///
    /// When the caller goes away before the answer, nothing is left of it.
    pub async fn import_template(
        &self,
        caller: &Caller,
        name: TemplateName,
        replace: bool,
        archive: Archive,
    ) -> Result<Template, ControlError> {
        if build::is_alias(name.as_str()) {
            let reason =
                format!("`{name}` is another name of `{}`: import it under that name", build::NAME);
            return Err(ControlError::Invalid { reason });
        }
        if name.as_str() == build::NAME {
            // Everybody gets it without having asked for somebody's image.
            self.shared.rules.decide(caller, Action::Oversee, ())?;
        }
        let archive = self.shared.rules.decide(caller, Action::ImportTemplate, archive)?;
        let named = self.shared.rules.decide(caller, Action::ImportTemplate, name.clone())?;
        // Said before anything is sent, and once more when it is kept.
        if let Some(there) = self.shared.find_template(&name).await? {
            if !replace {
                return Err(ProviderError::TemplateExists { name }.into());
            }
            self.shared.may_change(caller, &there)?;
        }
        let staged = self.shared.provider.stage_template(archive).await?;
        let record = TemplateRecord::new(name, caller.owner.clone(), now(), staged.report.clone());
        let text = record.to_text().map_err(|error| ControlError::Broken {
            step: "write the template's record".to_owned(),
            source: Box::new(error),
        })?;
        // Whether or not somebody still waits: it is kept, or it is gone.
        let (shared, caller, wanted) = (Arc::clone(&self.shared), caller.clone(), replace);
        let keeping = self.shared.tasks.spawn(async move {
            let _turn = shared.templates.lock().await;
            // It may be another's by now. Whoever keeps it refuses then, and removes what it has.
            let there = shared.find_template(named.get()).await.ok().flatten();
            let replace = there.is_some_and(|there| shared.may_change(&caller, &there).is_ok());
            let replace = replace && wanted;
            let kind = TemplateKind::System;
            shared.provider.keep_template(staged, &named, &text, kind, replace).await
        });
        keeping.await.map_err(|_| ControlError::Closing)??;
        Ok(Template { record, sandboxes: Vec::new(), state: TemplateState::Ready })
    }

    /// Every template, in the order of their names.
    pub async fn templates(&self, caller: &Caller) -> Result<Vec<Template>, ControlError> {
        self.shared.rules.decide(caller, Action::SeeTemplates, ())?;
        let found = self.shared.provider.templates().await?;
        let is_there = found.iter().any(|found| found.name.as_str() == build::NAME);
        let mut all: Vec<Template> =
            found.into_iter().filter_map(|found| self.shared.read(found)).collect();
        if !is_there {
            all.push(self.unbuilt()?);
            all.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        }
        Ok(all)
    }

    /// One template.
    pub async fn template(
        &self,
        caller: &Caller,
        name: &TemplateName,
    ) -> Result<Template, ControlError> {
        let all = self.templates(caller).await?;
        let found = all.into_iter().find(|template| template.record.name == *name);
        Ok(found.ok_or_else(|| ProviderError::NoTemplate { name: name.clone() })?)
    }

    /// Removes a template that no sandbox stands on.
    pub async fn remove_template(
        &self,
        caller: &Caller,
        name: TemplateName,
    ) -> Result<(), ControlError> {
        self.shared.rules.decide(caller, Action::SeeTemplates, ())?;
        let _turn = self.shared.templates.lock().await;
        let there = self.shared.find_template(&name).await?;
        let there = there.ok_or(ProviderError::NoTemplate { name })?;
        let name = self.shared.may_change(caller, &there)?;
        Ok(self.shared.provider.remove_template(&name).await?)
    }

    /// The wish with what its template brings: the variables of the image, where the wish has no
    /// other value for them.
    pub(crate) async fn with_template(
        &self,
        caller: &Caller,
        mut wish: Wish,
    ) -> Result<Wish, ControlError> {
        let Some(name) = wish.imported_template()? else { return Ok(wish) };
        if name.as_str() == build::NAME {
            self.shared.rules.decide(caller, Action::SeeTemplates, ())?;
            self.built().await?;
        }
        let found = self.shared.provider.templates().await?;
        let all: Vec<Template> =
            found.into_iter().filter_map(|found| self.shared.read(found)).collect();
        let Some(template) = all.iter().find(|template| template.record.name == name) else {
            let others = all.iter().map(|template| &template.record.name);
            let others = others.filter(|other| other.as_str() != build::NAME);
            let names = others.map(|other| format!(", `{other}`"));
            let reason = format!(
                "there is no template `{name}`: this soma has `default`, `{}`{}; `soma template \
                 import` makes more",
                build::NAME,
                names.collect::<String>()
            );
            return Err(ControlError::NoTemplate { reason });
        };
        for (name, value) in &template.record.image.config.environment {
            wish.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Ok(wish)
    }
}

impl Shared {
    pub(crate) async fn find_template(
        &self,
        name: &TemplateName,
    ) -> Result<Option<Found>, ControlError> {
        let all = self.provider.templates().await?;
        Ok(all.into_iter().find(|template| template.name == *name))
    }

    /// The name of a template that this caller may replace or remove.
    fn may_change(
        &self,
        caller: &Caller,
        there: &Found,
    ) -> Result<Permitted<TemplateName>, Denied> {
        let owner = TemplateRecord::from_text(&there.record).ok().map(|record| record.owner);
        let action = Action::ChangeTemplate(&there.name, owner.as_ref());
        self.rules.decide(caller, action, there.name.clone())
    }

    /// A template whose record cannot be read was made by a later Soma, or is damaged: it is not
    /// shown, and the log says why.
    fn read(&self, found: Found) -> Option<Template> {
        let is_ready = self.is_ready(&found);
        match TemplateRecord::from_text(&found.record) {
            Ok(record) => {
                let state =
                    if is_ready { TemplateState::Ready } else { self.builds.describe(true) };
                Some(Template { record, sandboxes: found.sandboxes, state })
            }
            Err(error) => {
                tracing::warn!(template = %found.name, %error, "a template's record is left alone");
                None
            }
        }
    }
}
