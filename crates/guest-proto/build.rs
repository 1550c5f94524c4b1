//! Turns `proto/*.proto` into messages, service traits and clients, without `protoc`.

use std::path::PathBuf;
use std::{env, fs};

/// The contracts, by name.
const FILES: [&str; 3] = ["process.proto", "filesystem.proto", "soma.proto"];

fn main() {
    // Asked when it runs and not when it is built: target folders are shared between checkouts.
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let proto = here.join("../../proto");
    let files = FILES.map(|name| proto.join(name));
    println!("cargo:rerun-if-changed={}", proto.display());

    let mut compiler = protox::Compiler::new([&proto]).expect("the proto folder is there");
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(&files).expect("the protocol compiles");
    let set = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("set.bin");
    fs::write(&set, compiler.encode_file_descriptor_set()).expect("OUT_DIR is writable");
    // The generator has cargo watch this file, and cargo would find it younger than this run.
    let written = fs::File::options().append(true).open(&set).expect("it was just written");
    written.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("its time can be set");

    connectrpc_build::Config::new()
        .files(&FILES)
        .descriptor_set(&set)
        .include_file("protocol.rs")
        .gate_client_feature(true)
        .compile()
        .expect("code is generated for the protocol");
}
