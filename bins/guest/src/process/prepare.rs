//! From a request to a command: who runs it, where, and with which environment.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use connectrpc::ConnectError;
use guest_proto::process::ProcessConfig;
use http::HeaderMap;
use sys_linux::command::SYSTEM_PATH;

use crate::spawner::Command;
use crate::state::Defaults;
use crate::users::User;
use crate::{paths, users};

/// Commands are the first to go when memory runs out, well before their keeper and the spawner.
pub(crate) const OOM_SCORE_ADJUSTMENT: i32 = 500;

/// Makes the command that a request asks for, or says what is wrong with it.
pub(crate) fn command(
    config: &ProcessConfig,
    headers: &HeaderMap,
    defaults: &Defaults,
    terminal: bool,
) -> Result<Command, ConnectError> {
    let name = users::named_in(headers).unwrap_or_else(|| defaults.user.clone());
    let user = users::require(&name).map_err(ConnectError::unauthenticated)?;
    let asked = config.cwd.as_deref().unwrap_or_default();
    let workdir = paths::expand(asked, &user, defaults.workdir.as_deref())
        .map_err(ConnectError::invalid_argument)?;
    check_folder(&workdir)?;
    let arguments = std::iter::once(&config.cmd).chain(&config.args);
    let arguments = arguments
        .map(|argument| c_string("an argument", argument.as_bytes().to_vec()))
        .collect::<Result<_, _>>()?;
    Ok(Command {
        arguments,
        environment: environment(config, &user, defaults, terminal)?,
        workdir: c_string("the working folder", workdir.as_os_str().as_bytes().to_vec())?,
        uid: user.uid,
        gid: user.gid,
        groups: user.groups,
        oom_score_adjustment: OOM_SCORE_ADJUSTMENT,
        terminal,
    })
}

fn check_folder(folder: &Path) -> Result<(), ConnectError> {
    let shown = folder.display();
    let problem = match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => format!("cwd '{shown}' is not a directory"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("cwd '{shown}' does not exist")
        }
        Err(error) => format!("cwd '{shown}' cannot be entered: {error}"),
    };
    Err(ConnectError::invalid_argument(problem))
}

/// The environment is made from nothing: ours is not for the sandbox. Later ones win.
fn environment(
    config: &ProcessConfig,
    user: &User,
    defaults: &Defaults,
    terminal: bool,
) -> Result<Vec<CString>, ConnectError> {
    let home = user.home.to_string_lossy();
    let path = format!("{home}/.local/bin:{SYSTEM_PATH}");
    let mut variables = BTreeMap::from([
        ("PATH", path.as_str()),
        ("HOME", &home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
    ]);
    if terminal {
        variables.insert("TERM", "xterm-256color");
    }
    variables
        .extend(defaults.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    variables.extend(config.envs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    variables
        .into_iter()
        .map(|(name, value)| {
            if name.is_empty() || name.contains('=') {
                let problem = format!("`{name}` cannot be the name of an environment variable");
                return Err(ConnectError::invalid_argument(problem));
            }
            c_string(&format!("the variable `{name}`"), format!("{name}={value}").into_bytes())
        })
        .collect()
}

fn c_string(what: &str, bytes: Vec<u8>) -> Result<CString, ConnectError> {
    CString::new(bytes)
        .map_err(|_| ConnectError::invalid_argument(format!("{what} holds a NUL byte")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn as_root() -> HeaderMap {
        // "root:"
        HeaderMap::from_iter([(
            http::header::AUTHORIZATION,
            HeaderValue::from_static("Basic cm9vdDo="),
        )])
    }

    fn config(cmd: &str) -> ProcessConfig {
        ProcessConfig { cmd: cmd.to_owned(), cwd: Some("/".to_owned()), ..ProcessConfig::default() }
    }

    fn refusal(config: &ProcessConfig, headers: &HeaderMap) -> String {
        let error = command(config, headers, &Defaults::default(), false).unwrap_err();
        format!("{}: {}", error.code.as_str(), error.message.unwrap_or_default())
    }

    #[test]
    fn an_unknown_user_is_refused_by_name() {
        // "nobodyatall:"
        let value = HeaderValue::from_static("Basic bm9ib2R5YXRhbGw6");
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        assert_eq!(
            refusal(&config("true"), &headers),
            "unauthenticated: invalid username: 'nobodyatall'"
        );
    }

    #[test]
    fn a_missing_folder_is_refused_by_path() {
        let config = ProcessConfig { cwd: Some("/not/there".to_owned()), ..config("true") };
        assert_eq!(
            refusal(&config, &as_root()),
            "invalid_argument: cwd '/not/there' does not exist"
        );
        let config = ProcessConfig { cwd: Some("/etc/passwd".to_owned()), ..config };
        assert_eq!(
            refusal(&config, &as_root()),
            "invalid_argument: cwd '/etc/passwd' is not a directory"
        );
    }

    #[test]
    fn a_nul_byte_and_an_impossible_name_are_refused() {
        assert_eq!(
            refusal(&config("a\0b"), &as_root()),
            "invalid_argument: an argument holds a NUL byte"
        );
        let mut config = config("true");
        config.envs.insert("A=B".to_owned(), String::new());
        assert_eq!(
            refusal(&config, &as_root()),
            "invalid_argument: `A=B` cannot be the name of an environment variable"
        );
    }

    #[test]
    fn the_environment_is_fresh_and_the_last_one_wins() {
        let mut defaults = Defaults::default();
        defaults.environment.insert("A".to_owned(), "default".to_owned());
        defaults.environment.insert("B".to_owned(), "default".to_owned());
        let mut config = config("true");
        config.envs.insert("B".to_owned(), "request".to_owned());
        let command = command(&config, &as_root(), &defaults, false).unwrap();
        let expected = [
            "A=default".to_owned(),
            "B=request".to_owned(),
            "HOME=/root".to_owned(),
            "LOGNAME=root".to_owned(),
            format!("PATH=/root/.local/bin:{SYSTEM_PATH}"),
            "USER=root".to_owned(),
        ];
        let environment: Vec<_> =
            command.environment.iter().map(|pair| pair.to_str().unwrap()).collect();
        assert_eq!(environment, expected);
    }

    #[test]
    fn a_terminal_has_a_kind_unless_one_is_named() {
        let kind = |config: &ProcessConfig| {
            let command = command(config, &as_root(), &Defaults::default(), true).unwrap();
            let mut kinds = command
                .environment
                .into_iter()
                .filter_map(|pair| pair.to_str().unwrap().strip_prefix("TERM=").map(str::to_owned));
            (kinds.next(), kinds.next())
        };
        assert_eq!(kind(&config("true")), (Some("xterm-256color".to_owned()), None));
        let mut config = config("true");
        config.envs.insert("TERM".to_owned(), "dumb".to_owned());
        assert_eq!(kind(&config), (Some("dumb".to_owned()), None));
    }
}
