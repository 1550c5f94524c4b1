//! The engine's own life: found again, killed, doubled, left.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use domain::{Lifetime, Limits, SandboxSpec};
use guest_proto::GuestError;
use provider::{Condition, Provider};
use provider_native::{NativeProvider, connect_engine, random_id};

use crate::conformance::run;
use crate::support::{Home, Operated, SOMA, eventually};

fn kept() -> SandboxSpec {
    SandboxSpec { allow_unenforced: true, ..SandboxSpec::default() }
}

async fn code_of(home: &Home, id: &domain::SandboxId, words: &[&str]) -> i32 {
    let guest = home.provider().guest(id);
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
    let ended = home.manifest(&id)["ended"].as_str().unwrap().to_owned();
    let record = home.path().join("sandboxes").join(id.as_str()).join(ended);
    eventually("it goes on", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains("timed_out"))
    });
    let seen = home.provider().inspect(&id).await.unwrap();
    assert_eq!(seen.condition, Condition::Ended(domain::Ending::TimedOut));
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_record_outlives_a_killed_engine_and_its_sandboxs_end() {
    let home = Home::new();
    let id = random_id().unwrap();
    home.provider().create_with(&id, &kept(), "made").await.unwrap();
    let folder = home.path().join("sandboxes").join(id.as_str());
    let mode = std::fs::metadata(folder.join("manifest.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    home.kill_engine();
    assert_eq!(home.provider().read_record(&id).await.unwrap(), "made");
    home.provider().write_record(&id, "changed").await.unwrap();
    home.kill_engine();
    assert_eq!(home.provider().read_record(&id).await.unwrap(), "changed");
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_renewed_time_holds_also_under_the_next_engine() {
    let home = Home::new();
    let (longer, shorter) = (random_id().unwrap(), random_id().unwrap());
    let limits = Limits { timeout: Some(Duration::from_secs(2)), ..Limits::default() };
    let provider = home.provider();
    provider.create(&longer, &SandboxSpec { limits, ..kept() }).await.unwrap();
    provider.renew(&longer, Some(Duration::from_mins(10))).await.unwrap();
    provider.create(&shorter, &kept()).await.unwrap();
    provider.renew(&shorter, Some(Duration::from_secs(3))).await.unwrap();
    home.kill_engine();
    // The supervisors have no engine in between, and the next one tells them nothing.
    assert_eq!(provider.ended(&shorter).await.unwrap(), domain::Ending::TimedOut);
    assert_eq!(provider.inspect(&longer).await.unwrap().condition, Condition::Running);
    provider.destroy(&shorter).await.unwrap();
    provider.destroy(&longer).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_client_goes_on_with_the_next_engine() {
    let home = Home::new();
    let provider = home.provider();
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    let guest = provider.guest(&id);
    for _ in 0..2 {
        home.kill_engine();
        assert_eq!(provider.inspect(&id).await.unwrap().condition, Condition::Running);
        assert_eq!(run(&guest, "true", &[]).await.code, 0);
    }
    // Many at once, each of which finds the connection broken.
    home.kill_engine();
    let seen = futures::future::join_all((0..20).map(|_| provider.inspect(&id))).await;
    assert!(seen.iter().all(Result::is_ok), "{seen:?}");
    eventually("there is more than one engine", || home.engines().len() == 1);
    provider.destroy(&id).await.unwrap();
    drop((guest, provider));
    home.assert_nothing_left();
}

#[tokio::test]
async fn whoever_waits_for_an_end_hears_of_it_from_the_next_engine() {
    let home = Home::new();
    let provider = home.provider();
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    let meanwhile = async {
        // Let the question reach the engine that is about to die.
        tokio::time::sleep(Duration::from_millis(200)).await;
        home.kill_engine();
        home.provider().renew(&id, Some(Duration::from_millis(500))).await.unwrap();
    };
    let (ending, ()) = tokio::join!(provider.ended(&id), meanwhile);
    assert_eq!(ending.unwrap(), domain::Ending::TimedOut);
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[tokio::test]
async fn an_engine_that_leaves_denies_no_sandbox() {
    let home = Home::new();
    let place = provider_native::Home::at(home.path());
    let provider = home.provider();
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    for _ in 0..3 {
        let native = NativeProvider::find(&place).unwrap().unwrap();
        let asked = async {
            let mut seen = Vec::new();
            for _ in 0..50 {
                seen.push(provider.inspect(&id).await.map(|seen| seen.condition));
            }
            seen
        };
        let (left, seen) = tokio::join!(native.end_engine(), asked);
        left.unwrap();
        let running = |seen: &Result<Condition, _>| matches!(seen, Ok(Condition::Running));
        assert!(seen.iter().all(running), "{seen:?}");
    }
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[tokio::test]
async fn ending_the_engine_starts_none() {
    let home = Home::new();
    let place = provider_native::Home::at(home.path());
    let native = NativeProvider::open(&place, Path::new(&*SOMA)).unwrap();
    native.end_engine().await.unwrap();
    native.end_engine().await.unwrap();
    assert!(NativeProvider::find(&place).unwrap().is_none());
    let other = NativeProvider::over(|| unreachable!("nobody asked for a connection"));
    other.end_engine().await.unwrap();
    // One that may not have another connection says so.
    let socket = connect_engine(&place, Path::new(&*SOMA)).unwrap();
    let single = NativeProvider::with_connection(socket);
    assert_eq!(single.list().await.unwrap(), []);
    home.kill_engine();
    let error = single.list().await.unwrap_err();
    assert!(format!("{error:?}").contains("the engine is gone"), "{error:?}");
    // What it had begun to launch ends without it.
    eventually("a launcher outlives its engine", || home.engines().is_empty());
    // What a killed one leaves is removed by the next.
    assert_eq!(home.provider().list().await.unwrap(), []);
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_client_without_rights_gets_its_connections_from_elsewhere() {
    let home = Home::new();
    let place = provider_native::Home::at(home.path());
    let provider =
        Operated::new(NativeProvider::over(move || connect_engine(&place, Path::new(&*SOMA))));
    assert!(home.engines().is_empty(), "it connected before anybody asked");
    let id = random_id().unwrap();
    provider.create(&id, &kept()).await.unwrap();
    home.kill_engine();
    provider.guest(&id).health().await.unwrap();
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_guest_wants_to_see_the_token_of_its_sandbox() {
    let home = Home::new();
    let provider = home.provider();
    let id = random_id().unwrap();
    let token = domain::Token::new("open-sesame");
    let spec = SandboxSpec { token: Some(token), ..kept() };
    provider.create(&id, &spec).await.unwrap();
    // Made again, as after a lost answer.
    provider.create(&id, &spec).await.unwrap();
    home.kill_engine();
    provider.create(&id, &spec).await.unwrap();

    let guest = provider.guest(&id);
    guest.health().await.unwrap();
    let wrong = guest.with_token("open-barley").unwrap();
    for refused in [guest.list().await.map(drop), wrong.list().await.map(drop)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, GuestError::Refused { code: "unauthenticated", .. }), "{error:?}");
    }
    let right = guest.with_token("open-sesame").unwrap();
    assert_eq!(run(&right, "true", &[]).await.code, 0);

    // Whoever makes it with another word is not who made it.
    let other = SandboxSpec { token: Some(domain::Token::new("open-rye")), ..spec };
    let error = provider.create(&id, &other).await.unwrap_err();
    assert!(!format!("{error:?}").contains("open-"), "{error:?}");
    assert_eq!(run(&right, "true", &[]).await.code, 0);
    provider.destroy(&id).await.unwrap();
    drop((guest, wrong, right, provider));
    home.assert_nothing_left();
}

#[test]
fn nobody_else_reaches_anything_in_a_home() {
    let home = Home::new();
    // Whatever whoever starts the engine leaves open.
    let start = "umask 000; exec \"$1\" run -- true";
    assert!(home.command("sh").args(["-c", start, "sh", &SOMA]).status().unwrap().success());
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.path()), if crate::support::is_root() { 0o711 } else { 0o700 });
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(home.path()).unwrap().flatten() {
        assert_eq!(mode(&entry.path()) & 0o077, 0, "{:?}", entry.file_name());
        seen.push(entry.file_name());
    }
    for name in ["engine.sock", "engine.lock", "engine.log", "sandboxes"] {
        assert!(seen.iter().any(|seen| seen == name), "there is no {name}");
    }
    home.assert_nothing_left();
}

#[test]
fn what_is_the_daemons_is_left_alone() {
    let home = Home::new();
    let daemon = provider_native::Home::at(home.path()).daemon();
    std::fs::create_dir(&daemon).unwrap();
    std::fs::write(daemon.join("database"), "its own").unwrap();
    std::fs::write(home.path().join("config.toml"), "").unwrap();
    for _ in 0..2 {
        assert!(home.run(&["--", "true"]).status.success());
        home.kill_engine();
    }
    assert_eq!(std::fs::read_to_string(daemon.join("database")).unwrap(), "its own");
    assert!(home.path().join("config.toml").exists());
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
    assert_eq!(provider.ended(&id).await.unwrap(), domain::Ending::Unseen);
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
        // A launcher goes by the engine's name, and may be gone by now.
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{engine}/fd")) else { continue };
        for descriptor in descriptors.flatten() {
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
    let native = NativeProvider::open(&place, Path::new(&*SOMA)).unwrap();
    let provider = Operated::new(native.clone());
    let ready = async || {
        for _ in 0..1000 {
            if native.prepared().await.unwrap() == 2 {
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
    drop((provider, native));
    home.assert_nothing_left();
}
