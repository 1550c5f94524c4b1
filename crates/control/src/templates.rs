//! Templates: imported, seen, chosen, removed.
//!
//! Everybody with a key sees and uses them; only who imported one replaces or removes it. An image
//! is unpacked by the provider; what is written down with it is made here.

use std::sync::Arc;

use domain::{TemplateName, TemplateRecord};
use policy::{Action, Caller, Denied, Permitted};
use provider::{Archive, ProviderError, Template as Found};

use crate::wish::Wish;
use crate::{Control, ControlError, Shared, now};

/// A template that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// What is written down with it.
    pub record: TemplateRecord,
    /// Some of the sandboxes that stand on it.
    pub sandboxes: Vec<domain::SandboxId>,
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
            shared.provider.keep_template(staged, &named, &text, replace && wanted).await
        });
        keeping.await.map_err(|_| ControlError::Closing)??;
        Ok(Template { record, sandboxes: Vec::new() })
    }

    /// Every template, in the order of their names.
    pub async fn templates(&self, caller: &Caller) -> Result<Vec<Template>, ControlError> {
        self.shared.rules.decide(caller, Action::SeeTemplates, ())?;
        let found = self.shared.provider.templates().await?;
        Ok(found.into_iter().filter_map(read).collect())
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
    pub(crate) async fn with_template(&self, mut wish: Wish) -> Result<Wish, ControlError> {
        let Some(name) = wish.imported_template()? else { return Ok(wish) };
        let all: Vec<Template> =
            self.shared.provider.templates().await?.into_iter().filter_map(read).collect();
        let Some(template) = all.iter().find(|template| template.record.name == name) else {
            let names = all.iter().map(|template| format!(", `{}`", template.record.name));
            let reason = format!(
                "there is no template `{name}`: this soma has `default`{}; `soma template import` \
                 makes more",
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
    async fn find_template(&self, name: &TemplateName) -> Result<Option<Found>, ControlError> {
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
}

/// A template whose record cannot be read was made by a later Soma, or is damaged: it is not
/// shown, and the log says why.
fn read(found: Found) -> Option<Template> {
    match TemplateRecord::from_text(&found.record) {
        Ok(record) => Some(Template { record, sandboxes: found.sandboxes }),
        Err(error) => {
            tracing::warn!(template = %found.name, %error, "a template's record is left alone");
            None
        }
    }
}
