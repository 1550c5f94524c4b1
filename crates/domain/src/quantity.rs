//! Amounts that people type: bytes, processors, time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An amount of memory or disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// So many mebibytes.
    pub const fn mebibytes(count: u64) -> Self {
        Self(count << 20)
    }

    /// So many gibibytes.
    pub const fn gibibytes(count: u64) -> Self {
        Self(count << 30)
    }
}

/// A share of processors in thousandths: 1500 is one and a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MilliCpus(pub u32);

/// Why a text is no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct InvalidQuantity {
    text: String,
    expected: &'static str,
}

impl InvalidQuantity {
    fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.chars().take(40).collect(), expected }
    }
}

impl FromStr for Bytes {
    type Err = InvalidQuantity;

    /// Takes `512m`, `2g`, `1.5GiB`; a number alone is mebibytes, as `soma` prints them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidQuantity::new(text, "an amount such as `512m` or `2g`");
        let (number, unit) = split(text);
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "" | "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        // Thousandths are enough for what people type, and keep the arithmetic exact.
        let thousandths = thousandths(number).ok_or_else(wrong)?;
        let bytes = u128::from(thousandths) * u128::from(factor) / 1000;
        u64::try_from(bytes).map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0.trailing_zeros() >= shift {
                return write!(formatter, "{} {unit}", self.0 >> shift);
            }
        }
        write!(formatter, "{} bytes", self.0)
    }
}

impl FromStr for MilliCpus {
    type Err = InvalidQuantity;

    /// Takes `2`, `0.5` or `1.25`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        thousandths(text).and_then(|count| u32::try_from(count).ok()).map(Self).ok_or_else(|| {
            InvalidQuantity::new(text, "a number of processors such as `2` or `0.5`")
        })
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", f64::from(self.0) / 1000.0)
    }
}

/// Takes `30`, `30s`, `500ms`, `5m` or `2h`; a number alone is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidQuantity> {
    let wrong = || InvalidQuantity::new(text, "a time such as `30s`, `500ms`, `5m` or `2h`");
    let (number, unit) = split(text);
    let milliseconds = match unit.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let thousandths = u128::from(thousandths(number).ok_or_else(wrong)?);
    u64::try_from(thousandths * milliseconds / 1000).map(Duration::from_millis).map_err(|_| wrong())
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// A decimal number with at most three places, times a thousand.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let scale = 10u64.pow(3 - u32::try_from(fraction.len()).ok()?);
    let fraction = fraction.parse::<u64>().ok()? * scale;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        assert_eq!("512m".parse::<Bytes>().unwrap(), Bytes::mebibytes(512));
        assert_eq!("512".parse::<Bytes>().unwrap(), Bytes::mebibytes(512));
        assert_eq!("1.5 GiB".parse::<Bytes>().unwrap(), Bytes::mebibytes(1536));
        assert_eq!("0.5".parse::<MilliCpus>().unwrap(), MilliCpus(500));
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("2h").unwrap(), Duration::from_hours(2));
        assert_eq!(parse_duration("20ms").unwrap(), Duration::from_millis(20));
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for text in ["", "-1", "many", "1..2", "1.2345", ".", "1e9", "99999999999999999999g", "１"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text:?} was taken as bytes");
            assert!(text.parse::<MilliCpus>().is_err(), "{text:?} was taken as processors");
            assert!(parse_duration(text).is_err(), "{text:?} was taken as a time");
        }
        assert_eq!(
            "lots".parse::<Bytes>().unwrap_err().to_string(),
            "`lots` is not an amount such as `512m` or `2g`"
        );
    }

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_is_exact() {
        assert_eq!(Bytes::gibibytes(2).to_string(), "2 GiB");
        assert_eq!(Bytes::mebibytes(1536).to_string(), "1536 MiB");
        assert_eq!(Bytes(1000).to_string(), "1000 bytes");
    }
}
