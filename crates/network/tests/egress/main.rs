//! The egress program in earnest: a namespace that is wired like a sandbox's, clients in it, and
//! servers on the host's loopback that play the world.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so")]

mod addresses;
mod connections;
mod life;
mod names;
mod proxies;
mod servers;
mod transforms;
mod web;
mod world;
