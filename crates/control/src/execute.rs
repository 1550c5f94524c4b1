//! Running a command to its end and keeping what it wrote.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use domain::Cause;
use guest_proto::GuestError;
use guest_proto::client::{Ended, Event, Running, StartOptions};
use policy::Caller;

use crate::{Control, ControlError, Reference};

/// How long the output of a command that has exited must be quiet before it counts as complete:
/// children that it left behind may hold its pipes for ever.
const QUIET: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Execution {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables on top of the sandbox's own.
    pub environment: BTreeMap<String, String>,
    /// Where it runs; the user's home when unset.
    pub folder: Option<String>,
    /// Who runs it; the sandbox's user when unset.
    pub user: Option<String>,
    /// When it is ended with all below it; never when unset.
    pub timeout: Option<Duration>,
    /// What it reads from its standard input.
    pub input: Option<Bytes>,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Executed {
    /// How it ended; unset when its time was over.
    pub ended: Option<Ended>,
    /// What it wrote to standard output.
    pub stdout: Text,
    /// What it wrote to standard error.
    pub stderr: Text,
}

impl Executed {
    /// Why it failed, where that is known.
    pub fn cause(&self) -> Option<Cause> {
        self.ended.as_ref().map_or(Some(Cause::Timeout), cause_of)
    }
}

/// Why a command that ended so has failed, where that is known.
pub fn cause_of(ended: &Ended) -> Option<Cause> {
    if ended.exec_errno.is_some() {
        return None;
    }
    let told = ended.cause.as_deref().and_then(Cause::from_word);
    told.or_else(|| Cause::of_end(ended.code, ended.signal))
}

impl Control {
    /// Runs a command in a sandbox, and answers when it has exited and its output is quiet.
    ///
    /// What it left running goes on. When its time is over it is ended with all below it, and
    /// what it wrote until then is there.
    pub async fn execute(
        &self,
        caller: &Caller,
        which: &Reference,
        execution: Execution,
    ) -> Result<Executed, ControlError> {
        let guest = self.guest(caller, which).await?;
        let input = execution.input;
        let options = StartOptions {
            cmd: execution.program,
            args: execution.arguments,
            env: execution.environment,
            cwd: execution.folder,
            user: execution.user,
            timeout: execution.timeout,
            stdin: input.is_some(),
            tells_exit: true,
            ..StartOptions::default()
        };
        let mut running = guest.start(options).await?;
        let mut executed = Executed::default();
        let Some(Event::Started { pid }) = running.next().await? else {
            let message = "it does not say that the command started".to_owned();
            return Err(GuestError::Unavailable { message }.into());
        };
        let fed = async {
            if let Some(input) = input {
                // A command that does not read its input is none the worse for it.
                let _ = guest.send_input(pid, input).await;
                let _ = guest.close_stdin(pid).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = fed => {}
            followed = executed.follow(&mut running) => followed?,
        }
        Ok(executed)
    }
}

impl Executed {
    async fn follow(&mut self, running: &mut Running) -> Result<(), ControlError> {
        loop {
            let event = if self.ended.is_none() {
                running.next().await
            } else {
                match tokio::time::timeout(QUIET, running.next()).await {
                    Ok(event) => event,
                    Err(_) => return Ok(()),
                }
            };
            match event {
                Ok(Some(Event::Stdout(bytes))) => self.stdout.push(&bytes),
                Ok(Some(Event::Stderr(bytes))) => self.stderr.push(&bytes),
                Ok(Some(Event::Exited(ended))) => self.ended = Some(ended),
                Ok(Some(Event::Ended(ended))) => {
                    self.ended = Some(ended);
                    return Ok(());
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(GuestError::DeadlineExceeded { .. }) => {
                    self.ended = None;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What somebody wrote, as much of it as is kept: the beginning and the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Text {
    /// How much of the beginning is kept.
    pub const HEAD: usize = 512 << 10;
    /// How much of the end is kept. As JSON all of it can be six times as large, and output is there
    /// twice.
    pub const TAIL: usize = 1536 << 10;

    fn push(&mut self, bytes: &[u8]) {
        let room = Self::HEAD - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        // Only the last of it can stay, so only that is copied.
        let skipped = rest.len().saturating_sub(Self::TAIL);
        self.dropped += skipped as u64;
        let rest = &rest[skipped..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(Self::TAIL);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
        self.tail.extend(rest);
    }

    /// How many bytes in the middle were not kept.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What is kept, with a line about what is not.
    pub fn to_text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            let note = format!("\n[soma: {} bytes are left out here]\n", self.dropped);
            bytes.extend_from_slice(note.as_bytes());
        }
        bytes.extend(self.tail.iter());
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_kept_whole() {
        let mut text = Text::default();
        text.push(b"hello ");
        text.push(b"\xffworld");
        assert_eq!(text.to_text(), "hello \u{fffd}world");
        assert_eq!(text.dropped(), 0);
    }

    #[test]
    fn of_what_is_long_the_beginning_and_the_end_are_kept() {
        let mut text = Text::default();
        text.push(b"begin");
        for _ in 0..1000 {
            text.push(&[b'x'; 10_000]);
        }
        text.push(b"end");
        let shown = text.to_text();
        assert!(shown.starts_with("begin") && shown.ends_with("end"));
        let kept = (Text::HEAD + Text::TAIL) as u64;
        assert_eq!(text.dropped(), 10_000_008 - kept);
        assert!(shown.contains(&format!("[soma: {} bytes are left out here]", text.dropped())));
    }

    #[test]
    fn one_large_piece_is_cut_like_many_small_ones() {
        let (mut one, mut many) = (Text::default(), Text::default());
        let bytes: Vec<u8> = (0..6_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
        one.push(&bytes);
        bytes.chunks(777).for_each(|chunk| many.push(chunk));
        assert_eq!(one, many);
    }
}
