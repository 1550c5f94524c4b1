//! The template `code-interpreter`, which is built here when somebody first wants it.
//!
//! ```text
//! an ordinary sandbox of the default template:
//!   pip installs into an empty folder ──► compiled ──► an archive ──► unpacked like any image
//!                                                                     and kept as a layer
//! ```
//!
//! One build serves everybody who waits for it, and goes on when none of them does any more. It
//! lives in a sandbox that is gone when the daemon is, so one that was cut short leaves nothing.
//! A layer is for one Python of the host's and for the packages that the operator chose: when
//! either is another, the next who wants the template waits for a new one.
//!
//! What is installed, and by which commands, is in [`recipe`].

mod recipe;
mod tail;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{
    ImageReport, Labels, Limits, NetworkMode, NetworkPolicy, OnTimeout, Owner, TemplateName,
    TemplateRecord, Timestamp,
};
use futures::future::BoxFuture;
use futures::stream::unfold;
use guest_proto::GuestClient;
use guest_proto::client::{Event, Running, StartOptions};
use policy::{Action, Caller};
use provider::{Archive, Template as Found, TemplateKind};
use tail::Tail;
use tokio::sync::watch;
use tokio_util::io::StreamReader;

use crate::{Control, ControlError, Reference, Shared, Template, TemplateState, Wish, now};
pub use recipe::{InvalidPackage, PACKAGES, Packages};
pub(crate) use recipe::{NAME, is_alias, resolve};

/// The build that is under way, if one is, and why the last one failed, if it did.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What it is doing, and at its end what came of it.
    now: Option<watch::Receiver<Told>>,
    failed: Option<String>,
}

#[derive(Debug, Clone)]
enum Told {
    Doing(String),
    Done(Result<(), String>),
}

impl Builds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be said of a template that is not ready.
    pub(crate) fn describe(&self, is_there: bool) -> TemplateState {
        let state = self.state();
        if let Some(now) = &state.now {
            let progress = match &*now.borrow() {
                Told::Doing(words) => words.clone(),
                Told::Done(_) => String::new(),
            };
            return TemplateState::Building { progress };
        }
        match &state.failed {
            Some(reason) => TemplateState::Failed { reason: reason.clone() },
            None if is_there => TemplateState::Outdated,
            None => TemplateState::NotBuilt,
        }
    }
}

impl Control {
    /// Builds a template ahead, or waits for the build that is under way.
    ///
    /// When the caller goes away before the answer, the build goes on.
    pub async fn build_template(
        &self,
        caller: &Caller,
        name: &TemplateName,
    ) -> Result<Template, ControlError> {
        self.shared.rules.decide(caller, Action::SeeTemplates, ())?;
        if resolve(name.as_str()) != NAME {
            let reason = format!("`{name}` is not built here: only `{NAME}` is; import an image");
            return Err(ControlError::Invalid { reason });
        }
        self.built().await?;
        self.template(caller, &recipe::name()?).await
    }

    /// Returns when the template is there, for the Python and the packages of now.
    pub(crate) async fn built(&self) -> Result<(), ControlError> {
        if self.is_built().await? {
            return Ok(());
        }
        let mut told = self.begin();
        let done = told.wait_for(|told| matches!(told, Told::Done(_))).await;
        match done.map(|told| told.clone()) {
            Ok(Told::Done(Err(reason))) => Err(ControlError::NotBuilt { reason }),
            Ok(_) => Ok(()),
            Err(_) => Err(ControlError::Closing),
        }
    }

    /// The template before anybody wanted it.
    pub(crate) fn unbuilt(&self) -> Result<Template, ControlError> {
        let report = ImageReport::default();
        let record = TemplateRecord::new(recipe::name()?, Owner::default(), Timestamp(0), report);
        let record = record.built_with(self.shared.packages.words());
        let state = self.shared.builds.describe(false);
        Ok(Template { record, sandboxes: Vec::new(), state })
    }

    async fn is_built(&self) -> Result<bool, ControlError> {
        let all = self.shared.provider.templates().await?;
        let found = all.iter().find(|found| found.name.as_str() == NAME);
        Ok(found.is_some_and(|found| self.shared.is_ready(found)))
    }

    /// Begins a build, unless one is under way.
    fn begin(&self) -> watch::Receiver<Told> {
        let mut state = self.shared.builds.state();
        if let Some(now) = &state.now {
            return now.clone();
        }
        let (tell, told) = watch::channel(Told::Doing("preparing a sandbox".to_owned()));
        state.now = Some(told.clone());
        state.failed = None;
        let control = self.clone();
        self.shared.tasks.spawn(async move {
            // Also when this panics, the next one begins anew.
            let under_way = UnderWay(Arc::clone(&control.shared));
            let built = tokio::select! {
                () = control.shared.closing.cancelled() => Err(ControlError::Closing),
                built = control.build(&tell) => built,
            };
            let outcome = built.map_err(|error| match error {
                ControlError::NotBuilt { reason } => reason,
                error => domain::Event::words_of(&error),
            });
            if let Err(reason) = &outcome {
                tracing::warn!(template = NAME, %reason, "the template was not built");
                under_way.0.builds.state().failed = Some(reason.clone());
            }
            drop(under_way);
            let _ = tell.send(Told::Done(outcome));
        });
        told
    }

    /// Boxed, because making a sandbox may build, and building makes a sandbox.
    fn build<'a>(
        &'a self,
        tell: &'a watch::Sender<Told>,
    ) -> BoxFuture<'a, Result<(), ControlError>> {
        Box::pin(async move {
            // Somebody else's may have come to its end meanwhile.
            if self.is_built().await? {
                return Ok(());
            }
            let say = |words: String| drop(tell.send(Told::Doing(words)));
            let caller = Caller::soma();
            let wish = self.wish_for_build();
            let held = self.create_held(&caller, wish).await?;
            let guest = self.guest(&caller, &Reference::from(&held.lease().id)).await?;
            for step in self.shared.packages.steps() {
                say(step.what.to_owned());
                match run(&guest, step.words, &say).await {
                    Err(ControlError::NotBuilt { .. }) if step.may_fail => {}
                    done => done?,
                }
            }
            say("keeping what was installed".to_owned());
            let archive = archive(&guest).await?;
            self.keep(&caller, archive).await
        })
    }

    /// It reaches what is public, and what the operator's configuration grants to everybody.
    fn wish_for_build(&self) -> Wish {
        let mode = NetworkMode::AllowAll;
        Wish {
            limits: Limits { timeout: Some(recipe::LONGEST), ..Limits::default() },
            labels: Labels::from([("soma.build".to_owned(), NAME.to_owned())]),
            on_timeout: OnTimeout::Delete,
            allow_unenforced: self.shared.rules.unenforced,
            network: Some(NetworkPolicy { mode, ..NetworkPolicy::default() }.into()),
            ..Wish::default()
        }
    }

    async fn keep(&self, caller: &Caller, archive: Archive) -> Result<(), ControlError> {
        let shared = &self.shared;
        let archive = shared.rules.decide(caller, Action::ImportTemplate, archive)?;
        let name = shared.rules.decide(caller, Action::ImportTemplate, recipe::name()?)?;
        let staged = shared.provider.stage_template(archive).await?;
        let report = staged.report.clone();
        let record = TemplateRecord::new(name.get().clone(), Owner::default(), now(), report);
        let record = record.built_with(shared.packages.words());
        let text = record.to_text().map_err(|error| ControlError::Broken {
            step: "write the template's record".to_owned(),
            source: Box::new(error),
        })?;
        let _turn = shared.templates.lock().await;
        // Somebody's own image of this name stays; what was built is gone then.
        let there = shared.find_template(name.get()).await?;
        let replace = there.is_some_and(|there| is_built_here(&there));
        Ok(shared
            .provider
            .keep_template(staged, &name, &text, TemplateKind::Layer, replace)
            .await?)
    }
}

/// Takes the build away when it is over.
struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.builds.state().now = None;
    }
}

impl Shared {
    /// Whether sandboxes can be made from it as it is. What somebody imported always can.
    pub(crate) fn is_ready(&self, found: &Found) -> bool {
        let record = TemplateRecord::from_text(&found.record);
        let with = record.map(|record| record.packages).unwrap_or_default();
        with.is_empty() || (!found.is_stale && with == self.packages.words())
    }
}

fn is_built_here(found: &Found) -> bool {
    TemplateRecord::from_text(&found.record).is_ok_and(|record| !record.packages.is_empty())
}

/// Runs one step to its end, and says what it says.
async fn run(
    guest: &GuestClient,
    words: Vec<String>,
    say: &impl Fn(String),
) -> Result<(), ControlError> {
    let mut running = start(guest, words).await?;
    let mut tail = Tail::default();
    while let Some(event) = running.next().await? {
        match event {
            Event::Stdout(bytes) | Event::Stderr(bytes) => {
                if let Some(line) = tail.push(&bytes) {
                    say(line);
                }
            }
            Event::Ended(ended) if ended.exec_errno.is_some() => {
                let reason = "the host has no `python3`: install Python and pip on it".to_owned();
                return Err(ControlError::NotBuilt { reason });
            }
            Event::Ended(ended) if ended.code != 0 => {
                return Err(ControlError::NotBuilt { reason: tail.explain(&ended) });
            }
            _ => {}
        }
    }
    Ok(())
}

async fn start(guest: &GuestClient, words: Vec<String>) -> Result<Running, ControlError> {
    let mut words = words.into_iter();
    let options = StartOptions {
        cmd: words.next().unwrap_or_default(),
        args: words.collect(),
        timeout: Some(recipe::LONGEST),
        ..StartOptions::default()
    };
    Ok(guest.start(options).await?)
}

/// What was installed, as it is read.
async fn archive(guest: &GuestClient) -> Result<Archive, ControlError> {
    let running = start(guest, recipe::archive()).await?;
    let pieces = unfold((running, Tail::default()), |(mut running, mut tail)| async {
        loop {
            let piece = match running.next().await {
                Ok(Some(Event::Stdout(bytes))) => Ok(bytes),
                Ok(Some(Event::Ended(ended))) if ended.code != 0 => {
                    Err(io::Error::other(tail.explain(&ended)))
                }
                Ok(Some(Event::Stderr(bytes))) => {
                    tail.push(&bytes);
                    continue;
                }
                Ok(Some(_)) => continue,
                Ok(None) => return None,
                Err(error) => Err(io::Error::other(error)),
            };
            return Some((piece, (running, tail)));
        }
    });
    Ok(Box::new(StreamReader::new(Box::pin(pieces))))
}
