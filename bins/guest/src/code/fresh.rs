//! Code in a fresh process that remembers nothing, told as events for browsers.
//!
//! The process is read only as fast as the client reads, and ends when the client goes away.

use std::collections::VecDeque;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guest_proto::code::Language;
use guest_proto::process::ProcessConfig;
use http::HeaderMap;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::frame::Stream;
use super::kernel::{Handle, How};
use super::start::{adopt, missing};
use super::text::{Decoder, json_line};
use crate::process::{Exit, Wish};
use crate::state::State;

/// The longest line that is told in one event.
const LONGEST_LINE: usize = 64 << 10;

/// How long nothing is said before a sign of life.
const SILENCE: Duration = Duration::from_secs(15);

/// How long the pipes of a process that has ended are still read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A fresh process and what is still to be told of it.
#[derive(Debug)]
pub(super) struct Fresh {
    stdout: Option<Lines>,
    stderr: Option<Lines>,
    handle: Handle,
    ended: watch::Receiver<Option<How>>,
    deadline: Option<Instant>,
    /// Until when the pipes are read, once it has ended.
    last_words: Option<Instant>,
    limit: Option<Duration>,
    events: VecDeque<Bytes>,
    over: bool,
}

#[derive(Debug)]
struct Lines {
    pipe: pipe::Receiver,
    decoder: Decoder,
    partial: String,
}

#[derive(Serialize)]
struct Said<'a> {
    r#type: u8,
    data: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
}

impl Fresh {
    /// Starts it, or says why not.
    pub(super) async fn start(
        state: &Arc<State>,
        language: Language,
        code: &str,
        limit: Option<Duration>,
    ) -> Result<Self, String> {
        let [name, arguments @ ..] = command(language) else { return Err("no command".to_owned()) };
        let config = ProcessConfig {
            cmd: (*name).to_owned(),
            args: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            ..ProcessConfig::default()
        };
        let defaults = state.defaults().clone();
        let command = crate::process::command(&config, &HeaderMap::new(), &defaults, false)
            .map_err(|error| error.message.unwrap_or_default())?;
        let failed = |error: std::io::Error| format!("cannot start `{name}`: {error}");
        let file =
            memfd_create("code", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut file = std::fs::File::from(file);
        file.write_all(code.as_bytes()).and_then(|()| file.rewind()).map_err(failed)?;
        let wish = Wish::Given { stdin: file.as_fd(), further: &[] };
        let launched = state.spawner.launch(&command, wish).await.map_err(failed)?;
        let (stdout, stderr, handle, mut ended) = adopt(state, launched);
        if let Some(How::NotExecuted(_)) = *ended.borrow_and_update() {
            return Err(missing(language));
        }
        let lines = |pipe: Option<pipe::Receiver>| {
            pipe.map(|pipe| Lines { pipe, decoder: Decoder::default(), partial: String::new() })
        };
        Ok(Self {
            stdout: lines(stdout),
            stderr: lines(stderr),
            handle,
            ended,
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
            last_words: None,
            limit,
            events: VecDeque::new(),
            over: false,
        })
    }

    /// The next event; none after the last.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.wait().await;
        }
    }

    async fn wait(&mut self) {
        let has_ended = self.ended.borrow().is_some();
        let is_open = self.stdout.is_some() || self.stderr.is_some();
        if has_ended && !is_open {
            return self.finish();
        }
        if has_ended && self.last_words.is_none() {
            self.last_words = Some(Instant::now() + LAST_WORDS);
        }
        // Whatever it writes, its time and its end are looked at first.
        tokio::select! {
            biased;
            () = expire(self.deadline), if !has_ended => {
                let limit = self.limit.unwrap_or_default().as_millis();
                let data = format!("the time of {limit} ms was over: the process was killed");
                self.handle.kill();
                self.tell(3, &data, None);
                self.over = true;
            }
            () = end(&mut self.ended), if !has_ended => {
                self.last_words = Some(Instant::now() + LAST_WORDS);
            }
            () = expire(self.last_words) => {
                // Children that it left behind hold them.
                self.say(Stream::Stdout, &[]);
                self.say(Stream::Stderr, &[]);
            }
            lines = read(&mut self.stdout), if self.stdout.is_some() => {
                self.say(Stream::Stdout, &lines);
            }
            lines = read(&mut self.stderr), if self.stderr.is_some() => {
                self.say(Stream::Stderr, &lines);
            }
            () = sleep(SILENCE), if !has_ended => {
                self.events.push_back(Bytes::from_static(b": \n\n"));
            }
        }
    }

    /// Tells lines, or that there are no more.
    fn say(&mut self, stream: Stream, lines: &[String]) {
        let number = match stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        if lines.is_empty() {
            let ended = match stream {
                Stream::Stdout => self.stdout.take(),
                Stream::Stderr => self.stderr.take(),
            };
            if let Some(mut ended) = ended {
                let rest = ended.decoder.finish();
                ended.partial.push_str(&rest);
                if !ended.partial.is_empty() {
                    self.tell(number, &ended.partial, None);
                }
            }
        }
        for line in lines.iter().filter(|line| !line.is_empty()) {
            self.tell(number, line.strip_suffix('\n').unwrap_or(line), None);
        }
    }

    fn finish(&mut self) {
        self.over = true;
        let how = self.ended.borrow().unwrap_or(How::Unknown);
        match how {
            How::Exit(Exit::Code(code)) => self.tell(2, "", Some(code)),
            How::Exit(Exit::Signal(signal)) => {
                self.tell(3, &format!("the process was ended by signal {signal}"), None);
                self.tell(2, "", Some(128 + signal));
            }
            How::NotExecuted(_) | How::Unknown => {
                self.tell(3, "the process could not be run", None);
                self.tell(2, "", Some(127));
            }
        }
    }

    fn tell(&mut self, number: u8, data: &str, code: Option<i32>) {
        let line = json_line(&Said { r#type: number, data, code });
        self.events.push_back(Bytes::from([b"data: ".as_slice(), &line, b"\n\n"].concat()));
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if self.ended.borrow().is_none() {
            self.handle.kill();
        }
    }
}

/// How code that comes on standard input is run.
fn command(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["python3", "-u", "-"],
        Language::Javascript => &["node", "-"],
        Language::Typescript => {
            &["node", "--experimental-strip-types", "--input-type=module-typescript", "-"]
        }
        Language::R => &["Rscript", "--vanilla", "-"],
        Language::Bash => &["bash", "-s"],
    }
}

/// The lines that come next, the last of them perhaps only a part of one; none at the end.
async fn read(lines: &mut Option<Lines>) -> Vec<String> {
    let Some(lines) = lines else { return std::future::pending().await };
    let mut buffer = vec![0; 32 << 10];
    let Ok(length @ 1..) = lines.pipe.read(&mut buffer).await else { return Vec::new() };
    lines.partial.push_str(&lines.decoder.decode(&buffer[..length]));
    let mut whole: Vec<String> =
        lines.partial.split_inclusive('\n').map(ToOwned::to_owned).collect();
    lines.partial = match whole.last() {
        Some(last) if !last.ends_with('\n') && last.len() < LONGEST_LINE => {
            whole.pop().unwrap_or_default()
        }
        _ => String::new(),
    };
    if whole.is_empty() {
        // Not the end: a line that goes on.
        whole.push(String::new());
    }
    whole
}

async fn end(ended: &mut watch::Receiver<Option<How>>) {
    let _ = ended.wait_for(Option::is_some).await;
}

async fn expire(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
