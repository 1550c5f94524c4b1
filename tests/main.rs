//! What crosses crates.
//!
//! - `attacks`: what hostile code tries, a test for each line of the list;
//! - `code`: kernels by themselves, through the daemon, typed to and in notebooks;
//! - `commands`: every command of `soma`, from outside, with real sandboxes;
//! - `conformance`: the promises of `Provider`, on every provider;
//! - `crash`: whoever dies or meets an error at any system call, and nothing is lost;
//! - `doctor`: `soma doctor` on machines made to lack things;
//! - `engine`: the engine found again, killed, doubled;
//! - `files`: folders watched and tokens shown through the client, in a real sandbox;
//! - `hibernate`: a sandbox dumped and restored with CRIU;
//! - `isolation`: what a sandbox can see and do, from inside;
//! - `layering`: which crate may use which;
//! - `metrics`: what a sandbox uses and what listens in it;
//! - `limits`: what a sandbox may use, and what happens when it wants more;
//! - `network`: what sandboxes reach and what they do not, with servers of the tests' own;
//! - `run`: `soma run` from outside, with real sandboxes;
//! - `daemon`: the daemon over HTTP, killed, damaged and lied to, and the SDKs of others;
//! - `snapshots`: whole outputs beside recorded ones;
//! - `shell`: `soma shell` from outside, through tmux;
//! - `sudo`: becoming root in a sandbox, or not;
//! - `templates`: sandboxes from images, real and hostile ones;
//! - `user`: life as an ordinary user;
//! - `support`: a Soma of its own for each test, and proof that nothing is left of it.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod attacks;
mod code;
mod commands;
mod conformance;
mod crash;
mod daemon;
mod doctor;
mod engine;
mod files;
mod hibernate;
mod isolation;
mod lasting;
mod layering;
mod limits;
mod metrics;
mod network;
mod run;
mod shell;
mod snapshots;
mod sudo;
mod support;
mod templates;
mod user;
