//! What is wrong with a file, where the protocol's own kinds of error do not tell it.
//!
//! A guest names it in a header of the answer, beside the error and its words. Whoever does not
//! know the header, or gets an answer without it, has the kind of error.

/// The header that names it.
pub const HEADER: &str = "x-soma-fault";

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Something else is where a directory is wanted.
    NotADirectory,
    /// A directory is where something else is wanted.
    IsADirectory,
    /// A directory holds something and should not.
    NotEmpty,
    /// The disk or the quota is full.
    NoSpace,
}

impl Fault {
    const ALL: [Self; 4] = [Self::NotADirectory, Self::IsADirectory, Self::NotEmpty, Self::NoSpace];

    /// The name in the header.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotADirectory => "not-a-directory",
            Self::IsADirectory => "is-a-directory",
            Self::NotEmpty => "not-empty",
            Self::NoSpace => "no-space",
        }
    }

    /// What a name in the header means; nothing, if it came after this was written.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back() {
        for fault in Fault::ALL {
            assert_eq!(Fault::from_name(fault.name()), Some(fault));
        }
        assert_eq!(Fault::from_name("something-new"), None);
    }
}
