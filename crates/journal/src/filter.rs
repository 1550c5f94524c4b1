//! Which sandboxes a segment may have events of, in a few kilobytes.
//!
//! A Bloom filter: what it denies is not there, and what it does not deny is looked for. It saves
//! reading most segments, so a wrong yes costs a millisecond and nothing else.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Words of 64 bits: 32 KiB, for the some ten thousand sandboxes that a segment can name.
const WORDS: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Filter {
    bits: Box<[u64]>,
}

impl Filter {
    pub(crate) fn new() -> Self {
        Self { bits: vec![0; WORDS].into_boxed_slice() }
    }

    pub(crate) fn add(&mut self, sandbox: &[u8]) {
        for (word, bit) in places(sandbox) {
            self.bits[word] |= bit;
        }
    }

    pub(crate) fn may_have(&self, sandbox: &[u8]) -> bool {
        places(sandbox).into_iter().all(|(word, bit)| self.bits[word] & bit != 0)
    }
}

/// Two bits for each, from the two halves of a hash.
fn places(sandbox: &[u8]) -> [(usize, u64); 2] {
    let mut hasher = DefaultHasher::new();
    sandbox.hash(&mut hasher);
    let hash = hasher.finish();
    [hash & 0xffff_ffff, hash >> 32].map(|half| {
        let place = usize::try_from(half).unwrap_or_default() % (WORDS * 64);
        (place / 64, 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_never_denied_and_little_else_is_not() {
        let mut filter = Filter::new();
        let name = |number: u32| format!("sandbox-{number}").into_bytes();
        (0..10_000).for_each(|number| filter.add(&name(number)));
        assert!((0..10_000).all(|number| filter.may_have(&name(number))));
        let wrong = (10_000..20_000).filter(|number| filter.may_have(&name(*number))).count();
        assert!(wrong < 200, "{wrong} of 10000");
    }
}
