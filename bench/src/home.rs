//! A Soma of the benchmark's own: a home in a temporary folder, whose engine ends with it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use provider_native::{Home, NativeProvider};
use sys_linux::command::command;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::contest::Settings;
use crate::{output, processes};

const PATIENCE: Duration = Duration::from_secs(30);

/// A home, and the runtime on which its engine is asked.
#[derive(Debug)]
pub(crate) struct BenchHome {
    pub(crate) runtime: Runtime,
    folder: TempDir,
    engine: Option<Child>,
}

impl BenchHome {
    /// A home without an engine; `soma run` starts one in it as for any user.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, folder: tempfile::tempdir()?, engine: None })
    }

    /// A home whose engine keeps so many sandboxes prepared.
    pub(crate) fn with_engine(settings: &Settings, prepared: u32) -> anyhow::Result<Self> {
        let mut home = Self::new()?;
        // `setpriv` ends the engine also when this program is killed.
        let engine = command("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(&settings.soma)
            .args(["engine", "--prepared", &prepared.to_string(), "--home"])
            .arg(home.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("could not start the engine")?;
        home.engine = Some(engine);
        Ok(home)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program, with this home.
    pub(crate) fn soma(&self, settings: &Settings) -> Command {
        let mut soma = command(&settings.soma);
        soma.env("SOMA_HOME", self.path());
        if let Some(criu) = std::env::var_os("SOMA_CRIU") {
            soma.env("SOMA_CRIU", criu);
        }
        soma
    }

    /// The engine of this home, as soon as it answers.
    pub(crate) fn provider(&mut self) -> anyhow::Result<NativeProvider> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            // The client registers its socket with the runtime that it is made on.
            let _on_runtime = self.runtime.enter();
            if let Some(provider) = NativeProvider::find(&Home::at(self.path()))? {
                return Ok(provider);
            }
            if let Some(engine) =
                self.engine.take_if(|engine| matches!(engine.try_wait(), Ok(Some(_))))
            {
                let left = engine.wait_with_output()?;
                let words = String::from_utf8_lossy(&left.stderr);
                bail!("the engine left with {}: {}", left.status, words.trim());
            }
            sleep(Duration::from_millis(10));
        }
        bail!("the engine does not answer")
    }

    /// Waits until so many sandboxes are prepared.
    pub(crate) fn wait_for_prepared(
        &self,
        provider: &NativeProvider,
        wanted: u32,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        while self.runtime.block_on(provider.prepared())? < wanted {
            if begin.elapsed() > PATIENCE {
                bail!("the engine does not prepare {wanted} sandboxes");
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for BenchHome {
    fn drop(&mut self) {
        // A command may have started one, which would start another engine.
        processes::end_daemon(self.path());
        let ended = {
            let _on_runtime = self.runtime.enter();
            NativeProvider::find(&Home::at(self.path()))
        };
        if let Ok(Some(provider)) = ended
            && let Err(error) = self.runtime.block_on(provider.end_engine())
        {
            output::complain(&format!(
                "could not end the engine of {}: {error}",
                self.path().display()
            ));
        }
        if let Some(mut engine) = self.engine.take() {
            let _ = engine.kill();
            let _ = engine.wait();
        }
    }
}
