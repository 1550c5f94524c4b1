//! `soma new`: a sandbox that is kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use domain::{SandboxName, SandboxSpec};

use crate::failure::{Failure, refused};
use crate::output::building::watched;
use crate::session::{LimitOptions, environment, wish};
use crate::{daemon, output};

/// What is typed after `soma new`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma new
  soma new --name my-box --timeout 2h --memory 4g
  soma new --label project=web --label owner=ann --env STAGE=test
  soma new --allow pypi.org --allow '*.pythonhosted.org' --inject 'api.x.com:Authorization=$KEY'
  id=$(soma new) && soma exec $id -- uname -a

A sandbox ends when its time is over, and its files stay until `soma rm`; `soma timeout` gives it
more time.

Exit codes: 0 when it can be used; 1 when it was refused, such as for a name that is taken; 2 when
this line makes no sense; 125 when Soma failed.")]
pub(crate) struct NewArguments {
    /// What to call it: lowercase letters, digits and hyphens.
    #[arg(long, short, value_name = "NAME")]
    name: Option<SandboxName>,
    /// Something to find it by; can be repeated.
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// A variable for every command in it; can be repeated.
    // Taken as it is and read later: clap would repeat a wrong one, and it may be a secret.
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// How long it runs, such as 30m or 2h [default: 5m].
    #[arg(long, short, value_name = "TIME", value_parser = domain::parse_duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    limits: LimitOptions,
    /// Write all about it as JSON instead of its id.
    #[arg(long)]
    json: bool,
}

#[cfg(test)]
impl NewArguments {
    pub(crate) fn limits(&self) -> &LimitOptions {
        &self.limits
    }
}

/// Makes one and says its id.
pub(crate) fn run(home: &Path, arguments: NewArguments) -> Result<u8, Failure> {
    let NewArguments { name, label, env, timeout, limits, json } = arguments;
    let timeout = timeout.or(domain::Limits::default().timeout);
    let spec = SandboxSpec { environment: environment(env)?, ..limits.spec(timeout)? };
    let mut wish = wish(&spec);
    wish.network_policy = limits.network()?;
    wish.name = name.map(|name| name.to_string());
    let labels: BTreeMap<String, String> = label.into_iter().collect();
    wish.labels = (!labels.is_empty()).then_some(labels);
    let made = daemon::ask(home, async |client| {
        let making = client.create(&wish);
        watched(&client, wish.template_name.as_deref(), making).await.map_err(refused)
    })?;
    if json { output::json(&made) } else { output::words(&format!("{}\n", made.id)) }
}

/// A key and a value.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is KEY=VALUE".to_owned()),
    }
}
