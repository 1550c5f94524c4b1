//! Whether this is the inside of a container.
//!
//! No single sign is enough: a virtual machine may be made from an image with Docker's mark in
//! it, and a container may share namespaces with the host. So the marks say which kind it is,
//! and only namespaces, the ids or the first process's own word say that it is one.

use std::fs;
use std::path::Path;

use crate::finding::{Finding, Fix};

const NAME: &str = "container";

/// The numbers that the kernel gives to the namespaces that it starts with.
const FIRST_NAMESPACES: [(&str, &str); 3] =
    [("user", "4026531837"), ("pid", "4026531836"), ("cgroup", "4026531835")];

/// Files that makers of containers put into them.
const MARKS: [(&str, &str); 3] = [
    ("/.dockerenv", "Docker"),
    ("/run/.containerenv", "Podman"),
    ("/run/systemd/container", "systemd"),
];

/// The whole range of ids, as the first user namespace has it.
const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];

pub(crate) fn check() -> Finding {
    let (signs, marks) = (signs(), marks());
    judge(&signs, &marks)
}

fn judge(signs: &[String], marks: &[(&str, &str)]) -> Finding {
    const WITHOUT: &str =
        "runs inside a container as far as that lets it; the lines below say how far";
    if signs.is_empty() {
        let says = match marks.first() {
            Some((file, _)) => {
                format!("no container, though `{file}` is here: the image was made for one")
            }
            None => "no container: this is a machine of its own".to_owned(),
        };
        return Finding::works(NAME, says).without(WITHOUT);
    }
    let kind = marks.first().map_or("a container", |(_, kind)| kind);
    let within = if marks.is_empty() { kind.to_owned() } else { format!("a container of {kind}") };
    let run = match kind {
        "Docker" => "docker",
        "Podman" => "podman",
        _ => "",
    };
    let fix = (!run.is_empty()).then(|| {
        Fix::shown(format!(
            "{run} run --privileged --cgroupns=private --volume soma:/var/lib/soma IMAGE"
        ))
    });
    Finding::limited(NAME, format!("inside {within}: {}", signs.join(", ")))
        .without(WITHOUT)
        .fix(fix)
}

fn signs() -> Vec<String> {
    let mut signs = Vec::new();
    for (name, first) in FIRST_NAMESPACES {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        let link = link.to_string_lossy();
        if link.contains(':') && !link.contains(first) {
            signs.push(format!("its own {name} namespace"));
        }
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if !map.is_empty() && map.split_whitespace().ne(ALL_IDS) {
        signs.push(format!("{} of the host's ids", count_ids(&map)));
    }
    // Only root may read it.
    let environment = fs::read("/proc/1/environ").unwrap_or_default();
    if environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"container=")) {
        signs.push("its first process says so".to_owned());
    }
    signs
}

fn count_ids(map: &str) -> u64 {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum()
}

fn marks() -> Vec<(&'static str, &'static str)> {
    MARKS.into_iter().filter(|(file, _)| Path::new(file).exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn a_mark_alone_makes_no_container() {
        let finding = judge(&[], &[("/.dockerenv", "Docker")]);
        assert_eq!(finding.state, State::Works);
        assert!(finding.says.contains("/.dockerenv"), "{}", finding.says);
    }

    #[test]
    fn a_container_of_docker_is_told_how_to_be_started() {
        let finding = judge(&["its own pid namespace".into()], &[("/.dockerenv", "Docker")]);
        assert_eq!(finding.state, State::Limited);
        assert!(finding.says.contains("container of Docker: its own pid"), "{}", finding.says);
        assert!(finding.fix.unwrap().command.starts_with("docker run --privileged"));
    }

    #[test]
    fn ids_are_counted_over_all_lines() {
        assert_eq!(count_ids("0 1000 1\n1 100000 65536\n"), 65_537);
    }
}
