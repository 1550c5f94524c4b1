//! A page is quick to find among many, and an open store is small.

use std::time::{Duration, Instant};

use domain::Labels;
use store::Sort;

use super::*;

/// Far above what it takes (the figures are in milliseconds), so that a busy machine passes and
/// a search without an index does not.
const MOST: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_page_of_many_sandboxes_is_quick_to_find() {
    let count: u32 = if std::env::var_os("SOMA_LONG").is_some() { 10_000 } else { 500 };
    let place = Place::new();
    let store = place.open().await;
    for number in 0..count {
        let mut lease = if number % 2 == 0 { running(number) } else { lease(number) };
        lease.owner = Owner(format!("owner-{}", number % 3));
        lease.labels = Labels::from([
            ("all".into(), "yes".into()),
            ("part".into(), (number % 10).to_string()),
        ]);
        store.put_lease(&lease).await.unwrap();
    }
    let page = || LeaseQuery { limit: Some(100), ..LeaseQuery::default() };
    let owner = Some(Owner("owner-1".to_owned()));
    let last = u64::from(count) - 100;
    for (name, query) in [
        ("first", page()),
        ("last", LeaseQuery { offset: last, ..page() }),
        ("owner", LeaseQuery { owner: owner.clone(), ..page() }),
        ("owner by state", LeaseQuery { owner, sort: Sort::State, ..page() }),
        ("by state", LeaseQuery { sort: Sort::State, ..page() }),
        ("state", LeaseQuery { states: vec!["running".into()], ..page() }),
        ("template", LeaseQuery { template: Some("none".into()), ..page() }),
        ("label", LeaseQuery { labels: [("all".into(), "yes".into())].into(), ..page() }),
        ("part", LeaseQuery { labels: [("part".into(), "3".into())].into(), ..page() }),
        ("200", LeaseQuery { limit: Some(200), ..page() }),
    ] {
        store.leases(&query).await.unwrap();
        let start = Instant::now();
        store.leases(&query).await.unwrap();
        let taken = start.elapsed();
        println!("{name}: {taken:?}");
        assert!(taken < MOST, "{name} took {taken:?}");
    }
    store.close().await;
    let start = Instant::now();
    place.open().await.close().await;
    println!("open: {:?}", start.elapsed());
}

/// What this process has in memory of its own, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// What it says is right when it runs alone, as nextest has it: what other tests take counts too.
#[tokio::test]
async fn an_open_store_is_small() {
    let place = Place::new();
    let before = resident();
    let store = place.open().await;
    let opened = resident();
    for number in 0..2000 {
        store.put_lease(&lease(number)).await.unwrap();
    }
    let written = resident();
    for _ in 0..20 {
        let page = LeaseQuery { limit: Some(100), ..LeaseQuery::default() };
        let (one, two) = tokio::join!(store.leases(&page), store.leases(&page));
        assert_eq!(one.unwrap().items.len() + two.unwrap().items.len(), 200);
    }
    let [opened, written, read] =
        [opened, written, resident()].map(|kib| kib.saturating_sub(before));
    println!("KiB: opened {opened}, written {written}, read {read}");
    // It takes two of them; without bounds on its caches it would take the forty of the daemon.
    assert!(read < 16 << 10, "{read} KiB");
    store.close().await;
}
