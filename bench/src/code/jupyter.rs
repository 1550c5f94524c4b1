//! The peer: a kernel of Jupyter's, asked by Jupyter's own client.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use sys_linux::command::command;

/// Runs a cell for every line that it reads, and says how many microseconds that took: from the
/// request until its value, its reply and the word that the kernel is idle are there.
const PROGRAM: &str = "\
import sys, time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name='python3')
def cell():
    begin = time.perf_counter()
    asked = client.execute('1 + 1')
    value = None
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message['parent_header'].get('msg_id') != asked:
            continue
        if message['msg_type'] == 'execute_result':
            value = message['content']['data']['text/plain']
        if message['msg_type'] == 'status' and message['content']['execution_state'] == 'idle':
            break
    client.get_shell_msg(timeout=30)
    assert value == '2', value
    return time.perf_counter() - begin
try:
    print('ready', flush=True)
    for _ in sys.stdin:
        print(int(cell() * 1e6), flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
";

/// A client and its kernel.
pub(super) struct Jupyter {
    client: Child,
    asks: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

impl Jupyter {
    /// Starts both with this interpreter.
    pub(super) fn start(python: &Path) -> anyhow::Result<Self> {
        let mut client = command(python)
            .args(["-c", PROGRAM])
            .env("HOME", std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("could not start Jupyter's client")?;
        let says = BufReader::new(client.stdout.take().context("it has no output")?);
        let asks = client.stdin.take();
        let mut jupyter = Self { client, asks, says };
        ensure!(jupyter.line()? == "ready", "Jupyter's kernel does not start");
        Ok(jupyter)
    }

    /// One cell.
    pub(super) fn cell(&mut self) -> anyhow::Result<Duration> {
        self.asks.as_mut().context("it has no input")?.write_all(b"\n")?;
        Ok(Duration::from_micros(self.line()?.parse().context("Jupyter's client has ended")?))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Jupyter {
    fn drop(&mut self) {
        // It ends its kernel when it reads the end.
        self.asks = None;
        let _ = self.client.wait();
    }
}
