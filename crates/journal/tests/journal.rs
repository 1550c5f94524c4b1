//! The promises of the journal: what is kept, what is found, what is followed.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::{Event, Happened, Owner, SandboxId, Timestamp};
use journal::{Bounds, Follower, Journal, JournalError, Opened, Query, Told};

const SMALL: Bounds = Bounds { segment: 4096, segments: 4 };

fn id(number: u64) -> SandboxId {
    let mut bits = [0; 15];
    bits[7..].copy_from_slice(&number.to_be_bytes());
    SandboxId::from_random(bits)
}

fn event(sandbox: u64, owner: &str) -> Event {
    Event {
        at: Timestamp(i64::try_from(sandbox).unwrap()),
        sandbox: id(sandbox),
        owner: Owner(owner.to_owned()),
        actor: "local".to_owned(),
        request: None,
        happened: Happened::TimeoutSet { until: None },
    }
}

fn open(folder: &Path) -> Journal {
    let (journal, opened) = Journal::open(folder, SMALL).unwrap();
    assert_eq!(opened, Opened::default());
    journal
}

fn all() -> Query {
    Query { limit: 100_000, ..Query::default() }
}

async fn numbers(journal: &Journal, query: Query) -> Vec<u64> {
    let page = journal.find(query).await.unwrap();
    page.items.iter().map(|recorded| recorded.sequence).collect()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn size(folder: &Path) -> u64 {
    segments(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

async fn next(follower: &mut Follower) -> Told {
    let told = tokio::time::timeout(Duration::from_secs(30), follower.next()).await;
    told.expect("nothing was told").expect("it is over").unwrap()
}

#[tokio::test]
async fn events_are_found_by_sandbox_owner_number_and_moment() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    // Over several segments.
    for number in 0..60 {
        let owner = if number % 2 == 0 { "acme" } else { "umbrella" };
        journal.append(event(number % 10, owner)).unwrap();
    }
    assert!(segments(folder.path()).len() > 2);
    let of = async |query: Query| numbers(&journal, query).await;
    assert_eq!(of(all()).await, (1..=60).collect::<Vec<_>>());
    // Twice: once the segments are read, it is known what is in them.
    for _ in 0..2 {
        let one = Query { sandbox: Some(id(3)), ..all() };
        assert_eq!(of(one.clone()).await, [4, 14, 24, 34, 44, 54]);
        let newest = Query { newest_first: true, limit: 2, ..one.clone() };
        assert_eq!(of(newest).await, [54, 44]);
        let between = Query { after: 14, before: Some(44), ..one.clone() };
        assert_eq!(of(between).await, [24, 34]);
        let foreign = Query { owner: Some(Owner("acme".to_owned())), ..one };
        assert_eq!(of(foreign).await, [0_u64; 0]);
        assert_eq!(of(Query { sandbox: Some(id(77)), ..all() }).await, [0_u64; 0]);
    }
    let owned = Query { owner: Some(Owner("acme".to_owned())), after: 50, ..all() };
    assert_eq!(of(owned).await, [51, 53, 55, 57, 59]);
    assert_eq!(of(Query { from: Some(Timestamp(9)), ..all() }).await, [10, 20, 30, 40, 50, 60]);
    assert_eq!(of(Query { after: u64::MAX, ..all() }).await, [0_u64; 0]);
    let page = journal.find(Query { limit: 7, newest_first: true, ..all() }).await.unwrap();
    assert!(page.has_more && page.newest == 60 && page.oldest == 1);
    let page = journal.find(Query { limit: 60, ..all() }).await.unwrap();
    assert!(!page.has_more);
}

#[tokio::test]
async fn a_flood_stays_within_its_bounds_and_the_oldest_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let most = SMALL.segment * SMALL.segments as u64;
    let mut written = 0;
    for number in 0..5000 {
        let recorded = journal.append(event(number, "acme")).unwrap();
        written += serde_json::to_vec(&*recorded).unwrap().len() as u64;
        assert!(size(folder.path()) <= most, "{} after {number}", size(folder.path()));
    }
    assert!(written > 20 * most, "{written} is no flood");
    assert_eq!(segments(folder.path()).len(), SMALL.segments);
    let kept = numbers(&journal, all()).await;
    let first = kept[0];
    assert!(first > 4800 && kept.len() > 20, "{first}, {}", kept.len());
    assert_eq!(kept, (first..=5000).collect::<Vec<_>>(), "what is kept is the newest, whole");
}

#[tokio::test]
async fn another_process_goes_on_where_the_last_one_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    for number in 0..30 {
        journal.append(event(number, "acme")).unwrap();
    }
    // Neither closed nor dropped: what was appended is there at once.
    let again = open(folder.path());
    assert_eq!(numbers(&again, all()).await, (1..=30).collect::<Vec<_>>());
    assert_eq!(again.append(event(1, "acme")).unwrap().sequence, 31);
}

#[tokio::test]
async fn half_a_line_is_cut_off_and_a_damaged_one_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    for number in 0..5 {
        journal.append(event(number, "acme")).unwrap();
    }
    journal.close();
    let path = segments(folder.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let line = whole.split_inclusive(|byte| *byte == b'\n').next().unwrap().len();
    for (tail, cut) in [(&b"{\"sequence\":6,\"at\":"[..], 19), (&[0; 4096], 4096)] {
        fs::write(&path, [&whole, tail].concat()).unwrap();
        let (journal, opened) = Journal::open(folder.path(), SMALL).unwrap();
        assert_eq!(opened, Opened { cut, damaged: 0 });
        assert_eq!(numbers(&journal, all()).await, [1, 2, 3, 4, 5]);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    let mut broken = whole.clone();
    broken[line + 3..line + 60].fill(0xa5);
    fs::write(&path, &broken).unwrap();
    let (journal, opened) = Journal::open(folder.path(), SMALL).unwrap();
    assert_eq!(opened, Opened { cut: 0, damaged: 1 });
    assert_eq!(numbers(&journal, all()).await, [1, 3, 4, 5]);
    assert_eq!(journal.append(event(9, "acme")).unwrap().sequence, 6);
}

#[tokio::test]
async fn a_segment_of_garbage_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    for number in 0..60 {
        journal.append(event(number, "acme")).unwrap();
    }
    journal.close();
    drop(journal);
    let paths = segments(folder.path());
    assert!(paths.len() >= 3);
    let garbage: Vec<u8> =
        (0..3000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_be_bytes()).collect();
    fs::write(&paths[1], &garbage).unwrap();
    fs::write(folder.path().join("notes.txt"), "not ours").unwrap();
    let journal = open(folder.path());
    let kept = numbers(&journal, all()).await;
    assert!(kept.contains(&1) && kept.contains(&60) && kept.len() < 60, "{kept:?}");
    drop(journal);
    // Also when it is the one that is written to.
    fs::write(paths.last().unwrap(), &garbage).unwrap();
    let (journal, opened) = Journal::open(folder.path(), SMALL).unwrap();
    assert!(opened.cut + opened.damaged > 0);
    let next = journal.append(event(1, "acme")).unwrap().sequence;
    assert!(numbers(&journal, all()).await.contains(&next));
    assert_eq!(fs::read_to_string(folder.path().join("notes.txt")).unwrap(), "not ours");
}

#[tokio::test]
async fn nobody_else_can_read_it_and_what_has_no_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("events");
    let journal = open(&inner);
    journal.append(event(1, "acme")).unwrap();
    let mut large = event(1, "acme");
    large.actor = "a".repeat(20 << 10);
    let refused = journal.append(large).unwrap_err();
    assert!(matches!(refused, JournalError::TooLarge { .. }), "{refused}");
    assert_eq!(numbers(&journal, all()).await, [1]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&inner), mode(&segments(&inner)[0])), (0o700, 0o600));
    drop(journal);
    fs::set_permissions(&segments(&inner)[0], fs::Permissions::from_mode(0o644)).unwrap();
    open(&inner);
    assert_eq!(mode(&segments(&inner)[0]), 0o600);
}

#[tokio::test]
async fn hostile_text_is_kept_as_it_is_and_finds_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let hostile = [
        "\"sandbox\":\"x\"",
        "\n{\"sequence\":99",
        "a\0b",
        "",
        "🦀 \u{202e} \u{2028}",
        "\\\" \\u0000 \r\t",
    ];
    for (number, text) in (0..).zip(hostile) {
        let mut event = event(number, text);
        event.actor = text.to_owned();
        journal.append(event).unwrap();
    }
    drop(journal);
    let journal = open(folder.path());
    for (number, text) in (1..).zip(hostile) {
        let query = Query { owner: Some(Owner(text.to_owned())), ..all() };
        let page = journal.find(query).await.unwrap();
        assert_eq!(page.items.len(), 1, "{text:?}");
        assert_eq!((page.items[0].sequence, page.items[0].event.actor.as_str()), (number, text));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn followers_from_any_number_on_are_told_each_event_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds { segment: 64 << 10, segments: 100 };
    let (journal, _) = Journal::open(folder.path(), bounds).unwrap();
    for number in 0..1000 {
        journal.append(event(number % 7, "acme")).unwrap();
    }
    let mut followers = tokio::task::JoinSet::new();
    for after in [0, 1, 500, 999, 1000] {
        let mut follower = journal.follow(None, None, Some(after)).unwrap();
        followers.spawn(async move {
            for expected in after + 1..=4000 {
                let Told::Event(recorded) = next(&mut follower).await else { panic!("missed") };
                assert_eq!(recorded.sequence, expected);
            }
        });
    }
    let mut one = journal.follow(None, Some(id(3)), Some(0)).unwrap();
    followers.spawn(async move {
        let mut seen = BTreeSet::new();
        while let Told::Event(recorded) = next(&mut one).await {
            assert_eq!(recorded.event.sandbox, id(3));
            assert!(seen.insert(recorded.sequence));
            if recorded.sequence > 3990 {
                break;
            }
        }
        assert_eq!(
            seen.len(),
            (0..4000).filter(|number| number % 7 == 3 && *number < 3997).count()
        );
    });
    let writer = {
        let journal = journal.clone();
        std::thread::spawn(move || {
            for number in 1000..4000 {
                journal.append(event(number % 7, "acme")).unwrap();
            }
        })
    };
    while let Some(followed) = followers.join_next().await {
        followed.unwrap();
    }
    writer.join().unwrap();
}

#[tokio::test]
async fn a_follower_who_is_too_slow_is_told_what_it_missed_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    journal.append(event(1, "acme")).unwrap();
    let mut follower = journal.follow(None, None, Some(0)).unwrap();
    assert!(matches!(next(&mut follower).await, Told::Event(recorded) if recorded.sequence == 1));
    for number in 0..3000 {
        journal.append(event(number, "acme")).unwrap();
    }
    let Told::Missed { from: 2, to } = next(&mut follower).await else { panic!("nothing missed") };
    assert_eq!(follower.position(), to);
    for expected in to + 1..=3001 {
        let Told::Event(recorded) = next(&mut follower).await else { panic!("missed more") };
        assert_eq!(recorded.sequence, expected);
    }
    journal.end_following();
    assert!(follower.next().await.is_none());
    assert!(matches!(journal.follow(None, None, None), Err(JournalError::Closed)));
}

#[tokio::test]
async fn a_follower_of_numbers_that_a_power_cut_took_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    journal.append(event(1, "acme")).unwrap();
    let mut follower = journal.follow(None, None, Some(7)).unwrap();
    assert_eq!(next(&mut follower).await, Told::Missed { from: 2, to: 7 });
    assert_eq!(follower.position(), 1);
    journal.append(event(1, "acme")).unwrap();
    assert!(matches!(next(&mut follower).await, Told::Event(recorded) if recorded.sequence == 2));
}

#[tokio::test]
async fn no_more_follow_than_may() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let followers: Vec<_> = (0..256).map(|_| journal.follow(None, None, None).unwrap()).collect();
    let refused = journal.follow(None, None, None).unwrap_err();
    assert!(matches!(refused, JournalError::TooMany { most: 256 }), "{refused}");
    drop(followers);
    journal.follow(None, None, None).unwrap();
}

#[tokio::test]
async fn a_full_journal_answers_soon() {
    if std::env::var_os("SOMA_LONG").is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: it is long: set SOMA_LONG=1");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(folder.path(), Bounds::default()).unwrap();
    let begun = Instant::now();
    let mut count = 0;
    while segments(folder.path()).len() < 16 || count % 20_000 != 0 {
        journal.append(event(count / 4, &format!("owner-{}", count % 5))).unwrap();
        count += 1;
    }
    let took = begun.elapsed();
    let mut told = format!("{count} events, {} bytes, {took:?}\n", size(folder.path()));
    drop(journal);
    let begun = Instant::now();
    let (journal, _) = Journal::open(folder.path(), Bounds::default()).unwrap();
    let _ = writeln!(told, "open {:?}", begun.elapsed());
    let oldest = journal.find(Query { limit: 1, ..all() }).await.unwrap().oldest;
    for query in [
        Query { sandbox: Some(id(oldest / 4 + 10)), ..all() },
        Query { sandbox: Some(id(oldest / 4 + 10)), ..all() },
        Query { sandbox: Some(id(count / 8)), newest_first: true, ..all() },
        Query { sandbox: Some(id(u64::MAX >> 1)), ..all() },
        Query { owner: Some(Owner("nobody".to_owned())), ..all() },
        Query { newest_first: true, limit: 100, ..all() },
        Query { after: count - 5000, limit: 100, ..all() },
    ] {
        let begun = Instant::now();
        let page = journal.find(query).await.unwrap();
        let _ = writeln!(told, "{} found in {:?}", page.items.len(), begun.elapsed());
        // What is not optimised says nothing about what people have.
        let is_soon = begun.elapsed() < Duration::from_millis(500);
        assert!(is_soon || cfg!(debug_assertions), "{told}");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    told += status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let _ = writeln!(std::io::stderr(), "{told}");
}
