//! Reads tar: the ancient format, the one of POSIX with its extensions, and GNU's.
//!
//! [`Archive::next`] gives one entry after the other; what is in a file is read from the archive
//! itself before the next one is asked for. What a stranger can choose is bounded: extensions by
//! [`Bounds::metadata`](crate::Bounds), entries and bytes by the meter.

mod header;
mod pax;

use std::io::{self, Read};

use header::{BLOCK, Header};
use pax::Extensions;

use crate::bounds::{Meter, Metered};
use crate::entry::{Entry, Kind, LONGEST_PATH, Path};
use crate::error::ImageError;

/// A tar stream.
#[derive(Debug)]
pub(crate) struct Archive<R> {
    stream: Metered<R>,
    meter: Meter,
    /// What is left of the file that was given last.
    left: u64,
    /// What fills up its last block.
    padding: u64,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(stream: R, meter: &Meter) -> Self {
        Self { stream: meter.read(stream), meter: meter.clone(), left: 0, padding: 0 }
    }

    /// The next entry; none at the end, behind which the stream was read empty.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip(self.left + self.padding)?;
            (self.left, self.padding) = (0, 0);
            let Some(header) = self.header()? else { return Ok(None) };
            // Those that only describe the next one count too: there may be any number of them.
            self.meter.entry()?;
            match header.kind {
                b'x' => extensions.read_pax(&self.metadata(header.size)?)?,
                // What is said for all that follows is about the archive, not about files.
                b'g' => drop(self.metadata(header.size)?),
                b'L' => extensions.path = Some(self.long_name(header.size)?),
                b'K' => extensions.target = Some(self.long_name(header.size)?),
                _ => return self.entry(header, extensions).map(Some),
            }
        }
    }

    /// Reads of the file that was given last.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, ImageError> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let read = retry(|| self.stream.read(&mut into[..most]));
        match read.map_err(|error| self.meter.explain(&error))? {
            0 => Err(ImageError::damaged("it ends in the middle of a file")),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }

    /// The next header; none at the end.
    fn header(&mut self) -> Result<Option<Header>, ImageError> {
        let mut block = [0; BLOCK];
        let got = self.fill(&mut block)?;
        if got == 0 {
            return Ok(None);
        }
        if got < BLOCK {
            return Err(ImageError::damaged("it ends in the middle of a header"));
        }
        if block.iter().all(|byte| *byte == 0) {
            // Whoever sends it must get rid of all of it.
            self.drain()?;
            return Ok(None);
        }
        Header::parse(&block).map(Some)
    }

    fn entry(&mut self, header: Header, extensions: Extensions) -> Result<Entry, ImageError> {
        let bounds = &self.meter.bounds;
        let name = extensions.path.unwrap_or(header.name);
        let target = extensions.target.unwrap_or(header.target);
        let path = Path::parse(&name, bounds)?;
        let sparse = extensions.is_sparse || header.kind == b'S';
        if sparse {
            let reason =
                "it is stored with its holes left out: make the archive without `--sparse`";
            return Err(ImageError::refused(&name, reason));
        }
        // Only files have anything behind them, whatever the header says: as everybody reads it.
        let size = extensions.size.unwrap_or(header.size);
        let kind = match header.kind {
            b'0' | 0 | b'7' if name.ends_with(b"/") => Kind::Folder,
            b'0' | 0 | b'7' => Kind::File { size },
            b'1' => Kind::HardLink { target: Path::parse(&target, bounds)? },
            b'2' => {
                let fits = !target.is_empty() && target.len() < LONGEST_PATH;
                if !fits || target.contains(&0) {
                    return Err(ImageError::refused(&name, "it is a link to nowhere that can be"));
                }
                Kind::Link { target }
            }
            b'3' if header.device == (0, 0) => Kind::Whiteout,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Folder,
            b'6' => Kind::Pipe,
            _ => Kind::Unknown,
        };
        if matches!(kind, Kind::File { .. } | Kind::Unknown) {
            self.left = size;
            self.padding = padding(size);
        }
        Ok(Entry {
            path,
            kind,
            mode: header.mode,
            user: extensions.user.unwrap_or(header.user),
            group: extensions.group.unwrap_or(header.group),
            modified: extensions.modified.unwrap_or(header.modified),
            attributes: extensions.attributes,
        })
    }

    /// What describes the next entry.
    fn metadata(&mut self, size: u64) -> Result<Vec<u8>, ImageError> {
        let most = self.meter.bounds.metadata;
        if size > most {
            return Err(ImageError::TooMuch { what: "bytes in one header", most });
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        if self.fill(&mut bytes)? < bytes.len() {
            return Err(ImageError::damaged("it ends in the middle of a header"));
        }
        self.padding = padding(size);
        Ok(bytes)
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, ImageError> {
        let mut name = self.metadata(size)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn skip(&mut self, mut count: u64) -> Result<(), ImageError> {
        let mut waste = vec![0; 16 << 10];
        while count > 0 {
            let most = usize::try_from(count).unwrap_or(usize::MAX).min(waste.len());
            match self.fill(&mut waste[..most])? {
                0 => return Err(ImageError::damaged("it ends in the middle of a file")),
                read => count -= read as u64,
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), ImageError> {
        let mut waste = vec![0; 16 << 10];
        while self.fill(&mut waste)? > 0 {}
        Ok(())
    }

    /// As much as there is, up to the whole of it.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, ImageError> {
        let mut filled = 0;
        while filled < into.len() {
            let read = retry(|| self.stream.read(&mut into[filled..]));
            match read.map_err(|error| self.meter.explain(&error))? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn padding(size: u64) -> u64 {
    let block = BLOCK as u64;
    (block - size % block) % block
}
