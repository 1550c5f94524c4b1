//! What all findings mean together.

use serde::Serialize;

use crate::finding::{Finding, State};
use crate::host::Host;

/// How well sandboxes run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// With everything that Soma has.
    Full,
    /// With less: see the findings.
    Reduced,
    /// Not at all.
    None,
}

/// Whether sandboxes can run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Sandboxes can run.
    pub runs: bool,
    /// How well.
    pub quality: Quality,
    /// Both in one sentence, with what is in the way or what is less.
    pub says: String,
}

/// All that was found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The version of this shape.
    pub version: u32,
    /// Whom it is about, such as `root` or `user "ann"`.
    pub whom: String,
    /// What it comes to.
    pub verdict: Verdict,
    /// One for each thing, always the same ones in the same order.
    pub findings: Vec<Finding>,
}

/// What counts for the quality: those without which a sandbox has less. The rest are other
/// ways to run sandboxes, or extras.
const COUNTED: [&str; 12] = [
    "kernel",
    "user-namespaces",
    "subordinate-ids",
    "cgroups",
    "overlay",
    "id-mapped-mounts",
    "seccomp",
    "loop-devices",
    "disk-tool",
    "criu",
    "disk",
    "memory",
];

impl Report {
    pub(crate) fn new(host: &Host, findings: Vec<Finding>) -> Self {
        let whom = host.who();
        let verdict = Verdict::over(&findings, &whom, host.is_root());
        Self { version: 1, whom, verdict, findings }
    }
}

impl Verdict {
    fn over(findings: &[Finding], whom: &str, is_root: bool) -> Self {
        let forbidding: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.forbids())
            .map(|finding| finding.name)
            .collect();
        if !forbidding.is_empty() {
            let says =
                format!("sandboxes cannot run here as {whom}: look at {}", forbidding.join(", "));
            return Self { runs: false, quality: Quality::None, says };
        }
        let less: Vec<&str> = findings
            .iter()
            .filter(|finding| {
                COUNTED.contains(&finding.name)
                    && matches!(finding.state, State::Limited | State::Missing)
            })
            .map(|finding| finding.name)
            .collect();
        if less.is_empty() {
            let says = format!("sandboxes can run here as {whom}, with everything");
            return Self { runs: true, quality: Quality::Full, says };
        }
        let hint = if is_root { "" } else { "; root has more" };
        let says =
            format!("sandboxes can run here as {whom}, with less of {}{hint}", less.join(", "));
        Self { runs: true, quality: Quality::Reduced, says }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_and_missing_decides() {
        let findings =
            [Finding::missing("criu", "none"), Finding::missing("overlay", "none").required(true)];
        let verdict = Verdict::over(&findings, "root", true);
        assert!(!verdict.runs);
        assert_eq!(verdict.says, "sandboxes cannot run here as root: look at overlay");
    }

    #[test]
    fn what_is_less_is_named_and_other_providers_do_not_count() {
        let findings = [
            Finding::missing("docker", "none"),
            Finding::limited("subordinate-ids", "few"),
            Finding::works("overlay", "").required(true),
        ];
        let verdict = Verdict::over(&findings, "user `ann`", false);
        assert_eq!(verdict.quality, Quality::Reduced);
        assert_eq!(
            verdict.says,
            "sandboxes can run here as user `ann`, with less of subordinate-ids; root has more"
        );
    }

    #[test]
    fn a_host_without_docker_or_kvm_has_everything() {
        let findings = [Finding::missing("docker", ""), Finding::unknown("kvm", "")];
        assert_eq!(Verdict::over(&findings, "root", true).quality, Quality::Full);
    }
}
