//! The wall clock jumps by ten years, either way, and nothing's time is over or never comes.
//!
//! The daemon sees another clock through libfaketime; everything else on the machine keeps its own.

use std::fs;
use std::time::Duration;

use super::delete;
use crate::daemon::Daemon;
use crate::support::{Home, eventually, is_root, skip};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

#[test]
fn a_clock_that_jumps_by_ten_years_ends_no_sandbox_and_keeps_none() {
    let name = "a_clock_that_jumps_by_ten_years";
    if is_root() {
        return skip(name, "root's daemon is started with an environment of its own");
    }
    if !fs::exists(LIBRARY).unwrap_or(false) {
        return skip(name, "libfaketime is not installed");
    }
    let home = Home::new();
    let clock = home.path().with_extension("clock");
    let set = |offset: &str| fs::write(&clock, offset).unwrap();
    set("+0");
    let variables = [
        ("LD_PRELOAD", LIBRARY),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let mut daemon = Daemon::with(home, &variables);
    let made = |daemon: &Daemon, id: &str| {
        let seen = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
        seen["created_at"].as_str().unwrap()[..3].to_owned()
    };
    let long = daemon.create(r#"{"timeout": 3600}"#);
    for offset in ["+3650d", "-3650d"] {
        set(offset);
        assert_eq!(daemon.ask("POST", "/v1/reconcile", "").status, 200);
        let short = daemon.create(r#"{"timeout": 2}"#);
        let decades = [made(&daemon, &long), made(&daemon, &short)];
        assert_ne!(decades[0], decades[1], "the daemon's clock did not jump");
        assert_eq!(daemon.execute(&long, "echo here"), "here\n", "{offset}");
        // What was made by the wrong clock ends after its own two seconds, and not in ten years.
        eventually("its time never comes", || daemon.state(&short) == "stopped");
        delete(&daemon, &short);
        // Back again: the short one's two seconds by a clock that jumps while they pass.
        let short = daemon.create(r#"{"timeout": 2}"#);
        set("+0");
        eventually("its time never comes", || daemon.state(&short) == "stopped");
        assert_eq!(daemon.state(&short), "stopped", "it is kept for days, by whatever clock");
        delete(&daemon, &short);

        // A daemon that starts by another clock than the one before finds what there is.
        set(offset);
        daemon.kill();
        daemon.restart();
        assert_eq!(daemon.state(&long), "running", "{offset}");
        let stopped = daemon.create(r#"{"timeout": 1}"#);
        eventually("its time never comes", || daemon.state(&stopped) == "stopped");
        set("+0");
        daemon.kill();
        daemon.restart();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(daemon.state(&stopped), "stopped", "{offset}: it was removed");
        delete(&daemon, &stopped);
    }
    delete(&daemon, &long);
    daemon.close();
    let _ = fs::remove_file(clock);
}
