//! How far something is, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What a bar shows when it is known how much there is, and when not.
const KNOWN: &str = "{bytes} of {total_bytes} [{bar:30}] {bytes_per_sec} {eta}";
const UNKNOWN: &str = "{bytes} {bytes_per_sec}";

/// How far something is. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins. Nothing is shown where nobody looks: standard error is no terminal.
    pub(crate) fn begin() -> Self {
        let is_seen = rustix::termios::isatty(rustix::stdio::stderr());
        let target =
            if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Self { bar: styled(bar, UNKNOWN) }
    }

    /// Says how much there is.
    pub(crate) fn expect(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.bar.set_length(bytes);
            drop(styled(self.bar.clone(), KNOWN));
        }
    }

    /// So much more is done.
    pub(crate) fn passed(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// Says something beside it.
    pub(crate) fn say(&self, words: &str) {
        self.bar.suspend(|| super::talk(&format!("soma: {}\n", super::one_line(words.trim_end()))));
    }

    /// Takes it off the terminal.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => {
            bar.set_style(style.progress_chars("=> "));
            bar
        }
        Err(_) => bar,
    }
}
