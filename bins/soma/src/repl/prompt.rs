//! Asks on the terminal.
//!
//! The editor blocks while somebody types, so it has a thread of its own, which is handed
//! questions one at a time and is not waited for when the program leaves.

use std::io;
use std::sync::mpsc as blocking;
use std::time::Duration;

use guest_proto::code::{Complete, Completions, Language};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Editor, Helper};
use tokio::sync::mpsc;

use super::incomplete::is_incomplete;
use super::secret;
use crate::output;

/// How long completions are waited for: who types goes on.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most completions that are offered.
const OFFERED: usize = 500;

/// What Tab means where a line begins.
const INDENT: &str = "    ";

/// What is asked.
#[derive(Debug)]
pub(super) enum Question {
    /// A cell.
    Cell,
    /// A line for a cell that asks for one.
    Line(String),
    /// The same, not to be seen.
    Secret(String),
}

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// Somebody pressed Tab.
#[derive(Debug)]
pub(super) struct Tab {
    pub(super) asked: Complete,
    pub(super) answer: blocking::SyncSender<Completions>,
}

/// The terminal while cells are typed. It is as it was when this is dropped.
#[derive(Debug)]
pub(super) struct Prompt {
    questions: blocking::Sender<Question>,
    replies: mpsc::UnboundedReceiver<Reply>,
    tabs: mpsc::UnboundedReceiver<Tab>,
    before: Option<Termios>,
    /// A question is not answered.
    is_asking: bool,
}

/// What happens at the terminal.
#[derive(Debug)]
pub(super) enum Typed {
    Reply(Reply),
    Tab(Tab),
}

impl Prompt {
    /// Asks for cells of this language, with what was typed before.
    pub(super) fn start(language: Language, history: Vec<String>) -> io::Result<Self> {
        let before = tcgetattr(stdin()).ok();
        let (questions, asked) = blocking::channel();
        let (reply, replies) = mpsc::unbounded_channel();
        let (tab, tabs) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("prompt".to_owned()).spawn(move || {
            let Ok(mut editors) = Editors::new(language, history, tab) else { return };
            while let Ok(question) = asked.recv() {
                if reply.send(editors.ask(question)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { questions, replies, tabs, before, is_asking: false })
    }

    /// Asks. The answer comes from [`next`](Self::next).
    pub(super) fn ask(&mut self, question: Question) {
        self.is_asking = true;
        // Without the thread there are no replies either, which says enough.
        let _ = self.questions.send(question);
    }

    /// Waits for what happens at the terminal. Cancellation-safe.
    pub(super) async fn next(&mut self) -> Typed {
        tokio::select! {
            reply = self.replies.recv() => {
                self.is_asking = false;
                Typed::Reply(reply.unwrap_or(Reply::End))
            }
            Some(tab) = self.tabs.recv() => Typed::Tab(tab),
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The thread may still ask.
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
        if self.is_asking {
            // What the editor switched on for pastes.
            output::talk("\x1b[?2004l\n");
        }
    }
}

/// What the thread has.
struct Editors {
    cells: Editor<Cells, MemHistory>,
    lines: Editor<(), MemHistory>,
    prompt: String,
}

impl Editors {
    fn new(
        language: Language,
        history: Vec<String>,
        tabs: mpsc::UnboundedSender<Tab>,
    ) -> rustyline::Result<Self> {
        let config = Config::builder().completion_type(CompletionType::List).build();
        let mut cells = Editor::with_history(config, MemHistory::new())?;
        cells.set_helper(Some(Cells { language, tabs }));
        for cell in history {
            cells.add_history_entry(cell)?;
        }
        let lines = Editor::with_history(Config::default(), MemHistory::new())?;
        Ok(Self { cells, lines, prompt: format!("{language}> ") })
    }

    fn ask(&mut self, question: Question) -> Reply {
        let read = match question {
            Question::Cell => {
                let read = self.cells.readline(&self.prompt);
                if let Ok(cell) = &read {
                    // What cannot be remembered can be run all the same.
                    let _ = self.cells.add_history_entry(cell.as_str());
                }
                read
            }
            Question::Line(prompt) => self.lines.readline(&prompt),
            Question::Secret(prompt) => return secret::ask(&prompt).unwrap_or(Reply::End),
        };
        match read {
            Ok(text) => Reply::Text(text),
            Err(ReadlineError::Interrupted) => Reply::Interrupted,
            Err(_) => Reply::End,
        }
    }
}

/// What the editor knows of cells.
struct Cells {
    language: Language,
    tabs: mpsc::UnboundedSender<Tab>,
}

impl Helper for Cells {}
impl Highlighter for Cells {}

impl Hinter for Cells {
    type Hint = String;
}

impl Validator for Cells {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_incomplete(self.language, context.input()) {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Completer for Cells {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..position];
        if before.rsplit('\n').next().is_none_or(|line| line.trim().is_empty()) {
            return Ok((position, vec![INDENT.to_owned()]));
        }
        let cursor = before.chars().count() as u64;
        let (answer, answered) = blocking::sync_channel(1);
        let asked = Complete { code: line.to_owned(), cursor: Some(cursor) };
        let found = match self.tabs.send(Tab { asked, answer }) {
            Ok(()) => answered.recv_timeout(PATIENCE).unwrap_or_default(),
            Err(_) => Completions::default(),
        };
        Ok(fitting(before, found))
    }
}

/// Where completions begin, in bytes, and those that can be shown. They come from the sandbox.
fn fitting(before: &str, found: Completions) -> (usize, Vec<String>) {
    let start = usize::try_from(found.start).unwrap_or(usize::MAX);
    let Some((start, _)) = before.char_indices().chain([(before.len(), ' ')]).nth(start) else {
        return (before.len(), Vec::new());
    };
    let fine = |text: &String| !text.chars().any(char::is_control) && text.len() < 1000;
    (start, found.matches.into_iter().filter(fine).take(OFFERED).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(start: u64, matches: &[&str]) -> Completions {
        let matches = matches.iter().map(ToString::to_string).collect();
        Completions { matches, start, end: start }
    }

    #[test]
    fn characters_become_bytes() {
        assert_eq!(fitting("é = os.pa", found(4, &["os.path"])), (5, vec!["os.path".to_owned()]));
        assert_eq!(fitting("ab", found(2, &["c"])), (2, vec!["c".to_owned()]));
    }

    #[test]
    fn what_a_sandbox_offers_cannot_steer_the_terminal() {
        assert_eq!(fitting("a", found(0, &["a\x1b[2J", "ab"])), (0, vec!["ab".to_owned()]));
        assert_eq!(fitting("a", found(9, &["ab"])), (1, vec![]));
        assert_eq!(fitting("a", found(u64::MAX, &["ab"])), (1, vec![]));
    }
}
