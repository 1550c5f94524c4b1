//! What a cell says, on its way to those who read: bounded, cut, and as events.

use std::sync::Arc;

use guest_proto::code::{EventKind, Failure, Limits};
use serde::Deserialize;

use super::bundle::{self, Shown};
use super::cut::{Cut, Told};
use super::frame::{Frame, Stream};
use super::log::Log;
use super::spool::Spools;

/// The longest question, and the longest name of something that is shown, in bytes.
const LONGEST_PROMPT: usize = 4 << 10;
const LONGEST_NAME: usize = 200;

/// What a cell says, on its way to the log.
pub(super) struct Voice<'a> {
    pub(super) log: &'a Log,
    stdout: Cut,
    stderr: Cut,
    limits: Limits,
    /// An interrupt that was ours raises an error that is not told; its traceback is.
    pub(super) hushed: Option<Failure>,
}

impl<'a> Voice<'a> {
    /// The voice of a cell that has said nothing yet.
    pub(super) fn new(
        log: &'a Log,
        limits: &Limits,
        spools: &Arc<Spools>,
        execution: &str,
    ) -> Self {
        let cut = |stream, limit| Cut::new(stream, limit, Arc::clone(spools), execution.to_owned());
        Self {
            log,
            stdout: cut(Stream::Stdout, limits.stdout),
            stderr: cut(Stream::Stderr, limits.stderr),
            limits: *limits,
            hushed: None,
        }
    }

    /// Passes a frame on. `hush` keeps an error back.
    pub(super) async fn frame(&mut self, frame: Frame, hush: bool) {
        match frame {
            Frame::Output(stream, bytes) => self.output(stream, &bytes).await,
            Frame::Text(payload) => {
                let bundle = bundle::plain(&payload, self.limits.result);
                self.log.publish(EventKind::Result { bundle, metadata: None, main: true }).await;
            }
            Frame::Result(payload) | Frame::Display(payload) if payload.is_empty() => {}
            Frame::Result(payload) => match Shown::parse(&payload) {
                Some(shown) => {
                    let (bundle, metadata) = shown.bundle(self.limits.result);
                    let result = EventKind::Result { bundle, metadata, main: true };
                    self.log.publish(result).await;
                }
                None => self.note("a value could not be read and is left out"),
            },
            Frame::Display(payload) => match Shown::parse(&payload) {
                Some(shown) => {
                    let (mut display_id, update) = (shown.display_id(), shown.update);
                    if let Some(name) = &mut display_id {
                        shorten(name, LONGEST_NAME);
                    }
                    let (bundle, metadata) = shown.bundle(self.limits.result);
                    let display = EventKind::Display { bundle, metadata, display_id, update };
                    self.log.publish(display).await;
                }
                None => self.note("something that was shown could not be read and is left out"),
            },
            Frame::Clear => self.log.push(EventKind::Clear),
            Frame::Error(payload) => {
                let failure = bundle::failure(&payload, self.limits.traceback);
                if hush {
                    self.hushed = Some(failure);
                } else {
                    self.log.publish(EventKind::Error(failure)).await;
                }
            }
            Frame::Input(payload) => {
                #[derive(Deserialize, Default)]
                #[serde(default)]
                struct Asked {
                    prompt: String,
                    password: bool,
                }
                let asked: Asked = serde_json::from_slice(&payload).unwrap_or_default();
                let Asked { mut prompt, password } = asked;
                shorten(&mut prompt, LONGEST_PROMPT);
                self.log.push(EventKind::Input { prompt, password });
            }
            Frame::TooLarge(length) => {
                self.note(&format!("a value of {length} bytes is too large and is left out"));
            }
            Frame::Ready(_) | Frame::Done(..) | Frame::Completions(_) | Frame::After { .. } => {}
        }
    }

    /// Passes output on, as far as its limit.
    pub(super) async fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let told = match stream {
            Stream::Stdout => self.stdout.take(bytes).await,
            Stream::Stderr => self.stderr.take(bytes).await,
        };
        self.tell(stream, told).await;
    }

    /// The end of both streams.
    pub(super) async fn close(&mut self) {
        let told = self.stdout.finish().await;
        self.tell(Stream::Stdout, told).await;
        let told = self.stderr.finish().await;
        self.tell(Stream::Stderr, told).await;
    }

    async fn tell(&mut self, stream: Stream, Told { text, note }: Told) {
        if !text.is_empty() {
            let kind = match stream {
                Stream::Stdout => EventKind::Stdout { text },
                Stream::Stderr => EventKind::Stderr { text },
            };
            self.log.publish(kind).await;
        }
        if let Some(note) = note {
            self.note(&note);
        }
    }

    fn note(&self, text: &str) {
        self.log.push(EventKind::Note { text: text.to_owned() });
    }
}

/// Cuts a text, not inside of a character.
fn shorten(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}
