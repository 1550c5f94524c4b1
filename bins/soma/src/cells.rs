//! Cells in one context: what `soma repl` and `soma notebook run` have in common.
//!
//! [`CellOptions`] is what can be typed about where they run, [`Workplace`] is the place itself: a
//! context in a fresh sandbox that is gone afterwards, or in one that is there and stays.

mod workplace;

use std::collections::BTreeMap;
use std::ffi::OsString;

use api_v1::network::Network;
use clap::Args;
use domain::{Lifetime, SandboxSpec};

use crate::failure::Failure;
use crate::session::{LimitOptions, environment};
pub(crate) use workplace::{Cell, Workplace};

/// What can be typed about where cells run.
#[derive(Debug, Args)]
pub(crate) struct CellOptions {
    #[command(flatten)]
    limits: LimitOptions,
    /// A variable for the code; can be repeated.
    // Taken as it is and read later: clap would repeat a wrong one, and it may be a secret.
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// The folder in the sandbox to begin in [default: the user's home].
    #[arg(long, short, value_name = "FOLDER")]
    workdir: Option<String>,
}

/// Where cells shall run.
#[derive(Debug)]
pub(crate) struct Wish {
    /// A sandbox that is there; a fresh one otherwise.
    which: Option<String>,
    /// A context that is there; a new one otherwise.
    context: Option<String>,
    spec: SandboxSpec,
    network: Option<Network>,
    environment: BTreeMap<String, String>,
    workdir: Option<String>,
}

impl CellOptions {
    /// Refuses what makes no sense, before anything is made.
    pub(crate) fn wish(
        self,
        which: Option<String>,
        context: Option<String>,
    ) -> Result<Wish, Failure> {
        if which.is_some() {
            self.limits.refuse_what_is_set_at_first()?;
        }
        if context.is_some() {
            if which.is_none() {
                return Err(Failure::usage("--context names a context of a sandbox that is there")
                    .hint("name the sandbox too"));
            }
            let typed = [("--env", !self.env.is_empty()), ("--workdir", self.workdir.is_some())];
            if let Some((name, _)) = typed.iter().find(|(_, typed)| *typed) {
                let message = format!(
                    "{name} is set when a context is made, and the one that was named is there"
                );
                return Err(Failure::usage(message));
            }
        }
        let mut spec = self.limits.spec(None)?;
        spec.lifetime = Lifetime::WithCaller;
        Ok(Wish {
            which,
            context,
            spec,
            network: self.limits.network()?,
            environment: environment(self.env)?,
            workdir: self.workdir,
        })
    }
}
