//! Other ways to run sandboxes: Docker, Podman and gVisor.

use std::time::Duration;

use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::program;

/// A daemon that is there answers in 50 ms; one that hangs must not hold anybody up.
const LIMIT: Duration = Duration::from_secs(3);

const WITHOUT: &str = "nothing is less: the native engine needs none of it";

pub(crate) fn docker(host: &Host) -> Finding {
    const NAME: &str = "docker";
    let Some(client) = host.find("docker") else {
        return absent(NAME, "docker").fix(Fix::package("docker.io"));
    };
    let mut ask = host.command(&client);
    ask.args(["version", "--format", "{{.Server.Version}}"]);
    let finding = match program::run(&mut ask, LIMIT).output() {
        Ok(version) => {
            Finding::works(NAME, format!("the daemon answers, version {}", first_line(&version)))
        }
        Err(words) => {
            let fix = if words.contains("permission denied") {
                host.user.as_ref().map(|user| Fix::shown(format!("usermod -aG docker {user}")))
            } else {
                Some(Fix::shown("systemctl start docker"))
            };
            let says = format!("`{}` is there, but no daemon answers: {words}", client.display());
            Finding::limited(NAME, says).fix(fix)
        }
    };
    finding.without(WITHOUT)
}

/// Only its version is asked for: anything more would make folders in the user's home.
pub(crate) fn podman(host: &Host) -> Finding {
    by_version(host, "podman", "podman").fix(Fix::package("podman"))
}

/// gVisor's program.
pub(crate) fn gvisor(host: &Host) -> Finding {
    by_version(host, "gvisor", "runsc")
}

fn by_version(host: &Host, name: &'static str, program_name: &str) -> Finding {
    let Some(path) = host.find(program_name) else { return absent(name, program_name) };
    let mut ask = host.command(&path);
    ask.arg("--version");
    let finding = match program::run(&mut ask, LIMIT).output() {
        Ok(version) => Finding::works(name, first_line(&version).to_owned()),
        Err(words) => {
            Finding::limited(name, format!("`{}` does not work: {words}", path.display()))
        }
    };
    finding.without(WITHOUT)
}

fn absent(name: &'static str, program_name: &str) -> Finding {
    Finding::missing(name, format!("there is no `{program_name}` in PATH")).without(WITHOUT)
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or("it said nothing")
}
