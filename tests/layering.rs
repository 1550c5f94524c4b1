//! Which crate may use which.
//!
//! An edge between crates is an architectural decision: it is added here and in the table of
//! `ARCHITECTURE.md`, with its reason, or it is not added.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Every crate of ours with those of ours that it uses, as it ships.
const EDGES: [(&str, &[&str]); 22] = [
    ("api-e2b", &["control", "domain", "policy"]),
    ("api-v1", &["control", "domain", "guest-proto", "policy"]),
    (
        "bench",
        &[
            "domain",
            "guest-proto",
            "link",
            "network",
            "policy",
            "provider",
            "provider-native",
            "sys-linux",
            "wiring",
        ],
    ),
    ("client", &["api-v1", "domain", "guest-proto"]),
    ("control", &["domain", "guest-proto", "journal", "policy", "provider", "store"]),
    ("doctor", &["sys-linux", "wiring"]),
    ("domain", &[]),
    (
        "gateway",
        &["api-e2b", "api-v1", "control", "domain", "guest-proto", "policy", "store", "telemetry"],
    ),
    ("guest-proto", &[]),
    ("image", &["domain"]),
    ("journal", &["domain"]),
    ("link", &["sys-linux"]),
    ("network", &["domain", "link", "sys-linux", "wiring"]),
    ("policy", &["domain"]),
    ("provider", &["domain", "guest-proto", "policy"]),
    (
        "provider-native",
        &[
            "domain",
            "guest-proto",
            "image",
            "link",
            "network",
            "policy",
            "provider",
            "sys-linux",
            "wiring",
        ],
    ),
    (
        "soma",
        &[
            "api-v1",
            "client",
            "control",
            "doctor",
            "domain",
            "gateway",
            "guest-proto",
            "journal",
            "network",
            "policy",
            "provider",
            "provider-native",
            "store",
            "sys-linux",
            "telemetry",
        ],
    ),
    ("soma-guest", &["domain", "guest-proto", "sys-linux"]),
    ("store", &["domain"]),
    ("sys-linux", &[]),
    ("telemetry", &[]),
    ("wiring", &["sys-linux"]),
];

type Edges = BTreeMap<String, BTreeSet<String>>;

fn table() -> Edges {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    EDGES.iter().map(|(name, uses)| (name.to_string(), names(uses))).collect()
}

fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn our_crates_use_each_other_as_the_table_says() {
    let mut command = MetadataCommand::new();
    command
        .manifest_path(top().join("Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".into()]);
    let metadata = command.exec().unwrap();
    let ours: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let edges: Edges = metadata
        .packages
        .iter()
        .map(|package| {
            let normal = package.dependencies.iter().filter(|dependency| {
                dependency.kind == DependencyKind::Normal && ours.contains(&dependency.name)
            });
            (package.name.to_string(), normal.map(|dependency| dependency.name.clone()).collect())
        })
        .collect();
    assert_eq!(edges, table());
}

#[test]
fn no_crate_uses_itself_through_others() {
    let edges = table();
    for name in edges.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&String> = edges[name].iter().collect();
        while let Some(used) = next.pop() {
            if reached.insert(used) {
                next.extend(&edges[used]);
            }
        }
        assert!(!reached.contains(name), "{name} uses itself");
    }
}

#[test]
fn the_architecture_repeats_the_table() {
    let Ok(text) = std::fs::read_to_string(top().join("ARCHITECTURE.md")) else {
        return;
    };
    // Rows such as: | `provider` | `domain`, `guest-proto` | why |
    let mut rows = Edges::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [name, uses, ..] = cells.as_slice() else { continue };
        let name = name.trim_matches('`');
        if table().contains_key(name) && line.starts_with("| `") {
            let quoted = |word: &str| word.split('`').nth(1).map(ToString::to_string);
            rows.insert(name.to_owned(), uses.split(',').filter_map(quoted).collect());
        }
    }
    assert_eq!(rows, table(), "the table in ARCHITECTURE.md");
}
