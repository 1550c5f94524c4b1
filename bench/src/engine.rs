//! What the engine takes, without the command line: sandboxes by [`Provider`], `exec` by the guest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use domain::{Lease, Lifetime, SandboxId, SandboxSpec, Timestamp};
use guest_proto::GuestClient;
use guest_proto::client::{Event, StartOptions};
use policy::{Action, Caller, Permitted, Rules};
use provider::{Provider, guest};
use provider_native::{NativeProvider, random_id};
use sys_linux::command::command;

use crate::contest::{Bound, Contest, Settings};
use crate::docker::Docker;
use crate::home::BenchHome;
use crate::{bubblewrap, output, time};

/// How many sandboxes an engine keeps ready for the rows that take prepared ones.
pub(crate) const PREPARED: u32 = 2;

/// A sandbox and `true` in it, beside bubblewrap and Docker.
pub(crate) fn sandbox_and_true(settings: &Settings) {
    output::complain("starting a Docker daemon as a peer");
    let docker = Docker::start();
    let ready = Running::start(settings, PREPARED);
    let empty = Running::start(settings, 0);

    let mut contest = Contest::new("A sandbox and `true` in it, through the engine");
    let bwrap = contest.row("bwrap --unshare-all", &[], || time(&mut bubblewrap()));
    let name = "docker run --rm --network none";
    let docker = match &docker {
        Ok(docker) => contest.row(name, &[], || time(&mut docker.run_true())),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let bounds = [Bound { peer: bwrap, most: 1.5 }, Bound { peer: docker, most: 1.0 / 30.0 }];
    for (name, engine, end, bounds) in [
        ("soma, prepared parts", &ready, End::True, &bounds[..]),
        ("soma, prepared parts, until all is gone", &ready, End::Destroyed, &[]),
        ("soma, from nothing", &empty, End::True, &[Bound { peer: bwrap, most: 6.0 }]),
    ] {
        match engine {
            Ok(engine) => contest.row(name, bounds, move || engine.lifetime(end)),
            Err(error) => contest.absent(name, format!("{error:#}")),
        };
    }
    contest.run(settings);
}

/// `true` in a sandbox that runs, beside a bare fork and exec.
pub(crate) fn exec(settings: &Settings) {
    let opened = Running::start(settings, 0).and_then(|engine| {
        let id = random_id()?;
        engine.home.runtime.block_on(engine.create(&id))?;
        Ok((engine.guest(&id)?, engine))
    });
    let mut contest = Contest::new("`true` in a sandbox that runs");
    let bare = contest.row("bare fork and exec", &[], || time(&mut command("true")));
    let name = "soma, exec through the guest";
    match &opened {
        Ok((guest, engine)) => contest.row(name, &[Bound { peer: bare, most: 3.0 }], || {
            let begin = Instant::now();
            engine.home.runtime.block_on(run_true(guest))?;
            Ok(begin.elapsed())
        }),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    contest.run(settings);
}

/// An engine that runs.
pub(crate) struct Running {
    // Before the home: the connection goes before the engine does.
    pub(crate) provider: NativeProvider,
    pub(crate) home: BenchHome,
    prepared: u32,
}

/// Where a measured life stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// When `true` has ended.
    True,
    /// When nothing of the sandbox is left.
    Destroyed,
}

impl Running {
    /// Starts an engine that keeps so many sandboxes prepared.
    pub(crate) fn start(settings: &Settings, prepared: u32) -> anyhow::Result<Self> {
        let mut home = BenchHome::with_engine(settings, prepared)?;
        let provider = home.provider()?;
        Ok(Self { provider, home, prepared })
    }

    /// Makes a sandbox with the defaults, gone with the benchmark.
    pub(crate) async fn create(&self, id: &SandboxId) -> anyhow::Result<()> {
        self.create_living(id, Lifetime::WithCaller).await
    }

    async fn create_living(&self, id: &SandboxId, lifetime: Lifetime) -> anyhow::Result<()> {
        let spec = SandboxSpec { lifetime, ..SandboxSpec::default() };
        let create = Action::Create { spec: &spec, existing: 0 };
        let spec = Rules::default().decide(&Caller::local(), create, spec.clone())?;
        // As much as the daemon writes down with one.
        let record = "x".repeat(700);
        self.provider.create(id, &spec, &record).await?;
        Ok(())
    }

    /// Makes a sandbox and runs `true` in it.
    pub(crate) async fn create_and_use(&self, id: &SandboxId) -> anyhow::Result<()> {
        self.create(id).await?;
        run_true(&self.guest(id)?).await
    }

    pub(crate) async fn destroy(&self, id: &SandboxId) -> anyhow::Result<()> {
        Ok(self.provider.destroy(&own(id)?).await?)
    }

    /// A client of a sandbox's guest.
    pub(crate) fn guest(&self, id: &SandboxId) -> anyhow::Result<GuestClient> {
        Ok(guest(Arc::new(self.provider.clone()), own(id)?))
    }

    /// One sandbox, until it can be used.
    pub(crate) fn made(&self, lifetime: Lifetime) -> anyhow::Result<Duration> {
        self.home.wait_for_prepared(&self.provider, self.prepared)?;
        self.home.runtime.block_on(async {
            let id = random_id()?;
            let begin = Instant::now();
            let made = self.create_living(&id, lifetime).await;
            let took = begin.elapsed();
            self.destroy(&id).await?;
            made.map(|()| took)
        })
    }

    /// One sandbox with `true` in it, from the wish to the end.
    pub(crate) fn lifetime(&self, end: End) -> anyhow::Result<Duration> {
        // The engine prepares the next one in the pause; a slow machine is given the rest.
        self.home.wait_for_prepared(&self.provider, self.prepared)?;
        self.home.runtime.block_on(async {
            let id = random_id()?;
            let begin = Instant::now();
            let ran = self.create_and_use(&id).await;
            let until_true = begin.elapsed();
            self.destroy(&id).await?;
            let until_destroyed = begin.elapsed();
            ran?;
            Ok(if end == End::True { until_true } else { until_destroyed })
        })
    }
}

/// A sandbox of ours that may be used.
fn own(id: &SandboxId) -> anyhow::Result<Permitted<SandboxId>> {
    let lease = Lease::new(id.clone(), SandboxSpec::default(), Timestamp(0));
    Ok(Rules::default().decide(&Caller::local(), Action::Manage(&lease), id.clone())?)
}

async fn run_true(guest: &GuestClient) -> anyhow::Result<()> {
    let options = StartOptions { cmd: "true".into(), ..StartOptions::default() };
    let mut running = guest.start(options).await?;
    while let Some(event) = running.next().await? {
        if let Event::Ended(ended) = event {
            ensure!(ended.code == 0, "true ended with {}", ended.status);
            return Ok(());
        }
    }
    bail!("the guest did not say how true ended")
}
