//! The engine's own life: found again, killed, doubled, left.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use domain::{Lifetime, Limits, SandboxSpec};
use provider::{Condition, Provider};
use provider_native::{NativeProvider, random_id};

use crate::conformance::run;
use crate::support::{Home, SOMA, eventually};

fn kept() -> SandboxSpec {
    SandboxSpec { allow_unenforced: true, ..SandboxSpec::default() }
}

async fn code_of(home: &Home, id: &domain::SandboxId, words: &[&str]) -> i32 {
    let guest = provider::guest(home.provider(), id.clone());
    run(&guest, words[0], &words[1..]).await.code
}

#[tokio::test]
async fn a_kept_sandbox_outlives_a_killed_engine_and_is_found_again() {
    let home = Home::new();
    let id = random_id().unwrap();
    home.provider().create(&id, &kept()).await.unwrap();
    assert_eq!(code_of(&home, &id, &["sh", "-c", "echo here > /workspace/mark"]).await, 0);

    home.kill_engine();
    assert_eq!(home.provider().inspect(&id).await.unwrap().condition, Condition::Running);
    assert_eq!(code_of(&home, &id, &["grep", "-q", "here", "/workspace/mark"]).await, 0);

    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn what_lived_with_a_killed_engine_is_gone_when_the_next_one_starts() {
    let home = Home::new();
    let id = random_id().unwrap();
    let spec = SandboxSpec { lifetime: Lifetime::WithCaller, ..kept() };
    let provider = home.provider();
    provider.create(&id, &spec).await.unwrap();
    home.kill_engine();
    drop(provider);
    assert!(home.provider().list().await.unwrap().is_empty());
    home.assert_nothing_left();
}

#[tokio::test]
async fn the_supervisor_ends_a_sandbox_on_time_without_an_engine() {
    let home = Home::new();
    let id = random_id().unwrap();
    let limits = Limits { timeout: Some(Duration::from_secs(2)), ..Limits::default() };
    home.provider().create(&id, &SandboxSpec { limits, ..kept() }).await.unwrap();
    home.kill_engine();
    let record = home.path().join("sandboxes").join(id.as_str()).join("ended.json");
    eventually("it goes on", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains("timed_out"))
    });
    let seen = home.provider().inspect(&id).await.unwrap();
    assert_eq!(seen.condition, Condition::Ended(domain::Ending::TimedOut));
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_guest_is_small_on_disk_and_in_memory() {
    let home = Home::new();
    let provider = home.provider();
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    assert_eq!(code_of(&home, &id, &["true"]).await, 0);

    let name = home.manifest(&id)["guest"].as_str().unwrap().to_owned();
    let program = home.path().join("guest").join(name).join("guest");
    let size = std::fs::metadata(program).unwrap().len();
    assert!(size <= 4_000_000, "{size} bytes on disk");
    let status = format!("/proc/{}/status", home.first_process(&id));
    let status = std::fs::read_to_string(status).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes <= 5 * 1024, "{kibibytes} KiB resident");

    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_sandbox_along_and_it_is_reported() {
    let home = Home::new();
    let id = random_id().unwrap();
    let provider = home.provider();
    provider.create(&id, &kept()).await.unwrap();
    let manifest = home.manifest(&id);
    let pid = |who: &str| manifest[who]["pid"].as_i64().unwrap();
    let supervisor = rustix::process::Pid::from_raw(i32::try_from(pid("supervisor")).unwrap());
    rustix::process::kill_process(supervisor.unwrap(), rustix::process::Signal::KILL).unwrap();
    let first = format!("/proc/{}", pid("first"));
    eventually("process 1 lives on", || !Path::new(&first).exists());
    for _ in 0..500 {
        if provider.inspect(&id).await.unwrap().condition != Condition::Running {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = provider.inspect(&id).await.unwrap();
    assert_eq!(seen.condition, Condition::Ended(domain::Ending::Unseen));
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[test]
fn a_second_engine_of_the_same_home_leaves_at_once() {
    let home = Home::new();
    let _provider = home.provider();
    let output = home.soma(["engine"]).output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn an_engine_without_work_leaves_by_itself_and_leaves_nothing() {
    let home = Home::new();
    let mut engine = home.soma(["engine", "--idle", "300ms"]).spawn().unwrap();
    assert!(engine.wait().unwrap().success());
    home.assert_nothing_left();
}

#[test]
fn a_folder_that_is_no_home_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("base/mine");
    std::fs::create_dir_all(&mine).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let home = Home::new();
    let mut soma = home.soma(["run", "--", "true"]);
    let output = soma.env("SOMA_HOME", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("is not empty and is no home"), "{words}");
    assert!(mine.exists(), "it was removed");
    let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn a_home_may_be_named_from_where_one_stands() {
    let home = Home::new();
    let mut soma = home.soma(["run", "--", "true"]);
    let name = home.path().file_name().unwrap();
    let above = home.path().parent().unwrap();
    let output = soma.env("SOMA_HOME", name).current_dir(above).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(home.path().join("engine.sock").exists());
    home.assert_nothing_left();
}

#[test]
fn the_state_of_who_started_the_engine_is_not_every_sandboxs() {
    let home = Home::new();
    // A user may not take back what a user gave away.
    let nice = if crate::support::is_root() { "nice -n 15" } else { "" };
    let script = format!("umask 077; trap '' CHLD; ulimit -t 100; exec {nice} \"$1\" run -- true");
    let done = home.command("bash").args(["-c", &script, "bash", &SOMA]).status().unwrap();
    assert!(done.success());
    let code = "import os, resource, pwd
print(pwd.getpwuid(os.getuid()).pw_name, os.nice(0), oct(os.umask(0)),
      resource.getrlimit(resource.RLIMIT_CORE))";
    let output = home.run(&[code]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "user 0 0o22 (1, 1)\n");
    home.assert_nothing_left();
}

#[test]
fn a_run_whose_time_is_over_while_it_sleeps_leaves_no_disk() {
    let home = Home::new();
    let mut soma = home.start(&["--timeout", "1s", "--", "sleep", "60"]);
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&soma);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // Longer than its command's time, and than what the sandbox has beyond that.
    std::thread::sleep(Duration::from_secs(7));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(!soma.wait().unwrap().success());
    eventually("its folder is left", || {
        std::fs::read_dir(home.path().join("prepared")).unwrap().count() <= 2
    });
    home.assert_nothing_left();
}

#[test]
fn an_engine_holds_nothing_of_who_started_it() {
    let home = Home::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("held");
    let script = "exec 9>\"$1\"; exec \"$2\" run -- true";
    let done = home
        .command("sh")
        .args(["-c", script, "sh"])
        .args([&file, Path::new(&*SOMA)])
        .status()
        .unwrap();
    assert!(done.success());
    for engine in home.engines() {
        for descriptor in std::fs::read_dir(format!("/proc/{engine}/fd")).unwrap().flatten() {
            let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
            assert_ne!(target, file, "descriptor {:?}", descriptor.file_name());
        }
    }
    home.assert_nothing_left();
}

#[test]
fn a_terminated_engine_tidies_up() {
    let home = Home::new();
    let mut engine = home.soma(["engine"]).spawn().unwrap();
    assert!(home.run(&["--", "true"]).status.success());
    let pid = rustix::process::Pid::from_raw(i32::try_from(engine.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(engine.wait().unwrap().success());
    home.assert_nothing_left();
}

#[tokio::test]
async fn garbage_on_the_engines_socket_harms_nobody() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
    let home = Home::new();
    let provider = home.provider();
    for garbage in [&b""[..], b"\0", &[0xff; 64], &[0x77; 9000]] {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(home.path().join("engine.sock")).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        rustix::net::send(&socket, garbage, SendFlags::NOSIGNAL).unwrap();
    }
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_folder_that_is_no_sandbox_does_not_stop_the_engine() {
    let home = Home::new();
    let folder = home.path().join("sandboxes").join("odd");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(home.path().join("engine.lock"), "").unwrap();
    std::fs::write(folder.join("manifest.json"), "{\"version\": 1, \"id\"").unwrap();
    assert!(home.provider().list().await.unwrap().is_empty());
    assert!(folder.exists(), "what cannot be read was removed");
    std::fs::remove_dir_all(folder).unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn bodies_are_prepared_ahead_and_made_again_when_taken() {
    let home = Home::new();
    let place = provider_native::Home::at(home.path());
    let provider = NativeProvider::open(&place, Path::new(&*SOMA)).unwrap();
    let ready = async || {
        for _ in 0..1000 {
            if provider.prepared().await.unwrap() == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing is prepared");
    };
    let folders = || -> std::collections::BTreeSet<_> {
        let entries = std::fs::read_dir(home.path().join("prepared")).unwrap().flatten();
        entries.map(|entry| entry.file_name()).collect()
    };
    ready().await;
    let before = folders();
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    let taken = home.manifest(&id)["slot"].as_str().unwrap().to_owned();
    assert!(before.contains(std::ffi::OsStr::new(&taken)), "none of the prepared was taken");
    ready().await;
    assert_eq!(folders().difference(&before).count(), 1);
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}
