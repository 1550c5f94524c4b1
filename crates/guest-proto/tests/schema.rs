//! The protocol grows and never changes: its recorded versions in `proto/golden` are compared.
//!
//! The newest record is what `proto/` says now; what an older one has, the newest has with the
//! same meaning. `SOMA_RECORD=1` writes the newest one anew, which is right only while no
//! sandbox was made with it.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use guest_proto::version::{FIRST, PROTOCOL};

/// Everything that has a meaning on the wire, by its name: messages with the meanings of their
/// numbers, enums with their numbers' names, services with their calls.
type Schema = BTreeMap<String, BTreeMap<String, String>>;

fn proto() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto"))
}

fn recorded(version: u32) -> Option<Schema> {
    let text = fs::read(proto().join(format!("golden/{version}.json"))).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

/// The schema of `proto/` as it is.
fn current() -> Schema {
    let mut compiler = protox::Compiler::new([proto()]).unwrap();
    for entry in fs::read_dir(proto()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            compiler.open_file(path).unwrap();
        }
    }
    let pool = compiler.descriptor_pool();
    let mut schema = Schema::new();
    for message in pool.all_messages() {
        let field = |field: prost_reflect::FieldDescriptor| {
            let cardinality = format!("{:?}", field.cardinality()).to_lowercase();
            let of = field.containing_oneof().map(|one| format!(" of {}", one.name()));
            let meaning = format!(
                "{} {cardinality} {:?}{}",
                field.name(),
                field.kind(),
                of.unwrap_or_default()
            );
            (field.number().to_string(), meaning)
        };
        schema.insert(message.full_name().to_owned(), message.fields().map(field).collect());
    }
    for kind in pool.all_enums() {
        let value = |value: prost_reflect::EnumValueDescriptor| {
            (value.number().to_string(), value.name().to_owned())
        };
        schema.insert(kind.full_name().to_owned(), kind.values().map(value).collect());
    }
    for service in pool.services() {
        let call = |call: prost_reflect::MethodDescriptor| {
            let many = |many: bool| if many { "stream " } else { "" };
            let meaning = format!(
                "{}{} -> {}{}",
                many(call.is_client_streaming()),
                call.input().full_name(),
                many(call.is_server_streaming()),
                call.output().full_name(),
            );
            (call.name().to_owned(), meaning)
        };
        schema.insert(service.full_name().to_owned(), service.methods().map(call).collect());
    }
    schema.retain(|name, _| !name.starts_with("google."));
    schema
}

/// What of `older` has another meaning in `newer`, or none.
fn changed(older: &Schema, newer: &Schema) -> Vec<String> {
    let mut changed = Vec::new();
    for (name, parts) in older {
        for (part, meaning) in parts {
            let now = newer.get(name).and_then(|parts| parts.get(part));
            if now != Some(meaning) {
                changed.push(format!("{name} {part}: was `{meaning}`, is {now:?}"));
            }
        }
        if !newer.contains_key(name) {
            changed.push(format!("{name} is gone"));
        }
    }
    changed
}

#[test]
fn the_newest_record_is_what_the_contracts_say() {
    let path = proto().join(format!("golden/{PROTOCOL}.json"));
    if std::env::var_os("SOMA_RECORD").is_some() {
        let text = serde_json::to_string_pretty(&current()).unwrap();
        fs::write(&path, format!("{text}\n")).unwrap();
    }
    let recorded = recorded(PROTOCOL).expect("a record of this version: see docs/protocol.md");
    let added = changed(&current(), &recorded);
    let removed = changed(&recorded, &current());
    assert!(
        added.is_empty() && removed.is_empty(),
        "proto/ is not what version {PROTOCOL} was recorded as; an addition to a version that \
         is out needs the next number, see docs/protocol.md\n{added:#?}\n{removed:#?}"
    );
}

#[test]
fn no_number_ever_changes_its_meaning() {
    let newest = current();
    for version in FIRST..PROTOCOL {
        let older = recorded(version).expect("every version is recorded");
        let changed = changed(&older, &newest);
        assert!(changed.is_empty(), "since version {version}:\n{changed:#?}");
    }
}

#[test]
fn a_changed_number_name_type_or_call_is_noticed() {
    let schema = |part: &str, meaning: &str| {
        Schema::from([("a".to_owned(), BTreeMap::from([(part.to_owned(), meaning.to_owned())]))])
    };
    let older = schema("1", "x optional uint32");
    assert!(changed(&older, &older).is_empty());
    for newer in [schema("2", "x optional uint32"), schema("1", "x optional uint64"), Schema::new()]
    {
        assert!(!changed(&older, &newer).is_empty());
    }
}
