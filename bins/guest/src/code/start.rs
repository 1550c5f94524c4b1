//! Starts kernels.
//!
//! Those of Python are forked from a [nursery](super::nursery); all others are commands of their
//! own. Both run as the sandbox's default user, with the environment of every command.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use guest_proto::code::Language;
use guest_proto::process::ProcessConfig;
use http::HeaderMap;
use rustix::fs::{Access, CWD, accessat};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::context::Context;
use super::kernel::{Handle, How, Kernel, Pipes};
use super::programs::{Program, program};
use crate::keeper::{Report, candidates};
use crate::process::{Ends, Exit, Launched, Wish};
use crate::spawner::Command;
use crate::state::State;

/// Starts the kernel of a context, or says why there is none.
pub(super) async fn start(state: &Arc<State>, context: &Context) -> Result<Kernel, String> {
    if context.language == Language::Python {
        return state.code.nurseries.fork(state, context).await;
    }
    let program = program(context.language);
    let command = command(state, context.language, program, Some(context))?;
    let failed = |error: io::Error| not_started(context.language, &error);
    let (child_3, to) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let (from, child_4) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let (child_5, interrupts) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    for end in [&child_3, &child_4, &child_5] {
        give(end, command.uid);
    }
    let stdin = program.to_file().map_err(failed)?;
    let further = [child_3.as_fd(), child_4.as_fd(), child_5.as_fd()];
    let wish = Wish::Given { stdin: stdin.as_fd(), further: &further };
    let launched = state.spawner.launch(&command, wish).await.map_err(failed)?;
    let (stdout, stderr, handle, ended) = adopt(state, launched);
    let pipes = Pipes {
        stdout,
        stderr,
        to: sender(to).map_err(failed)?,
        from: Some(receiver(from).map_err(failed)?),
        interrupts: Some(sender(interrupts).map_err(failed)?),
    };
    Ok(Kernel::new(pipes, ended, handle))
}

/// The command of a kernel, once it is sure that there is an interpreter.
pub(super) fn command(
    state: &State,
    language: Language,
    program: Program,
    context: Option<&Context>,
) -> Result<Command, String> {
    let [name, arguments @ ..] = program.command else { return Err("no command".to_owned()) };
    let config = ProcessConfig {
        cmd: (*name).to_owned(),
        args: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        cwd: Some(context.map_or("/", |context| &context.cwd).to_owned()),
        envs: context
            .map(|context| context.environment.clone().into_iter().collect())
            .unwrap_or_default(),
        ..ProcessConfig::default()
    };
    let defaults = state.defaults().clone();
    let mut command = crate::process::command(&config, &HeaderMap::new(), &defaults, false)
        .map_err(|error| error.message.unwrap_or_default())?;
    if !is_there(&command) {
        return Err(missing(language));
    }
    let says_how = |pair: &CString| {
        LOCALE.iter().any(|name| pair.to_bytes().starts_with(&[name.as_bytes(), b"="].concat()))
    };
    if !command.environment.iter().any(says_how) {
        // Texts are UTF-8; R and Bash take all but ASCII for something else where nobody says so.
        command.environment.push(c"LANG=C.UTF-8".to_owned());
    }
    Ok(command)
}

/// The variables that say in which characters texts are.
const LOCALE: [&str; 3] = ["LANG", "LC_ALL", "LC_CTYPE"];

/// What to say where there is no interpreter.
pub(super) fn missing(language: Language) -> String {
    let program = program(language);
    let name = program.command.first().copied().unwrap_or_default();
    format!("there is no `{name}` in this sandbox: install {}", program.install)
}

/// What a process gives that was just launched: its outputs, the way to it, and its end.
type Adopted =
    (Option<pipe::Receiver>, Option<pipe::Receiver>, Handle, watch::Receiver<Option<How>>);

/// Takes charge of a process that was just launched.
pub(super) fn adopt(state: &Arc<State>, launched: Launched) -> Adopted {
    let Launched { keeper, control, ends, exec_errno, .. } = launched;
    let control = Arc::new(control);
    state.processes.keepers.add(keeper, &control);
    let (stdout, stderr) = match ends {
        Ends::Pipes { stdout, stderr, .. } => (Some(stdout), Some(stderr)),
        Ends::Terminal { .. } => (None, None),
    };
    let handle = Handle::Kept { control: Arc::clone(&control), keeper };
    let (end, ended) = watch::channel(None);
    let state = Arc::clone(state);
    crate::spawn(async move {
        let mut not_executed = exec_errno;
        let how = loop {
            match control.report().await {
                Ok(Some(Report::Exited { code })) => break How::Exit(Exit::Code(code)),
                Ok(Some(Report::Signalled { signal })) => break How::Exit(Exit::Signal(signal)),
                Ok(Some(Report::NotExecuted { errno })) => not_executed = Some(errno),
                Ok(Some(_)) => {}
                // Only a kill without a choice, as at the end of memory, takes a keeper.
                Ok(None) | Err(_) => break How::Exit(Exit::Signal(9)),
            }
        };
        end.send_replace(Some(not_executed.map_or(how, How::NotExecuted)));
        state.processes.keepers.see_off(keeper, control).await;
    });
    (stdout, stderr, handle, ended)
}

/// Why a process could not be started.
pub(super) fn not_started(language: Language, error: &io::Error) -> String {
    format!("cannot start a kernel for {language}: {error}")
}

/// Makes a pipe the user's, who may want to open it by its name in `/dev/fd`. One that stays ours
/// works all the same, by its number.
pub(super) fn give(end: &OwnedFd, uid: u32) {
    let _ = rustix::fs::fchown(end, Some(rustix::fs::Uid::from_raw(uid)), None);
}

/// Our end of a pipe to write to.
pub(super) fn sender(end: OwnedFd) -> io::Result<pipe::Sender> {
    rustix::io::ioctl_fionbio(&end, true)?;
    pipe::Sender::from_owned_fd_unchecked(end)
}

/// Our end of a pipe to read from.
pub(super) fn receiver(end: OwnedFd) -> io::Result<pipe::Receiver> {
    rustix::io::ioctl_fionbio(&end, true)?;
    pipe::Receiver::from_owned_fd_unchecked(end)
}

/// Whether the program of a command is somewhere on its path.
fn is_there(command: &Command) -> bool {
    let path = command.environment.iter().find_map(|pair| pair.to_bytes().strip_prefix(b"PATH="));
    let name = command.arguments.first().map_or(c"", |name| name.as_c_str());
    candidates(name, path.unwrap_or_default()).iter().any(|candidate| {
        let flags = rustix::fs::AtFlags::empty();
        accessat(CWD, candidate.as_c_str(), Access::EXEC_OK, flags).is_ok()
    })
}
