//! Templates: imported, seen, chosen, removed.
//!
//! They are the machine's, and everybody with a key shares them. An image is unpacked by the
//! provider; what is written down with it is made here.

use std::sync::Arc;

use domain::{TemplateName, TemplateRecord};
use policy::{Action, Caller};
use provider::{Archive, ProviderError, Template as Found};

use crate::wish::Wish;
use crate::{Control, ControlError, now};

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
        let rules = &self.shared.rules;
        let archive = rules.decide(caller, Action::ManageTemplates, archive)?;
        let named = rules.decide(caller, Action::ManageTemplates, name.clone())?;
        let provider = Arc::clone(&self.shared.provider);
        let is_there = provider.templates().await?.iter().any(|template| template.name == name);
        if is_there && !replace {
            // Said before anything is sent, and once more by whoever keeps it.
            return Err(ProviderError::TemplateExists { name }.into());
        }
        let staged = provider.stage_template(archive).await?;
        let record = TemplateRecord::new(name, now(), staged.report.clone());
        let text = record.to_text().map_err(|error| ControlError::Broken {
            step: "write the template's record".to_owned(),
            source: Box::new(error),
        })?;
        // Whether or not somebody still waits: it is kept, or it is gone.
        let keeping = self
            .shared
            .tasks
            .spawn(async move { provider.keep_template(staged, &named, &text, replace).await });
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
        let name = self.shared.rules.decide(caller, Action::ManageTemplates, name)?;
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
