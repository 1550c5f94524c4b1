//! The small tree of processes that CRIU is tried on.
//!
//! It holds what older CRIUs fail at on newer kernels: a listening TCP socket and an established
//! connection, and a child at the end of a pipe. A number that the child keeps in its memory
//! must come back out of the socket, before the dump and after the restore.
//!
//! The tree is this program, executed once more: a process that was only forked into a mount
//! namespace has its program on a mount outside of it, which cannot be dumped.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::setsid;
use sys_linux::descriptors::close_all_but;
use sys_linux::namespace::{Namespaces, Side, fork, leave};

use crate::attempt::{Refusal, Step, wait_for};

/// The words by which a program that uses this crate becomes the tree: it must call
/// [`be_dumped`] when it is started with them.
pub const SUBJECT_WORDS: [&str; 2] = ["doctor", "--be-dumped"];

/// How long the tree may take to start or to answer, which it does in a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the child keeps in its memory.
type Secret = [u8; 16];

/// The tree, as its parent knows it. It ends with the process namespace that it is in.
pub(super) struct Subject {
    upper: Child,
    port: u16,
    secret: Secret,
}

impl Subject {
    /// Starts it, as a child of the first process of a process namespace.
    pub(super) fn start(program: &Path) -> Result<Self, Refusal> {
        let step = "start processes to dump";
        let mut secret = Secret::default();
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty()).step(step)?;
        let mut command = sys_linux::command::command(program);
        command.args(SUBJECT_WORDS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut upper = command.spawn().step(step)?;
        let (Some(mut input), Some(mut output)) = (upper.stdin.take(), upper.stdout.take()) else {
            return Err(Refusal::new(step, "it has no input"));
        };
        input.write_all(&secret).step(step)?;
        drop(input);
        let mut port = [0; 2];
        if !wait_for(&output, Instant::now() + PATIENCE) {
            return Err(Refusal::new(step, "it does not say that it is ready"));
        }
        output.read_exact(&mut port).step(step)?;
        Ok(Self { upper, port: u16::from_ne_bytes(port), secret })
    }

    /// Its number in its process namespace.
    pub(super) fn number(&self) -> String {
        self.upper.id().to_string()
    }

    /// Asks for the secret.
    pub(super) fn ask(&self) -> Result<(), String> {
        let answer = || -> io::Result<Secret> {
            let mut peer = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            peer.set_read_timeout(Some(PATIENCE))?;
            let mut answer = Secret::default();
            peer.read_exact(&mut answer)?;
            Ok(answer)
        };
        match answer() {
            Ok(answer) if answer == self.secret => Ok(()),
            Ok(_) => Err("it answers, but not with what it had in memory".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Is the upper process of the tree, until it is killed: passes questions on to the child, and
/// answers through the connection that it holds with itself.
///
/// For a program that was started with [`SUBJECT_WORDS`] and has a single thread.
pub fn be_dumped() -> io::Result<()> {
    // Whoever started us all may have left descriptors open that lead outside.
    close_all_but(&[])?;
    let mut secret = Secret::default();
    io::stdin().read_exact(&mut secret)?;
    let (questions, mut ask) = io::pipe()?;
    let (mut answers, answer) = io::pipe()?;
    setsid()?;
    if let Side::Child = fork(Namespaces::NONE)? {
        drop((ask, answers));
        let _ = leave_outputs().and_then(|()| keep(questions, answer, secret));
        leave(1)
    }
    drop((questions, answer));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Made before anybody can ask, who would be taken for the other end.
    let mut held = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    rustix::io::write(rustix::stdio::stdout(), &listener.local_addr()?.port().to_ne_bytes())?;
    leave_outputs()?;
    loop {
        let (mut peer, _) = listener.accept()?;
        let mut heard = Secret::default();
        ask.write_all(&[1])?;
        answers.read_exact(&mut heard)?;
        held.write_all(&heard)?;
        other.read_exact(&mut heard)?;
        // Who asked may be gone, and the next one is served all the same.
        let _ = peer.write_all(&heard);
    }
}

/// The child: keeps the secret and says it when asked.
fn keep(mut questions: impl Read, mut answers: impl Write, secret: Secret) -> io::Result<()> {
    loop {
        questions.read_exact(&mut [0])?;
        answers.write_all(&secret)?;
    }
}

/// What leads to processes outside of the tree could not be dumped.
fn leave_outputs() -> io::Result<()> {
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}
