//! The last of what a step of a build said.

use guest_proto::client::Ended;

/// So much of it is kept.
const KEPT: usize = 4 << 10;

/// So many lines of it explain a failure.
const LINES: usize = 12;

/// A line is shown up to here.
const WIDTH: usize = 120;

/// The last of what was said.
#[derive(Debug, Default)]
pub(super) struct Tail {
    text: Vec<u8>,
}

impl Tail {
    /// Keeps what was said, and gives the last whole line of it, if there is a new one.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<String> {
        self.text.extend_from_slice(bytes);
        let excess = self.text.len().saturating_sub(KEPT);
        self.text.drain(..excess);
        if !bytes.contains(&b'\n') {
            return None;
        }
        let whole = self.text.rsplitn(2, |byte| *byte == b'\n').nth(1)?;
        let line = whole.rsplit(|byte| *byte == b'\n').next()?;
        let line = clean(&String::from_utf8_lossy(line));
        (!line.is_empty()).then_some(line)
    }

    /// Why a step that said this failed.
    pub(super) fn explain(&self, ended: &Ended) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let hint = if text.contains("No module named pip") {
            "install pip for the host's Python (Debian: python3-pip). "
        } else {
            ""
        };
        let how = match ended.signal {
            Some(signal) => format!("signal {signal} ended it"),
            None => format!("it ended with code {}", ended.code),
        };
        let lines: Vec<String> = text.lines().map(clean).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        format!("{hint}{how}, and this is the last of what it said:\n{last}")
    }
}

/// A line without what could do something to a terminal.
fn clean(line: &str) -> String {
    line.trim().chars().filter(|c| !c.is_control()).take(WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_is_told_and_the_end_is_kept() {
        let mut tail = Tail::default();
        assert_eq!(tail.push(b"Collecting nu"), None);
        assert_eq!(tail.push(b"mpy\nDown").unwrap(), "Collecting numpy");
        assert_eq!(tail.push(b"loading\x1b[31m\n").unwrap(), "Downloading[31m");
        for number in 0..10_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        let said = tail.explain(&Ended { code: 3, ..Ended::default() });
        assert!(said.starts_with("it ended with code 3"), "{said}");
        assert!(said.ends_with("line 9998\nline 9999") && !said.contains("line 9987\n"), "{said}");
    }

    #[test]
    fn a_host_without_pip_is_told_what_to_install() {
        let mut tail = Tail::default();
        tail.push(b"/usr/bin/python3: No module named pip\n");
        let said = tail.explain(&Ended { code: 1, ..Ended::default() });
        assert!(said.starts_with("install pip"), "{said}");
    }
}
