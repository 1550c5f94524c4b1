//! Puts the kernels' programs together: one file for each language, which the guest carries.
//!
//! The parts of Python stay apart, since it compiles only those that it needs: `boot.py`, then
//! for each other part a line `#~ NAME LENGTH` and its bytes. The parts of all others follow each
//! other in the order of their names.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The languages' folders.
const LANGUAGES: [&str; 4] = ["bash", "node", "python", "r"];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let kernels = here.join("../../kernels");
    println!("cargo:rerun-if-changed={}", kernels.display());
    println!("cargo:rerun-if-changed=build.rs");
    for language in LANGUAGES {
        let parts = parts(&kernels.join(language));
        let program = if language == "python" { apart(parts) } else { joined(parts) };
        fs::write(out.join(language), program).expect("the output folder can be written to");
    }
}

/// The names of a folder's parts and what is in them, in the order of their names.
fn parts(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut parts: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_file() && path.extension().is_some_and(|kind| kind != "md"))
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read(&path).expect("the part can be read"))
        })
        .collect();
    parts.sort();
    parts
}

fn joined(parts: Vec<(String, Vec<u8>)>) -> Vec<u8> {
    parts.into_iter().flat_map(|(_, part)| part).collect()
}

fn apart(mut parts: Vec<(String, Vec<u8>)>) -> Vec<u8> {
    let Some(first) = parts.iter().position(|(name, _)| name == "boot") else { return Vec::new() };
    let (_, mut program) = parts.remove(first);
    for (name, part) in parts {
        program.extend_from_slice(format!("#~ {name} {}\n", part.len()).as_bytes());
        program.extend_from_slice(&part);
    }
    program
}
