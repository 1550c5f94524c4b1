//! The kernel and the processor.

use crate::finding::Finding;

const NAME: &str = "kernel";

/// The oldest kernel that Soma's own tests boot.
const OLDEST: (u32, u32) = (6, 1);

pub(crate) fn check() -> Finding {
    let name = rustix::system::uname();
    judge(&name.release().to_string_lossy(), &name.machine().to_string_lossy())
}

fn judge(release: &str, machine: &str) -> Finding {
    let finding = if machine != "x86_64" {
        let says = format!(
            "the processor is {machine}, and there is a list of system calls for x86_64 alone"
        );
        Finding::missing(NAME, says)
    } else if version(release).is_some_and(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        Finding::limited(
            NAME,
            format!(
                "Linux {release} is older than {major}.{minor}, the oldest that Soma is tested on"
            ),
        )
    } else {
        Finding::works(NAME, format!("Linux {release} on {machine}"))
    };
    finding
        .required(true)
        .without("does not run on other processors; on an older kernel, what the lines below say")
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn kernels_are_compared_by_number_and_not_by_letters() {
        for (release, state) in [
            ("6.1.0-18-amd64", State::Works),
            ("6.18.44-fc", State::Works),
            ("10.0.0", State::Works),
            ("5.15.0-generic", State::Limited),
            ("unreadable", State::Works),
        ] {
            assert_eq!(judge(release, "x86_64").state, state, "{release}");
        }
    }

    #[test]
    fn another_processor_forbids_sandboxes() {
        let finding = judge("6.12.0", "aarch64");
        assert!(finding.forbids());
        assert!(finding.says.contains("aarch64"));
    }
}
