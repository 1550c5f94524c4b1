//! Ubuntu's restriction: since 24.04 an ordinary program that makes a user namespace has no
//! capabilities in it, unless a profile of AppArmor names the program.

use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::settings::setting;

const NAME: &str = "apparmor";

/// The setting that turns the restriction on.
pub(super) const SETTING: &str = "kernel.apparmor_restrict_unprivileged_userns";

pub(crate) fn check(host: &Host) -> Finding {
    let value = setting(SETTING);
    let refusal = super::namespaces::try_them(host).err().map(|refusal| refusal.to_string());
    judge(host.is_root(), &host.program.to_string_lossy(), value.as_deref(), refusal.as_deref())
}

fn judge(is_root: bool, program: &str, value: Option<&str>, refusal: Option<&str>) -> Finding {
    let finding = match (value, refusal) {
        (None, _) => {
            Finding::works(NAME, "does not restrict user namespaces: no such setting here")
        }
        (Some("0"), _) => Finding::works(NAME, format!("does not restrict them: {SETTING} is 0")),
        (Some(_), _) if is_root => Finding::works(
            NAME,
            format!("restricts ordinary users ({SETTING} is on), and this is root"),
        ),
        (Some(_), None) => Finding::works(
            NAME,
            format!("{SETTING} is on, but a namespace of this program has its capabilities"),
        ),
        (Some(_), Some(refusal)) => {
            Finding::missing(NAME, format!("{SETTING} is on: {refusal}")).fix(profile(program))
        }
    };
    finding.without("cannot make sandboxes for ordinary users; root's are not affected")
}

/// Allows it for this one program and leaves the restriction on for all others.
fn profile(program: &str) -> Fix {
    Fix::shown(format!(
        "printf 'abi <abi/4.0>,\\nprofile soma \"{program}\" flags=(unconfined) {{ userns, }}\\n' \
         > /etc/apparmor.d/soma && apparmor_parser -r /etc/apparmor.d/soma"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn the_setting_alone_decides_nothing() {
        let judged = |root, value, refusal| judge(root, "/usr/bin/soma", value, refusal);
        assert_eq!(judged(false, None, None).state, State::Works);
        assert_eq!(judged(false, Some("0"), Some("could not")).state, State::Works);
        assert_eq!(judged(true, Some("1"), Some("could not")).state, State::Works);
        assert_eq!(judged(false, Some("1"), None).state, State::Works);
        let restricted = judged(false, Some("1"), Some("could not map an id in them: no"));
        assert_eq!(restricted.state, State::Missing);
        assert!(restricted.says.ends_with("could not map an id in them: no"));
        let fix = restricted.fix.unwrap();
        assert!(fix.command.contains("\"/usr/bin/soma\" flags=(unconfined) { userns, }"));
        assert!(!fix.safe, "turning a restriction off is for a person to decide");
    }
}
