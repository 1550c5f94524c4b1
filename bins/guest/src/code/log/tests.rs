//! Readers that keep up, that do not, and that come late.

use super::*;
use guest_proto::code::Status;

fn log() -> Arc<Log> {
    Arc::new(Log::new(Arc::default()))
}

fn output(length: usize) -> EventKind<Value> {
    EventKind::Stdout { text: "x".repeat(length) }
}

#[tokio::test]
async fn whoever_comes_late_is_told_what_is_missing() {
    let log = log();
    log.push(EventKind::Started { execution_count: 1 });
    for _ in 0..40 {
        log.publish(output(64 << 10)).await;
    }
    log.push(EventKind::End { status: Status::Ok, reason: None });
    let mut reader = log.read(0);
    assert!(matches!(reader.next().await, Some(Read::Event(event)) if event.n == 0));
    let Some(Read::Missed { count, last }) = reader.next().await else { panic!() };
    assert!(count > 20 && last == count, "{count} {last}");
    let mut seen = last;
    while let Some(Read::Event(event)) = reader.next().await {
        assert_eq!(event.n, seen + 1);
        seen = event.n;
    }
    assert_eq!(seen, 41);
}

#[tokio::test]
async fn a_reader_that_keeps_up_misses_nothing() {
    let log = log();
    let mut reader = log.read(0);
    let writer = Arc::clone(&log);
    let writing = async move {
        for _ in 0..200 {
            writer.publish(output(64 << 10)).await;
        }
        writer.push(EventKind::End { status: Status::Ok, reason: None });
    };
    let reading = async {
        let mut count = 0;
        while let Some(Read::Event(_)) = reader.next().await {
            count += 1;
        }
        count
    };
    assert_eq!(futures::future::join(writing, reading).await.1, 201);
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_left_behind() {
    let log = log();
    let mut reader = log.read(0);
    for _ in 0..200 {
        log.publish(output(64 << 10)).await;
    }
    assert!(matches!(reader.next().await, Some(Read::Missed { .. })));
}

#[tokio::test]
async fn others_who_look_do_not_keep_up_one_who_reads_nothing() {
    let log = log();
    let mut stuck = log.read(0);
    let other = Arc::clone(&log);
    let looking = crate::spawn(async move {
        loop {
            while other.read(0).try_next().is_some() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let writing = async {
        for _ in 0..40 {
            log.publish(output(64 << 10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), writing).await.unwrap();
    looking.abort();
    assert!(matches!(stuck.next().await, Some(Read::Missed { .. })));
}

#[tokio::test]
async fn what_is_kept_is_given_back() {
    let budget = Arc::new(Budget::default());
    let log = Arc::new(Log::new(Arc::clone(&budget)));
    for _ in 0..20 {
        log.publish(output(100_000)).await;
    }
    assert!(log.lock().outputs.weight <= MOST_OUTPUT);
    drop(log);
    assert!(format!("{budget:?}").contains("held: 0"), "{budget:?}");
}
