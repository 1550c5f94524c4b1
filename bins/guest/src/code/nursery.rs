//! Python's nursery: the process that its kernels are forked from.
//!
//! There is one for the sandbox, started when the first Python context runs something. What it
//! has imported, its kernels share. When packages have changed it says that it is stale and
//! another takes its place; the old one stays as long as it has kernels, because it alone learns
//! how they end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest_proto::code::Language;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use serde::Serialize;
use sys_linux::fdpass;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::context::Context;
use super::frame;
use super::kernel::{Handle, How, Kernel, Pipes};
use super::programs::program;
use super::start::{adopt, command, give, missing, not_started, receiver, sender};
use super::words::{TOLD, Words};
use crate::process::{Exit, Wish};
use crate::spawner::Command;
use crate::state::State;

/// How long a fork may take: the first has to wait for the imports.
const LONGEST: Duration = Duration::from_mins(2);

/// How long it may take nothing that it is told.
const TAKING: Duration = Duration::from_secs(5);

/// As many modules as are shared.
const MOST_MODULES: usize = 64;

/// The largest packet that is taken.
const LARGEST_PACKET: usize = 64 << 10;

/// The nursery of the sandbox, and what shall be in it.
#[derive(Debug, Default)]
pub(super) struct Nurseries {
    current: tokio::sync::Mutex<Option<Arc<Nursery>>>,
    modules: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Nursery {
    /// What it was started as. Another user or environment needs another one.
    command: Command,
    socket: UnixDatagram,
    inner: Mutex<Inner>,
    next: AtomicU64,
    /// It forks no more.
    stale: AtomicBool,
    handle: Handle,
    ended: watch::Receiver<Option<How>>,
    words: Words,
}

#[derive(Debug, Default)]
struct Inner {
    asked: HashMap<u64, (oneshot::Sender<Forked>, watch::Sender<Option<How>>)>,
    kernels: HashMap<i32, watch::Sender<Option<How>>>,
}

#[derive(Debug)]
enum Forked {
    Pid(Pid),
    Failed(String),
    Stale,
}

#[derive(Serialize)]
struct Wanted<'a> {
    cwd: &'a str,
    env: &'a BTreeMap<String, String>,
}

impl Nurseries {
    /// Forks a kernel for a context, from a nursery that is fresh.
    pub(super) async fn fork(
        &self,
        state: &Arc<State>,
        context: &Context,
    ) -> Result<Kernel, String> {
        let mut problem = String::new();
        // Stale or dead ones are replaced; that happens once, unless something is broken.
        for _ in 0..4 {
            let nursery = self.current(state).await?;
            match nursery.fork(context).await {
                Ok(Some(kernel)) => return Ok(kernel),
                Ok(None) => problem = nursery.words.told(),
                Err(error) => {
                    let failed = not_started(Language::Python, &error);
                    return Err(format!("{failed}{}", nursery.words.told()));
                }
            }
            self.retire(&nursery).await;
            if let Some(How::NotExecuted(_)) = *nursery.ended.borrow() {
                return Err(missing(Language::Python));
            }
        }
        Err(format!("the process that Python's kernels come from does not start{problem}"))
    }

    /// Shares modules that a cell has imported with the kernels to come.
    pub(super) async fn share(&self, names: Vec<String>) {
        let is_name = |name: &String| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
            !name.is_empty() && name.len() <= 100 && name.bytes().all(fits)
        };
        let new: Vec<String> = {
            let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
            let new = names.into_iter().filter(is_name).take(MOST_MODULES);
            let room = MOST_MODULES.saturating_sub(modules.len());
            let new = new.filter(|name| !modules.contains(name)).take(room).collect::<Vec<_>>();
            modules.extend(new.iter().cloned());
            new
        };
        if new.is_empty() {
            return;
        }
        // Not while others have to wait for the same nursery.
        let nursery = self.current.lock().await.clone();
        if let Some(nursery) = nursery {
            let _ = nursery.preload(&new).await;
        }
    }

    /// The nursery that forks now, started where there is none.
    async fn current(&self, state: &Arc<State>) -> Result<Arc<Nursery>, String> {
        let command = command(state, Language::Python, program(Language::Python), None)?;
        let mut current = self.current.lock().await;
        if let Some(nursery) = current.as_ref() {
            if nursery.command == command && nursery.is_usable() {
                return Ok(Arc::clone(nursery));
            }
            nursery.retire();
        }
        let failed = |error: io::Error| not_started(Language::Python, &error);
        let nursery = Nursery::start(state, command).await.map_err(failed)?;
        *current = Some(Arc::clone(&nursery));
        drop(current);
        let modules: Vec<String> =
            self.modules.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        if !modules.is_empty() {
            // After the fork that somebody waits for.
            let later = Arc::clone(&nursery);
            crate::spawn(async move {
                let _ = later.answered().await;
                let _ = later.preload(&modules).await;
            });
        }
        Ok(nursery)
    }

    async fn retire(&self, nursery: &Arc<Nursery>) {
        nursery.retire();
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|one| Arc::ptr_eq(one, nursery)) {
            *current = None;
        }
    }
}

impl Nursery {
    async fn start(state: &Arc<State>, command: Command) -> io::Result<Arc<Self>> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let stdin = program(Language::Python).to_file()?;
        let further = [theirs.as_fd()];
        let wish = Wish::Given { stdin: stdin.as_fd(), further: &further };
        let launched = state.spawner.launch(&command, wish).await?;
        drop(theirs);
        let (stdout, stderr, handle, ended) = adopt(state, launched);
        rustix::io::ioctl_fionbio(&ours, true)?;
        let socket = UnixDatagram::from_std(ours.into())?;
        let words = Words::default();
        for pipe in [stdout, stderr].into_iter().flatten() {
            words.listen(pipe);
        }
        let nursery = Arc::new(Self {
            command,
            socket,
            inner: Mutex::default(),
            next: AtomicU64::new(1),
            stale: AtomicBool::new(false),
            handle,
            ended,
            words,
        });
        crate::spawn(Arc::clone(&nursery).serve());
        Ok(nursery)
    }

    fn is_usable(&self) -> bool {
        !self.stale.load(Ordering::Relaxed) && self.ended.borrow().is_none()
    }

    /// Forks no more. It ends with the last of its kernels.
    fn retire(&self) {
        self.stale.store(true, Ordering::Relaxed);
        let inner = self.lock();
        if inner.kernels.is_empty() && inner.asked.is_empty() {
            // Its end of the socket sees the end, and so does who reads ours.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }

    /// A kernel; none when another nursery has to be asked.
    async fn fork(&self, context: &Context) -> io::Result<Option<Kernel>> {
        let (child_3, to) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from, child_4) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, child_1) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, child_2) = pipe_with(PipeFlags::CLOEXEC)?;
        for end in [&child_1, &child_2, &child_3, &child_4] {
            give(end, self.command.uid);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let wanted = Wanted { cwd: &context.cwd, env: &context.environment };
        let payload = serde_json::to_vec(&wanted).map_err(io::Error::other)?;
        let packet = frame::encode(&format!("fork {id}"), &[&payload]);
        let (answer, forked) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        self.lock().asked.insert(id, (answer, end));
        let sent = self.send(&packet, &[child_1, child_2, child_3, child_4]).await;
        if sent.is_err() {
            self.lock().asked.remove(&id);
            // It died, unless the packet is what it could not take.
            return match sent {
                Err(error) if self.is_usable() && !is_gone(&error) => Err(error),
                _ => Ok(None),
            };
        }
        let forked = timeout(LONGEST, forked).await;
        self.lock().asked.remove(&id);
        let pid = match forked {
            Ok(Ok(Forked::Pid(pid))) => pid,
            Ok(Ok(Forked::Failed(why))) => return Err(io::Error::other(why)),
            Ok(Ok(Forked::Stale) | Err(_)) => return Ok(None),
            Err(_) => {
                self.handle.kill();
                return Err(io::Error::other("nothing was forked for two minutes"));
            }
        };
        let pipes = Pipes {
            stdout: Some(receiver(stdout)?),
            stderr: Some(receiver(stderr)?),
            to: sender(to)?,
            from: Some(receiver(from)?),
            interrupts: None,
        };
        let keeper = match &self.handle {
            Handle::Kept { keeper, .. } => Pid::from_raw(*keeper),
            Handle::Forked { keeper, .. } => Some(*keeper),
        };
        let keeper = keeper.ok_or_else(|| io::Error::other("its keeper is not known"))?;
        Ok(Some(Kernel::new(pipes, ended, Handle::Forked { pid, keeper })))
    }

    async fn preload(&self, modules: &[String]) -> io::Result<()> {
        let packet = frame::encode("preload", &[modules.join("\n").as_bytes()]);
        self.send(&packet, &[]).await
    }

    /// Waits until nobody waits for it.
    async fn answered(&self) -> bool {
        let mut ended = self.ended.clone();
        for _ in 0..1200 {
            if ended.borrow_and_update().is_some() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let inner = self.lock();
            if inner.asked.is_empty() {
                return true;
            }
        }
        false
    }

    async fn send(&self, packet: &[u8], along: &[OwnedFd]) -> io::Result<()> {
        let along: Vec<_> = along.iter().map(|end| end.as_fd()).collect();
        let write = || fdpass::send(&self.socket, packet, &along, SendFlags::DONTWAIT);
        let sent = timeout(TAKING, self.socket.async_io(Interest::WRITABLE, write)).await;
        let Ok(sent) = sent else {
            // Whoever stopped it has to do without; its kernels go on.
            self.stale.store(true, Ordering::Relaxed);
            self.handle.kill();
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        sent.map(|_| ())
    }

    /// Hears what it says, until it is gone or not needed any more.
    async fn serve(self: Arc<Self>) {
        let mut packet = vec![0; LARGEST_PACKET];
        loop {
            let receive = self.socket.async_io(Interest::READABLE, || {
                fdpass::receive(&self.socket, &mut packet, RecvFlags::DONTWAIT)
            });
            match receive.await {
                Ok((length @ 1.., _)) => self.hear(&packet[..length]),
                _ => break,
            }
            if self.stale.load(Ordering::Relaxed) {
                self.retire();
            }
        }
        self.stale.store(true, Ordering::Relaxed);
        // Who waits for an answer hears that there is none; kernels go on, and nobody will see
        // how they end.
        let mut inner = self.lock();
        inner.asked.clear();
        inner.kernels.clear();
    }

    fn hear(&self, packet: &[u8]) {
        let end = memchr::memchr(b'\n', packet).unwrap_or(packet.len());
        let (line, payload) = packet.split_at(end);
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split(' ').collect();
        let mut inner = self.lock();
        match words[..] {
            ["forked", id, pid, _] => {
                let asked = id.parse().ok().and_then(|id| inner.asked.remove(&id));
                let pid = pid.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
                if let (Some((answer, end)), Some(pid)) = (asked, pid) {
                    inner.kernels.insert(pid.as_raw_pid(), end);
                    let _ = answer.send(Forked::Pid(pid));
                }
            }
            ["failed", id, _] => {
                if let Some((answer, _)) = id.parse().ok().and_then(|id| inner.asked.remove(&id)) {
                    let why = String::from_utf8_lossy(payload).trim().chars().take(TOLD).collect();
                    let _ = answer.send(Forked::Failed(why));
                }
            }
            ["stale", _] => {
                self.stale.store(true, Ordering::Relaxed);
                for (_, (answer, _)) in inner.asked.drain() {
                    let _ = answer.send(Forked::Stale);
                }
            }
            ["ended", pid, how, _] => {
                if let Some(end) = pid.parse().ok().and_then(|pid: i32| inner.kernels.remove(&pid))
                {
                    end.send_replace(Some(how_ended(how)));
                }
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}

fn how_ended(how: &str) -> How {
    let number = |text: &str| text.parse().ok();
    let exit = match how.split_once(':') {
        Some(("exit", code)) => number(code).map(Exit::Code),
        Some(("signal", signal)) => number(signal).map(Exit::Signal),
        _ => None,
    };
    exit.map_or(How::Unknown, How::Exit)
}
