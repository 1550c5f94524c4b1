//! A sandbox with cells in it.

use std::cell::RefCell;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sys_linux::command::command;

use crate::contest::Settings;
use crate::daemon::{Connection, Daemon, create};

/// A sandbox of a daemon's, and a connection that stays open.
pub(super) struct Place {
    id: String,
    connection: RefCell<Connection>,
    // Last: it removes the sandbox.
    daemon: Daemon,
}

impl Place {
    /// One with this machine's own Python and nothing beside it.
    pub(super) fn plain(settings: &Settings) -> anyhow::Result<Self> {
        let daemon = Daemon::start(settings)?;
        let mut connection = daemon.connect()?;
        let id = create(&mut connection, &json!({ "memory": 4096 }))?;
        Ok(Self { id, connection: RefCell::new(connection), daemon })
    }

    /// One with what this environment has.
    pub(super) fn with(settings: &Settings, python: &Path) -> anyhow::Result<Self> {
        let place = Self::plain(settings)?;
        let says = "import site; print(site.getsitepackages()[0])";
        let packages = command(python).args(["-c", says]).output()?;
        let packages = String::from_utf8(packages.stdout)?.trim().to_owned();
        let archive = tempfile::NamedTempFile::new()?;
        let mut pack = command("tar");
        pack.args(["-C", &packages, "-cf"]).arg(archive.path()).arg(".");
        ensure!(pack.status()?.success(), "the packages of `{packages}` cannot be packed");
        let to = format!("{}:/workspace/packages.tar", place.id);
        let mut copy = command(&settings.soma);
        copy.env("SOMA_HOME", place.daemon.path()).arg("cp").arg(archive.path()).arg(to);
        let copied = copy.stdin(Stdio::null()).output()?;
        ensure!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        place.run(
            "folder=$(python3 -c 'import site; print(site.getusersitepackages())') && mkdir -p \
             $folder && tar -C $folder -xf /workspace/packages.tar",
        )?;
        Ok(place)
    }

    /// Asks over another connection from now on: the daemon closes one that nobody uses for long.
    pub(super) fn connect_again(&self) -> anyhow::Result<()> {
        *self.connection.borrow_mut() = self.daemon.connect()?;
        Ok(())
    }

    /// A new context.
    pub(super) fn context(&self) -> anyhow::Result<String> {
        let made = self.ask("POST", "/code/contexts", &json!({ "language": "python" }))?;
        made["id"].as_str().map(str::to_owned).context("the context has no id")
    }

    pub(super) fn delete_context(&self, context: &str) -> anyhow::Result<()> {
        self.ask("DELETE", &format!("/code/contexts/{context}"), &Value::Null).map(drop)
    }

    /// Runs a cell, whose value is 2, in a context or in that which is there for everybody.
    pub(super) fn cell(&self, context: &str, code: &str) -> anyhow::Result<()> {
        let context = (!context.is_empty()).then_some(context);
        let wish = json!({ "code": code, "context_id": context, "timeout_ms": 60_000 });
        let done = self.ask("POST", "/code/execute", &wish)?;
        ensure!(done["items"][0]["text"] == "2", "the cell's value is another: {done}");
        Ok(())
    }

    /// Ends all that runs of Python, so that the next cell finds nothing.
    pub(super) fn chill(&self) -> anyhow::Result<()> {
        let listed = self.ask("GET", "/code/contexts", &Value::Null)?;
        for context in listed["items"].as_array().into_iter().flatten() {
            self.delete_context(context["id"].as_str().unwrap_or_default())?;
        }
        self.run("pkill -KILL -x python3; while pgrep -x python3; do sleep 0.01; done; true")?;
        Ok(())
    }

    /// KiB of all that runs of Python.
    pub(super) fn memory_of_python(&self) -> anyhow::Result<u64> {
        let said = self.run(
            "for one in $(pgrep -x python3); do cat /proc/$one/smaps_rollup; done | \
             awk '/^Pss:/ { sum += $2 } END { print sum }'",
        )?;
        said.trim().parse().with_context(|| format!("`{said}` is no memory"))
    }

    /// The most KiB that the guest had so far.
    pub(super) fn memory_of_guest(&self) -> anyhow::Result<u64> {
        let said = self.run("awk '/^VmHWM:/ { print $2 }' /proc/1/status")?;
        said.trim().parse().with_context(|| format!("`{said}` is no memory"))
    }

    /// Lets a cell write so many megabytes, and reads them all.
    pub(super) fn write(&self, context: &str, megabytes: usize) -> anyhow::Result<Duration> {
        let code = format!(
            "import sys\nfor _ in range({megabytes}):\n    \
             sys.stdout.write(('x' * 99 + '\\n') * 10000)"
        );
        let wish = json!({
            "code": code, "context_id": context, "timeout_ms": 300_000, "limits": { "stdout": 0 },
        });
        let path = format!("/v1/sandbox/{}/code/executions", self.id);
        let begin = Instant::now();
        let read = self.connection.borrow_mut().drain("POST", &path, &wish)?;
        let took = begin.elapsed();
        ensure!(read >= megabytes as u64 * 1_000_000, "only {read} bytes came of all of it");
        Ok(took)
    }

    /// Runs a command to its end.
    fn run(&self, words: &str) -> anyhow::Result<String> {
        let wish = json!({ "command": words, "timeout": 120 });
        let done = self.ask("POST", "/process/execute", &wish)?;
        ensure!(done["exit_code"] == 0, "`{words}` failed: {done}");
        done["stdout"].as_str().map(str::to_owned).context("the command said nothing")
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let path = format!("/v1/sandbox/{}{path}", self.id);
        let body = (!body.is_null()).then_some(body);
        self.connection.borrow_mut().ask(method, &path, body)
    }
}
