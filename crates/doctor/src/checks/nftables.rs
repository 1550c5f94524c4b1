//! The wires of a sandbox's network, laid in a network namespace of its own.
//!
//! What a sandbox sends is led to `soma egress` by rules of the kernel's packet filter. They are
//! made in the kernel's own messages, so no program is needed for them.

use rustix::io::Errno;
use sys_linux::namespace::Namespaces;

use crate::attempt::{QUICK, Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::host::Host;

const NAME: &str = "nftables";

pub(crate) fn check(host: &Host) -> Finding {
    let namespaces = if host.is_root() {
        Namespaces::NETWORK
    } else {
        Namespaces::USER.and(Namespaces::NETWORK)
    };
    let finding = match attempt(QUICK, || within(namespaces, lay_wires)) {
        Ok(()) => Finding::works(NAME, "led connections to a socket in a network namespace"),
        Err(refusal) => {
            let lacks = [Errno::OPNOTSUPP, Errno::PROTONOSUPPORT, Errno::NOENT];
            let fix = refusal.errno().filter(|errno| lacks.contains(errno));
            let modules = ["modprobe", "--all", "nf_tables", "nft_tproxy", "nft_reject_ipv4"];
            Finding::missing(NAME, refusal.to_string()).fix(fix.map(|_| Fix::safe(&modules)))
        }
    };
    finding.without("gives sandboxes loopback alone")
}

fn lay_wires() -> Result<(), Refusal> {
    sys_linux::network::bring_loopback_up().step("switch the loopback on")?;
    wiring::wire().step("make packet filter rules")?;
    wiring::listen().map(drop).step("listen for every address")
}
