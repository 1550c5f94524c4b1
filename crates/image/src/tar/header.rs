//! One header: 512 bytes with fields at fixed places.

use crate::error::ImageError;

/// Everything in a tar file begins at a multiple of this.
pub(super) const BLOCK: usize = 512;

/// What a header says.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) kind: u8,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) user: u64,
    pub(super) group: u64,
    pub(super) modified: i64,
    pub(super) target: Vec<u8>,
    pub(super) device: (u64, u64),
}

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Self, ImageError> {
        check_sum(block)?;
        let is_posix = &block[257..263] == b"ustar\0";
        let name = text(&block[0..100]);
        let prefix = if is_posix { text(&block[345..500]) } else { Vec::new() };
        let name = match prefix.as_slice() {
            [] => name,
            _ => [prefix.as_slice(), b"/", &name].concat(),
        };
        let field = |range: std::ops::Range<usize>, what: &str| {
            number(&block[range])
                .ok_or_else(|| ImageError::damaged(format!("{what} in a header is no number")))
        };
        Ok(Self {
            name,
            kind: block[156],
            size: field(124..136, "a size")?,
            mode: u32::try_from(field(100..108, "a mode")? & 0o7777).unwrap_or(0),
            user: field(108..116, "a user")?,
            group: field(116..124, "a group")?,
            modified: field(136..148, "a time").ok().and_then(|t| t.try_into().ok()).unwrap_or(0),
            target: text(&block[157..257]),
            device: (field(329..337, "").unwrap_or(1), field(337..345, "").unwrap_or(1)),
        })
    }
}

/// The sum of all bytes, its own field taken as blanks. Some old programs took bytes as signed.
fn check_sum(block: &[u8; BLOCK]) -> Result<(), ImageError> {
    let said = number(&block[148..156]);
    let counted = block[..148].iter().chain(b"        ").chain(&block[156..]);
    let unsigned: u64 = counted.clone().map(|byte| u64::from(*byte)).sum();
    let signed: i64 = counted.map(|byte| i64::from(byte.cast_signed())).sum();
    if said == Some(unsigned) || said.is_some_and(|said| i64::try_from(said) == Ok(signed)) {
        return Ok(());
    }
    Err(ImageError::damaged("it is no tar file, or a header is damaged"))
}

fn text(field: &[u8]) -> Vec<u8> {
    field.iter().take_while(|byte| **byte != 0).copied().collect()
}

/// Octal digits between blanks and zeroes, or bytes behind one that says so.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // Negative ones begin with 0xff, and nothing here may be negative.
        let start = u64::from(first & 0x7f);
        return rest
            .iter()
            .try_fold(start, |sum, byte| sum.checked_mul(256).map(|sum| sum | u64::from(*byte)));
    }
    let is_blank = |byte: &u8| *byte == b' ' || *byte == 0;
    let digits: Vec<u8> = field
        .iter()
        .copied()
        .skip_while(|byte| is_blank(byte))
        .take_while(|b| !is_blank(b))
        .collect();
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'7' => sum.checked_mul(8).map(|sum| sum + u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"12x\0"), None);
    }
}
