//! Builds the guest and hands it to `include_bytes!`.
//!
//! The guest is another program for another machine, the sandbox: linked statically, for size,
//! and with its own flags. So it is built by a cargo of its own, into a folder of its own.
//! `SOMA_GUEST_BINARY` names a guest that was built elsewhere.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What the guest is made from, from the top of the workspace.
const SOURCES: [&str; 8] = [
    "Cargo.lock",
    "Cargo.toml",
    "bins/guest",
    "crates/domain",
    "crates/guest-proto",
    "crates/sys-linux",
    "kernels",
    "proto",
];

fn main() {
    println!("cargo:rerun-if-env-changed=SOMA_GUEST_BINARY");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let guest = match env::var_os("SOMA_GUEST_BINARY") {
        Some(path) => {
            println!("cargo:rerun-if-changed={}", path.display());
            PathBuf::from(path)
        }
        None => build(&out.join("guest-target")),
    };
    // Not the one that is built here: it is younger than this run, which would then never do.
    fs::copy(&guest, out.join("guest"))
        .unwrap_or_else(|error| panic!("cannot copy the guest from {}: {error}", guest.display()));
}

fn build(target: &Path) -> PathBuf {
    // Asked when it runs and not when it is built: target folders are shared between checkouts.
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let top = here.join("../..");
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", top.join(source).display());
    }
    let triple = env::var("TARGET").expect("cargo sets TARGET");
    let cargo = env::var_os("CARGO").expect("cargo sets CARGO");
    #[expect(clippy::disallowed_methods, reason = "a cargo needs the environment of its parent")]
    let mut command = std::process::Command::new(cargo);
    command
        .current_dir(top)
        .args(["build", "--package", "soma-guest", "--profile", "guest", "--locked"])
        .args(["--target", &triple])
        .arg("--target-dir")
        .arg(target);
    // What this cargo says to its build scripts would be taken as wishes by that one: flags,
    // the target folder, clippy in the place of the compiler.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_for_build_scripts) {
            command.env_remove(name);
        }
    }
    command.env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    let status = command.status().expect("cargo can be started");
    assert!(status.success(), "the guest does not build: {status}");
    target.join(triple).join("guest/soma-guest")
}

fn is_for_build_scripts(name: &str) -> bool {
    let kept = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_CAINFO", "CARGO_TERM_COLOR"];
    let cargos = name.starts_with("CARGO_") && !kept.contains(&name);
    cargos
        || ["RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTDOC"]
            .contains(&name)
        || ["TARGET", "HOST", "PROFILE", "OPT_LEVEL", "DEBUG", "OUT_DIR"].contains(&name)
}
