//! A terminal that a test can type into and read.

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{self, Home};

/// How long something on the screen is waited for.
const PATIENCE: Duration = Duration::from_secs(40);

/// The prompt of the host's shell in the pane.
const OUTSIDE: &str = "outside>";

/// A tmux server of its own with one pane, 100 by 30, ended with this.
pub(crate) struct Screen {
    folder: TempDir,
    /// How many programs were started so far: each says its exit code under its number.
    started: Cell<u32>,
}

impl Screen {
    /// A shell of the host. None when a program that the test needs is missing, which is said.
    pub(crate) fn open(home: &Home, test: &str, needs: &[&str]) -> Option<Self> {
        for program in ["tmux"].iter().chain(needs) {
            if !Path::new("/usr/bin").join(program).exists() {
                support::skip(test, &format!("{program} is not in /usr/bin"));
                return None;
            }
        }
        let folder = tempfile::Builder::new().prefix("soma-tmux-").tempdir().unwrap();
        let screen = Self { folder, started: Cell::new(0) };
        let shell = ["env", "HOME=/nowhere", "bash", "--norc", "--noprofile"];
        let mut start = screen.command(&["-f", "/dev/null", "new-session", "-d"]);
        start.args(["-x", "100", "-y", "30"]).args(shell);
        start.env("PS1", format!("{OUTSIDE} ")).env("LANG", "C.UTF-8").env("SHELL", "/bin/bash");
        start.env("SOMA", &*support::SOMA).env("SOMA_HOME", home.path());
        if !support::is_root() {
            start.env("SOMA_ALLOW_UNENFORCED", "true");
        }
        let started = start.output().unwrap();
        assert!(started.status.success(), "{started:?}");
        screen.wait("no prompt outside", |text| text.trim_end().ends_with(OUTSIDE));
        Some(screen)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut tmux = sys_linux::command::command("tmux");
        tmux.arg("-u")
            .arg("-S")
            .arg(self.folder.path().join("socket"))
            .args(words)
            .stdin(Stdio::null());
        tmux
    }

    #[track_caller]
    pub(crate) fn tmux(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types `soma` with these words.
    pub(crate) fn start(&self, words: &str) {
        self.started.set(self.started.get() + 1);
        self.line(&format!("$SOMA {words}; echo code-{}=$?=", self.started.get()));
    }

    /// Types `soma` with these words and waits for the prompt inside.
    #[track_caller]
    pub(crate) fn soma(&self, words: &str) {
        self.start(words);
        self.prompt();
    }

    /// Waits for a prompt inside at the end of the screen.
    #[track_caller]
    pub(crate) fn prompt(&self) {
        self.wait("no prompt inside", |text| text.trim_end().ends_with(":~$"));
    }

    /// Types a line, as it is.
    pub(crate) fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Presses keys by their names.
    pub(crate) fn keys(&self, names: &[&str]) {
        self.tmux(&[&["send-keys"], names].concat());
    }

    /// Sends bytes as a terminal would.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let hexadecimal: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let words: Vec<&str> = hexadecimal.iter().map(String::as_str).collect();
        self.tmux(&[&["send-keys", "-H"], &words[..]].concat());
    }

    /// What the screen shows.
    pub(crate) fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with its colours.
    pub(crate) fn coloured(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// What tmux knows of its pane, such as `mouse_any_flag`.
    pub(crate) fn state(&self, names: &[&str]) -> String {
        let format: Vec<String> = names.iter().map(|name| format!("#{{{name}}}")).collect();
        self.tmux(&["display-message", "-p", &format.join(" ")]).trim().to_owned()
    }

    /// Waits until the screen shows it.
    #[track_caller]
    pub(crate) fn wait(&self, otherwise: &str, shows: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if shows(&text) {
                return text;
            }
            assert!(begun.elapsed() < PATIENCE, "{otherwise}:\n{}", text.trim_end());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end of what was started last, and returns its exit code.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        let mark = format!("\ncode-{}=", self.started.get());
        let digits = |text: &str| {
            let (_, rest) = text.rsplit_once(&mark)?;
            rest.split_once('=')?.0.parse::<i32>().ok()
        };
        let over = |text: &str| digits(text).is_some() && text.trim_end().ends_with(OUTSIDE);
        digits(&self.wait("no exit code", over)).unwrap()
    }

    /// The settings of the pane's terminal, in one word.
    #[track_caller]
    pub(crate) fn settings(&self) -> String {
        self.line("clear; echo settings=$(stty -g)=");
        let word = |text: &str| {
            let (_, rest) = text.split_once("\nsettings=").or(text.split_once("settings="))?;
            let word = rest.split_once('=')?.0;
            (!word.contains('$')).then(|| word.replace('\n', ""))
        };
        word(&self.wait("no settings", |text| word(text).is_some())).unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
