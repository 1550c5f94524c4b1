//! Sandboxes that stand still, on a provider in memory: who resumes them, and how often.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::time::Duration;

use control::{Control, EventQuery, Execution, Fault, Options, Renewal, Wish};
use domain::{Happened, Limits, OnExit, OnTimeout, Rest, State};
use journal::{Bounds, Journal};
use policy::Caller;
use provider::fake::FakeBackend;
use provider::{Condition, Provider as _};
use store::LeaseQuery;
use store::sqlite::SqliteStore;

struct Place {
    backend: FakeBackend,
    store: Arc<SqliteStore>,
    folder: tempfile::TempDir,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = SqliteStore::open(&folder.path().join("soma.db")).await.unwrap();
        Self { backend: FakeBackend::new(), store: Arc::new(store), folder }
    }

    async fn control(&self, options: Options) -> Control {
        let provider = Arc::new(self.backend.provider());
        let (journal, _) =
            Journal::open(&self.folder.path().join("events"), Bounds::default()).unwrap();
        let store = Arc::clone(&self.store) as _;
        Control::open(provider, store, journal, options).await.unwrap().0
    }

    async fn condition(&self) -> Condition {
        self.backend.provider().list().await.unwrap().remove(0).condition
    }
}

fn named(name: &str) -> Wish {
    Wish { name: Some(name.parse().unwrap()), ..Wish::default() }
}

fn echo() -> Execution {
    Execution { program: "echo".into(), arguments: vec!["hi".into()], ..Default::default() }
}

async fn until(control: &Control, which: &str, state: &str) {
    for _ in 0..500 {
        if control.get(&Caller::local(), &which.into()).unwrap().state.name() == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{which} never becomes {state}");
}

/// How often it went into a state.
async fn entered(control: &Control, state: &str) -> usize {
    let query = EventQuery { limit: 100, ..EventQuery::default() };
    let events = control.history(&Caller::local(), query).await.unwrap();
    let is_it = |happened: &Happened| matches!(happened, Happened::StateChanged(changed) if changed.name() == state);
    events.items.iter().filter(|recorded| is_it(&recorded.event.happened)).count()
}

#[tokio::test]
async fn ten_requests_at_once_cause_one_resume_and_looking_causes_none() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    control.create(&caller, named("box")).await.unwrap();
    let paused = control.pause(&caller, &"box".into(), None).await.unwrap();
    assert_eq!(paused.state.name(), "paused");
    assert_eq!(paused.state.reason().unwrap(), "it stands still in memory");
    assert_eq!(paused.until, None);
    let again = control.pause(&caller, &"box".into(), None).await.unwrap_err();
    assert_eq!(again.fault(), Fault::Conflict);

    let listed = control.list(&caller, LeaseQuery::default()).await.unwrap();
    assert_eq!(listed.items[0].state.name(), "paused");
    control.reconcile().await.unwrap();
    assert_eq!(control.get(&caller, &"box".into()).unwrap().state.name(), "paused");

    let which = "box".into();
    let requests = (0..10).map(|_| control.execute(&caller, &which, echo()));
    for executed in futures::future::join_all(requests).await {
        assert_eq!(executed.unwrap().stdout.to_text(), "hi\n");
    }
    assert_eq!(entered(&control, "unpausing").await, 1);
    let lease = control.get(&caller, &"box".into()).unwrap();
    assert!(lease.until.is_some(), "its time does not begin anew");
    control.pause(&caller, &"box".into(), None).await.unwrap();
    control.delete(&caller, &"box".into()).await.unwrap();
    assert!(place.backend.provider().list().await.unwrap().is_empty());
}

#[tokio::test]
async fn after_the_grace_it_is_on_the_disk_and_a_later_daemon_sees_to_that_too() {
    let place = Place::new().await;
    let grace = Duration::from_millis(50);
    let control = place.control(Options { grace, ..Options::default() }).await;
    let caller = Caller::local();
    control.create(&caller, named("box")).await.unwrap();
    let at_once = control.pause(&caller, &"box".into(), Some(Duration::ZERO)).await.unwrap();
    let State::Paused(paused) = &at_once.state else { panic!("{at_once:?}") };
    assert_eq!(paused.rest, Rest::Hibernated);
    control.renew(&caller, &"box".into(), Renewal::Set(Duration::from_mins(1))).await.unwrap();
    assert_eq!(place.condition().await, Condition::Running, "more time does not resume it");

    let frozen = control.pause(&caller, &"box".into(), None).await.unwrap();
    assert_eq!(frozen.state.reason().unwrap(), "it stands still in memory");
    // The daemon that paused it does not live to put it on the disk.
    control.close().await;
    assert_eq!(place.condition().await, Condition::Paused(Rest::Frozen { because: None }));
    let control = place.control(Options { grace, ..Options::default() }).await;
    assert_eq!(control.get(&caller, &"box".into()).unwrap().state.name(), "paused");
    for _ in 0..500 {
        if place.condition().await == Condition::Paused(Rest::Hibernated) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(place.condition().await, Condition::Paused(Rest::Hibernated));
    control.resume(&caller, &"box".into()).await.unwrap();
    assert_eq!(place.condition().await, Condition::Running);
}

#[tokio::test]
async fn at_its_time_or_with_its_daemon_it_is_paused_where_that_was_asked_for() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let limits = Limits { timeout: Some(Duration::from_millis(50)), ..Limits::default() };
    let (on_timeout, on_exit) = (OnTimeout::Pause, OnExit::Pause);
    let wish = Wish { limits, on_timeout, on_exit, ..named("box") };
    control.create(&caller, wish).await.unwrap();
    until(&control, "box", "paused").await;
    // All of its time again, which is over as soon.
    control.resume(&caller, &"box".into()).await.unwrap();
    until(&control, "box", "paused").await;
    control.renew(&caller, &"box".into(), Renewal::Set(Duration::from_mins(1))).await.unwrap();
    assert_eq!(place.condition().await, Condition::Running);
    control.exit().await;
    assert_eq!(place.condition().await, Condition::Paused(Rest::Hibernated));
}

#[tokio::test]
async fn one_that_only_its_owner_resumes_is_refused_to_others_and_stopped_as_any() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    control.create(&caller, Wish { auto_resume: false, ..named("box") }).await.unwrap();
    control.pause(&caller, &"box".into(), None).await.unwrap();
    let refused = control.guest(&caller, &"box".into()).await.unwrap_err();
    assert!(refused.to_string().ends_with("`soma resume` lets it go on"), "{refused}");
    let stopped = control.stop(&caller, &"box".into()).await.unwrap();
    assert_eq!(stopped.state.name(), "stopped");
    control.start(&caller, &"box".into()).await.unwrap();
    assert_eq!(place.condition().await, Condition::Running);
}
