//! A line that is typed and not seen.

use std::io;

use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::prompt::Reply;
use crate::output;

/// The most that such a line may have.
const LARGEST: usize = 64 << 10;

/// Asks for it on the terminal that standard input is.
pub(super) fn ask(prompt: &str) -> io::Result<Reply> {
    let before = tcgetattr(stdin())?;
    let mut unseen = before.clone();
    unseen.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    tcsetattr(stdin(), OptionalActions::Drain, &unseen)?;
    output::talk(prompt);
    let read = read(|| {
        let mut byte = [0];
        loop {
            match rustix::io::read(stdin(), &mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(byte[0])),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    });
    let _ = tcsetattr(stdin(), OptionalActions::Drain, &before);
    output::talk("\n");
    read
}

/// Reads keys until the line is over.
fn read(mut key: impl FnMut() -> io::Result<Option<u8>>) -> io::Result<Reply> {
    let mut line = Vec::new();
    loop {
        match key()? {
            None => return Ok(Reply::End),
            Some(b'\r' | b'\n') => {
                return Ok(Reply::Text(String::from_utf8_lossy(&line).into_owned()));
            }
            Some(0x03) => return Ok(Reply::Interrupted),
            Some(0x04) if line.is_empty() => return Ok(Reply::End),
            Some(0x04) => {}
            // Ctrl-U takes all of it back.
            Some(0x15) => line.clear(),
            Some(0x08 | 0x7f) => {
                // A character may have several bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            Some(byte) if line.len() < LARGEST => line.push(byte),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> Reply {
        let mut keys = keys.bytes();
        read(|| Ok(keys.next())).unwrap()
    }

    #[test]
    fn a_line_can_be_mended_before_it_is_given() {
        assert_eq!(typed("wrong\x15sä\x7fesame\r"), Reply::Text("sesame".to_owned()));
        assert_eq!(typed("abc\x03"), Reply::Interrupted);
        assert_eq!(typed("\x04"), Reply::End);
        assert_eq!(typed("half"), Reply::End);
    }
}
