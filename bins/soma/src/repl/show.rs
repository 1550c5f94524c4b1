//! What happens in an execution, as somebody at a terminal sees it.
//!
//! What a cell writes is passed on as it is, like that of any command. Values, errors and all that
//! we say about them come from the sandbox too, and cannot steer the terminal.

use bytes::Bytes;
use guest_proto::code::{Bundle, CHART, DATA, EventKind, Failure, Status};
use serde_json::Value;

use super::image::{Pictures, dimensions, size};
use crate::output::{Stream, one_line};

/// Forms that are text anybody can read, the best first.
const READABLE: [&str; 3] = ["text/plain", "text/markdown", "text/latex"];

/// Forms that only repeat a text for programs.
const REPEATED: [&str; 4] = ["application/json", "text/markdown", "text/latex", DATA];

/// Forms that are shown as pictures, the best first.
const PICTURES: [&str; 3] = ["image/png", "image/jpeg", "image/gif"];

/// Makes words of events.
#[derive(Debug)]
pub(super) struct Show {
    pictures: Pictures,
    /// What was written last did not end its line.
    is_mid_line: bool,
}

type Piece = (Stream, Bytes);

impl Show {
    pub(super) fn new(pictures: Pictures) -> Self {
        Self { pictures, is_mid_line: false }
    }

    /// What to write for this event.
    pub(super) fn event(&mut self, kind: EventKind) -> Vec<Piece> {
        let mut pieces = Vec::new();
        match kind {
            EventKind::Stdout { text } => self.raw(&mut pieces, Stream::Stdout, text),
            EventKind::Stderr { text } => self.raw(&mut pieces, Stream::Stderr, text),
            EventKind::Result { bundle, .. } | EventKind::Display { bundle, .. } => {
                self.value(&mut pieces, &bundle);
            }
            EventKind::Error(failure) => self.say(&mut pieces, Stream::Stderr, &error(&failure)),
            EventKind::Restarted { reason } => {
                let words =
                    format!("soma: a fresh kernel, variables are lost: {}", one_line(&reason));
                self.say(&mut pieces, Stream::Stderr, &words);
            }
            EventKind::Note { text } => {
                self.say(&mut pieces, Stream::Stderr, &format!("soma: {}", one_line(&text)));
            }
            EventKind::Dropped { count } => {
                let words = format!("soma: {count} events came too fast and are not shown");
                self.say(&mut pieces, Stream::Stderr, &words);
            }
            EventKind::End { status, reason } => {
                if let Some(words) = ending(status, reason.as_deref()) {
                    self.say(&mut pieces, Stream::Stderr, &words);
                }
            }
            EventKind::Accepted { .. }
            | EventKind::Started { .. }
            | EventKind::Clear
            | EventKind::Input { .. }
            | EventKind::Keepalive => {}
        }
        pieces
    }

    /// What ends a line that is not ended, so that a prompt begins its own.
    pub(super) fn end_line(&mut self) -> Option<Piece> {
        std::mem::take(&mut self.is_mid_line).then(|| (Stream::Stdout, Bytes::from_static(b"\n")))
    }

    fn raw(&mut self, pieces: &mut Vec<Piece>, stream: Stream, text: String) {
        if !text.is_empty() {
            self.is_mid_line = !text.ends_with('\n');
            pieces.push((stream, Bytes::from(text)));
        }
    }

    /// Says something on lines of its own.
    fn say(&mut self, pieces: &mut Vec<Piece>, stream: Stream, words: &str) {
        pieces.extend(self.end_line());
        pieces.push((stream, Bytes::from(format!("{}\n", words.trim_end_matches('\n')))));
    }

    fn value(&mut self, pieces: &mut Vec<Piece>, bundle: &Bundle) {
        let mut unseen: Vec<(&String, &Value)> = bundle.iter().collect();
        let picture = PICTURES.iter().find_map(|kind| {
            let text = bundle.get(*kind)?.as_str()?;
            Some((*kind, self.pictures.show(kind, text)?))
        });
        if let Some((kind, sequence)) = picture {
            pieces.extend(self.end_line());
            pieces.push((Stream::Stdout, Bytes::from(sequence)));
            // The text beside a picture only says that there is one.
            unseen.retain(|(other, _)| *other != kind && *other != "text/plain");
        } else if let Some((kind, text)) = readable(bundle) {
            self.say(pieces, Stream::Stdout, &harmless(&text));
            // The same once more in other words is nothing that is missed.
            unseen.retain(|(other, _)| *other != kind && !REPEATED.contains(&other.as_str()));
        }
        if !unseen.is_empty() {
            let told: Vec<String> =
                unseen.iter().map(|(kind, value)| describe(kind, value)).collect();
            self.say(pieces, Stream::Stderr, &format!("[not shown here: {}]", told.join("; ")));
        }
    }
}

/// The best text of a value.
fn readable(bundle: &Bundle) -> Option<(&str, String)> {
    for kind in READABLE {
        if let Some(text) = bundle.get(kind).and_then(Value::as_str) {
            return Some((kind, text.to_owned()));
        }
    }
    let json = bundle.get("application/json")?;
    Some(("application/json", serde_json::to_string_pretty(json).ok()?))
}

/// A form in a few words.
fn describe(kind: &str, value: &Value) -> String {
    if kind == CHART {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or("some");
        let title = value.get("title").and_then(Value::as_str).filter(|title| !title.is_empty());
        let title = title.map(|title| format!(" '{}'", short(title))).unwrap_or_default();
        return format!("chart ({}){title}", short(kind));
    }
    if kind == DATA {
        return "table as data".to_owned();
    }
    let text = value.as_str().unwrap_or_default();
    let mut words = vec![short(kind)];
    if let Some((width, height)) = dimensions(text).filter(|_| kind == "image/png") {
        words.push(format!("{width}x{height}"));
    }
    // Of binary forms the text is base64.
    let is_binary = !kind.starts_with("text/") && kind != "image/svg+xml" && value.is_string();
    let bytes = if is_binary && kind != "application/javascript" { size(text) } else { text.len() };
    if bytes > 0 {
        words.push(format!("{} KiB", bytes.div_ceil(1024)));
    }
    words.join(", ")
}

fn short(text: &str) -> String {
    one_line(text).chars().take(80).collect()
}

/// Why a cell failed.
fn error(failure: &Failure) -> String {
    if !failure.traceback.trim().is_empty() {
        return harmless(&failure.traceback);
    }
    match failure.value.as_str() {
        "" => one_line(&failure.name),
        value => format!("{}: {}", one_line(&failure.name), harmless(value)),
    }
}

/// What an end means that its error does not say.
fn ending(status: Status, reason: Option<&str>) -> Option<String> {
    let words = match status {
        Status::Killed => "the kernel was killed, and variables are lost",
        Status::Died => "the kernel ended, and variables are lost",
        Status::Timeout => "its time was over",
        Status::Cancelled => "it was cancelled before it ran",
        _ => return None,
    };
    let reason = reason.map(|reason| format!(": {}", one_line(reason)));
    Some(format!("soma: {words}{}", reason.unwrap_or_default()))
}

/// Lines and tabs, and nothing else that steers a terminal.
fn harmless(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(pieces: Vec<Piece>) -> String {
        let word = |(stream, bytes): Piece| {
            let name = if stream == Stream::Stdout { "out" } else { "err" };
            format!("{name}:{}", String::from_utf8_lossy(&bytes))
        };
        pieces.into_iter().map(word).collect()
    }

    fn shown(value: Value) -> String {
        let Value::Object(forms) = value else { panic!() };
        let bundle = forms.into_iter().collect();
        let kind = EventKind::Result { bundle, metadata: None, main: true };
        told(Show::new(Pictures::No).event(kind))
    }

    #[test]
    fn a_value_is_its_text_and_what_is_not_shown_is_told() {
        assert_eq!(shown(json!({"text/plain": "2"})), "out:2\n");
        assert_eq!(shown(json!({"text/plain": "[2]", "application/json": [2]})), "out:[2]\n");
        assert_eq!(
            shown(json!({"text/plain": "  a", "text/html": "<table>"})),
            "out:  a\nerr:[not shown here: text/html, 1 KiB]\n"
        );
        assert_eq!(shown(json!({"application/json": {"a": 1}})), "out:{\n  \"a\": 1\n}\n");
        assert_eq!(
            shown(json!({CHART: {"type": "line", "title": "T\u{1b}"}})),
            "err:[not shown here: chart (line) 'T ']\n"
        );
        assert_eq!(shown(json!({"image/png": "AAAA"})), "err:[not shown here: image/png, 1 KiB]\n");
    }

    #[test]
    fn a_picture_is_shown_where_it_can_be() {
        let forms = json!({"text/plain": "<Figure>", "image/png": "AAAA"});
        let Value::Object(forms) = forms else { panic!() };
        let kind = EventKind::Display {
            bundle: forms.into_iter().collect(),
            metadata: None,
            display_id: None,
            update: false,
        };
        let told = told(Show::new(Pictures::Kitty).event(kind));
        assert_eq!(told, "out:\x1b_Ga=T,f=100,q=2,m=0;AAAA\x1b\\\n");
    }

    #[test]
    fn what_we_say_steers_no_terminal_and_begins_a_line() {
        let mut show = Show::new(Pictures::No);
        let text = "half".to_owned();
        assert_eq!(told(show.event(EventKind::Stdout { text })), "out:half");
        let failure = Failure {
            name: "E\x1b[2J".to_owned(),
            value: "v\x07".to_owned(),
            traceback: String::new(),
        };
        assert_eq!(told(show.event(EventKind::Error(failure))), "out:\nerr:E [2J: v \n");
        let failure = Failure { traceback: "one\n\ttwo\x1b".to_owned(), ..Failure::default() };
        assert_eq!(told(show.event(EventKind::Error(failure))), "err:one\n\ttwo \n");
        let reason = Some("out of\nmemory".to_owned());
        let end = EventKind::End { status: Status::Died, reason };
        let words = "err:soma: the kernel ended, and variables are lost: out of memory\n";
        assert_eq!(told(show.event(end)), words);
    }
}
