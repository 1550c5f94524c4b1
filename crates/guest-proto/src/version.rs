//! What a guest and whoever drives it agree on.
//!
//! One number for the whole protocol, and a name for each thing that came after the first
//! version. The newer side adapts: a client asks a guest once and does not send what it lacks.
//! The rules are in `docs/protocol.md`; the recorded schema of each version is in
//! `proto/golden`.

/// The protocol of this tree. It grows with every addition.
pub const PROTOCOL: u32 = 5;

/// The protocol of guests that tell no number.
pub const FIRST: u32 = 1;

/// Something that a guest can do since some version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// The name that a guest tells.
    pub name: &'static str,
    /// The protocol that it came with.
    pub since: u32,
}

/// What listens inside, as a stream.
pub const PORTS: Feature = Feature { name: "ports", since: 2 };

/// Metrics from the sandbox's cgroup, with their sources.
pub const USAGE: Feature = Feature { name: "usage", since: 2 };

/// Output from an offset. A guest without it would pass the offset over and give what comes.
pub const OFFSETS: Feature = Feature { name: "offsets", since: 2 };

/// Files beyond E2B's service, with a user's own permissions, and uploads with a mode. A guest
/// without it would pass the mode over.
pub const FILES: Feature = Feature { name: "files", since: 3 };

/// Why a command failed, told with its end. A guest without it tells nothing.
pub const CAUSES: Feature = Feature { name: "causes", since: 4 };

/// Paths that are not UTF-8, what links say, and making links. A guest without it would take a
/// path as bytes for none.
pub const RAW_PATHS: Feature = Feature { name: "raw-paths", since: 5 };

/// Everything that came after the first version and that a caller has to know of. Calls that an
/// older guest refuses by itself, as it does terminals and watching, are not here: E2B's own
/// agent has them and tells no number.
pub const FEATURES: &[Feature] = &[PORTS, USAGE, OFFSETS, FILES, CAUSES, RAW_PATHS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_came_with_a_version_that_is_there() {
        let mut names: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FEATURES.len(), "a name twice");
        assert!(FEATURES.iter().all(|feature| feature.since > FIRST && feature.since <= PROTOCOL));
        assert!(FEATURES.iter().any(|feature| feature.since == PROTOCOL), "a number for nothing");
    }
}
