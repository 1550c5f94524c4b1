//! Logs in folders of their own.

use super::*;

fn attempt(name: &str) -> Attempt {
    let mut attempt = Attempt::new(NetworkProtocol::Dns, 53);
    attempt.name = Some(name.to_owned());
    attempt
}

fn id() -> SandboxId {
    SandboxId::from_random([3; 15])
}

fn open(folder: &Path) -> Arc<Log> {
    Log::open(folder, &id(), Writer::new().0)
}

#[test]
fn refusals_that_are_alike_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let refused = Verdict::refused("mode: deny-all", "no");
    for _ in 0..42 {
        log.write(attempt("a.example"), &refused);
    }
    assert_eq!(log.read(0, 100).len(), 1);
    lock(&log.kept).window -= WINDOW;
    log.flush().unwrap();
    let entries = log.read(0, 100);
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1].detail.as_deref(), Some("… and 41 more like it"));
    assert_eq!(entries[1].sequence, 2);
}

#[test]
fn refusals_of_ever_other_names_take_bounded_room() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let refused = Verdict::refused("mode: deny-all", "no");
    for number in 0..10_000 {
        log.write(attempt(&format!("{number}.example")), &refused);
    }
    assert!(log.read(0, 20_000).len() <= MOST_APART + 1);
}

#[test]
fn a_log_goes_on_where_it_was_and_is_gone_when_removed() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    for number in 0..(RECENT as u64 * 2) {
        let mut attempt = attempt("a.example");
        attempt.sent = number;
        log.write(attempt, &Verdict::allowed("mode: allow-all"));
    }
    log.flush().unwrap();
    let log = open(folder.path());
    log.write(attempt("b.example"), &Verdict::allowed("mode: allow-all"));
    let all = log.read(0, 10_000);
    let numbers: Vec<u64> = all.iter().map(|entry| entry.sequence).collect();
    assert_eq!(numbers, (1..=RECENT as u64 * 2 + 1).collect::<Vec<_>>());
    assert_eq!(log.read(5, 2).iter().map(|entry| entry.sequence).collect::<Vec<_>>(), [6, 7]);
    log.remove();
    log.flush().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn files_stay_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    for _ in 0..40 {
        for _ in 0..500 {
            log.write(attempt("a.example"), &Verdict::allowed("mode: allow-all"));
        }
        log.flush().unwrap();
    }
    let size: u64 = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size < 3 * 1024 * 1024, "{size}");
    let entries = log.read(0, 100_000);
    assert_eq!(entries.last().unwrap().sequence, 20_000);
}
