//! Installing packages: names are checked, and nothing goes through a shell.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use guest_proto::code::{Install, Installed, Language};
use guest_proto::process::ProcessConfig;
use http::HeaderMap;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::kernel::How;
use super::start::adopt;
use crate::process::{Exit, Wish};
use crate::state::State;

/// As many packages as are installed at once, and the longest name of one.
const MOST: usize = 200;
const LONGEST: usize = 200;

/// How long an installation may take, when nobody says.
const USUAL_TIME: Duration = Duration::from_mins(10);

/// How long the pipes of one that has ended are still read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// As much of what it said as is told: the end of it.
const TOLD: usize = 64 << 10;

/// Why nothing was tried.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("'{0}' cannot be the name of a package{1}")]
    Name(String, &'static str),
    #[error("name 1 to {MOST} packages")]
    Count,
    #[error("there is no way to install packages for {0}; use its own commands")]
    Language(Language),
    #[error("'{0}' does not install packages for {1}")]
    Manager(String, Language),
}

/// Installs packages as the sandbox's default user.
pub(super) async fn install(
    state: &Arc<State>,
    language: Language,
    asked: &Install,
) -> Result<Installed, Refused> {
    let (manager, arguments) = arguments(language, asked, has_uv(state))?;
    let limit = asked.timeout_ms.filter(|limit| *limit > 0);
    let limit = limit.map_or(USUAL_TIME, Duration::from_millis);
    let failed = |problem: String| Installed {
        success: false,
        manager: manager.to_owned(),
        exit_code: None,
        output: problem,
    };
    Ok(run(state, &arguments, limit).await.map_or_else(failed, |(exit, output)| Installed {
        success: exit == How::Exit(Exit::Code(0)),
        manager: manager.to_owned(),
        exit_code: match exit {
            How::Exit(Exit::Code(code)) => Some(code),
            _ => None,
        },
        output,
    }))
}

/// The command that installs, and who does it.
fn arguments(
    language: Language,
    asked: &Install,
    has_uv: bool,
) -> Result<(&'static str, Vec<String>), Refused> {
    if asked.packages.is_empty() || asked.packages.len() > MOST {
        return Err(Refused::Count);
    }
    let manager = match (language.kernel(), asked.manager.as_deref()) {
        (Language::Python, None) if has_uv => "uv",
        (Language::Python, None | Some("pip")) => "pip",
        (Language::Python, Some("uv")) => "uv",
        (Language::Javascript, None | Some("npm")) => "npm",
        (Language::R, None | Some("r" | "R")) => "r",
        (Language::Bash, _) | (_, None) => return Err(Refused::Language(language)),
        (_, Some(other)) => {
            return Err(Refused::Manager(other.chars().take(40).collect(), language));
        }
    };
    for name in &asked.packages {
        check(manager, name)?;
    }
    let command: &[&str] = match manager {
        "pip" => &["python3", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"],
        "uv" => &["uv", "pip", "install", "--python", "python3"],
        "npm" => &["npm", "install", "--no-fund", "--no-audit", "--loglevel=error"],
        _ => &["Rscript", "--vanilla", "-e", R_PROGRAM, "--args"],
    };
    let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    if matches!(manager, "pip" | "uv" | "npm") {
        // What follows is never an option, whatever it looks like.
        arguments.push("--".to_owned());
    }
    arguments.extend(asked.packages.iter().cloned());
    Ok((manager, arguments))
}

/// Names come as arguments: they are never part of the program.
const R_PROGRAM: &str = "packages <- commandArgs(trailingOnly = TRUE); \
    library <- Sys.getenv('R_LIBS_USER'); \
    if (nzchar(library)) { dir.create(library, recursive = TRUE, showWarnings = FALSE); \
    .libPaths(c(library, .libPaths())) }; \
    if (identical(unname(getOption('repos')['CRAN']), '@CRAN@')) \
    options(repos = c(CRAN = 'https://cloud.r-project.org')); \
    install.packages(packages); \
    missing <- setdiff(packages, rownames(installed.packages())); \
    if (length(missing)) { message('not installed: ', paste(missing, collapse = ', ')); \
    quit(status = 1) }";

fn check(manager: &str, name: &str) -> Result<(), Refused> {
    let (fits, hint) = match manager {
        "pip" | "uv" => (is_python_requirement(name), ": a name, extras in brackets, versions"),
        "npm" => (is_npm_package(name), ": a name, with @version or @range"),
        _ => (is_r_package(name), ": letters, digits and dots"),
    };
    if fits && name.len() <= LONGEST {
        Ok(())
    } else {
        Err(Refused::Name(name.chars().take(60).collect(), hint))
    }
}

/// `name`, `name[extra,extra]`, and versions: `==1.0`, `>=1,<2`, `~=1.4`, `!=1.5`.
fn is_python_requirement(text: &str) -> bool {
    let end = text.find(|one: char| !is_word(one)).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if !is_name(name) {
        return false;
    }
    if let Some(extras) = rest.strip_prefix('[') {
        let Some((extras, after)) = extras.split_once(']') else { return false };
        if !extras.split(',').all(|extra| is_name(extra.trim())) {
            return false;
        }
        rest = after;
    }
    rest = rest.trim();
    rest.is_empty() || rest.split(',').all(|part| is_version_clause(part.trim()))
}

fn is_version_clause(text: &str) -> bool {
    let operators = ["===", "==", "~=", "!=", ">=", "<=", ">", "<"];
    let Some(version) = operators.iter().find_map(|operator| text.strip_prefix(operator)) else {
        return false;
    };
    let version = version.trim();
    let fits = |one: char| one.is_ascii_alphanumeric() || ".*+!-_".contains(one);
    version.starts_with(|one: char| one.is_ascii_alphanumeric()) && version.chars().all(fits)
}

fn is_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || matches!(one, '.' | '_' | '-')
}

fn is_name(text: &str) -> bool {
    let edge = |one: char| one.is_ascii_alphanumeric();
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(is_word)
}

/// `name`, `@scope/name`, each with `@range`.
fn is_npm_package(text: &str) -> bool {
    let part = |text: &str| {
        let fits = |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '_' | '-' | '~');
        text.starts_with(|one: char| one.is_ascii_alphanumeric()) && text.chars().all(fits)
    };
    let (scoped, rest) = match text.strip_prefix('@') {
        Some(rest) => match rest.split_once('/') {
            Some((scope, rest)) => (part(scope), rest),
            None => return false,
        },
        None => (true, text),
    };
    let (name, range) =
        rest.split_once('@').map_or((rest, None), |(name, range)| (name, Some(range)));
    let range_fits = |range: &str| {
        let fits = |one: char| one.is_ascii_alphanumeric() || ".*+-_^~<>=| ".contains(one);
        !range.is_empty() && !range.starts_with('-') && range.chars().all(fits)
    };
    scoped && part(name) && range.is_none_or(range_fits)
}

fn is_r_package(text: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || one == '.';
    text.starts_with(|one: char| one.is_ascii_alphabetic())
        && text.chars().all(fits)
        && !text.ends_with('.')
}

fn has_uv(state: &State) -> bool {
    let home = crate::users::require(&state.defaults().user).map(|user| user.home);
    let folders = sys_linux::command::SYSTEM_PATH.split(':').map(std::path::PathBuf::from);
    let own = home.ok().map(|home| home.join(".local/bin"));
    // Outside of a virtual environment it refuses to install where pip would.
    let is_virtual = state.defaults().environment.contains_key("VIRTUAL_ENV");
    is_virtual && folders.chain(own).any(|folder| folder.join("uv").is_file())
}

/// Runs a command to its end: how it ended, and the last of what it said.
async fn run(
    state: &Arc<State>,
    arguments: &[String],
    limit: Duration,
) -> Result<(How, String), String> {
    let [name, arguments @ ..] = arguments else { return Err("no command".to_owned()) };
    let config =
        ProcessConfig { cmd: name.clone(), args: arguments.to_vec(), ..ProcessConfig::default() };
    let defaults = state.defaults().clone();
    let command = crate::process::command(&config, &HeaderMap::new(), &defaults, false)
        .map_err(|error| error.message.unwrap_or_default())?;
    let launched = state.spawner.launch(&command, Wish::Pipes { stdin: false }).await;
    let launched = launched.map_err(|error| format!("cannot start `{name}`: {error}"))?;
    let (stdout, stderr, handle, mut ended) = adopt(state, launched);
    let mut said = Vec::new();
    let finished = async {
        let mut end =
            pin!(async { ended.wait_for(Option::is_some).await.ok().and_then(|how| *how) });
        let mut gathering = pin!(gather(stdout, stderr, &mut said));
        let how = tokio::select! {
            how = &mut end => how,
            () = &mut gathering => return end.await,
        };
        // Children that it left behind may hold its pipes.
        let _ = timeout(LAST_WORDS, gathering).await;
        how
    };
    let how = timeout(limit, finished).await;
    let mut output = String::from_utf8_lossy(&said).into_owned();
    let Ok(how) = how else {
        handle.kill();
        output.push_str("\n[it took too long and was killed]\n");
        return Ok((How::Unknown, output));
    };
    Ok((how.unwrap_or(How::Unknown), output))
}

/// Reads both pipes to their ends, and keeps the last of it.
async fn gather(
    mut stdout: Option<pipe::Receiver>,
    mut stderr: Option<pipe::Receiver>,
    said: &mut Vec<u8>,
) {
    let (mut first, mut second) = (vec![0; 8192], vec![0; 8192]);
    while stdout.is_some() || stderr.is_some() {
        tokio::select! {
            read = read(&mut stdout, &mut first), if stdout.is_some() => match read {
                0 => stdout = None,
                length => said.extend_from_slice(&first[..length]),
            },
            read = read(&mut stderr, &mut second), if stderr.is_some() => match read {
                0 => stderr = None,
                length => said.extend_from_slice(&second[..length]),
            },
        }
        let surplus = said.len().saturating_sub(TOLD);
        if surplus > TOLD {
            said.drain(..surplus);
        }
    }
    let surplus = said.len().saturating_sub(TOLD);
    said.drain(..surplus);
}

async fn read(pipe: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_and_versions_are_taken() {
        for good in ["numpy", "a", "zope.interface", "pandas==2.1", "x[a,b-c]>=1,<2", "y ~= 1.4.*"]
        {
            assert!(is_python_requirement(good), "{good}");
        }
        for bad in [
            "",
            "-e",
            "--index-url=x",
            ".",
            "./x",
            "a b",
            "x;y",
            "git+https://x",
            "x @ https://y",
            "x[",
            "x[;]",
            "x==",
            "x==$(id)",
            "-r/etc/passwd",
            "x\n--pre",
            "x==-1",
        ] {
            assert!(!is_python_requirement(bad), "{bad}");
        }
        for good in ["left-pad", "@types/node", "lodash@4", "x@^1.2.3", "@a/b@>=1 <2"] {
            assert!(is_npm_package(good), "{good}");
        }
        for bad in ["", "-g", "@x", "../x", "x@", "x@file:/etc", "http://x", "x@--y", "a/b"] {
            assert!(!is_npm_package(bad), "{bad}");
        }
        assert!(is_r_package("data.table") && is_r_package("ggplot2"));
        for bad in ["", "a)", "'a'", "-e", "1a", "a."] {
            assert!(!is_r_package(bad), "{bad}");
        }
    }

    #[test]
    fn a_manager_has_to_fit_its_language() {
        let asked = |manager: &str| Install {
            packages: vec!["x".to_owned()],
            manager: Some(manager.to_owned()),
            ..Install::default()
        };
        assert!(arguments(Language::Python, &asked("npm"), false).is_err());
        assert!(arguments(Language::Bash, &asked("apt"), false).is_err());
        let (manager, command) = arguments(Language::Typescript, &asked("npm"), false).unwrap();
        assert_eq!((manager, command.last().map(String::as_str)), ("npm", Some("x")));
    }
}
