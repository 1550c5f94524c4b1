//! What lasts: sandboxes that end and start again, requests that are repeated, work that a daemon
//! did not live to finish.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::time::Duration;

use control::{Control, ControlError, Execution, Fault, Options, Reference, Wish, asked};
use domain::{Ending, Lifetime, Limits, OnExit, OnTimeout, Owner, State};
use journal::{Bounds, Journal};
use policy::{Action, Caller, Rules};
use provider::Provider as _;
use provider::fake::FakeBackend;
use store::sqlite::SqliteStore;
use store::{LeaseQuery, Store};

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

    async fn control(&self) -> Control {
        self.control_with(Options::default()).await
    }

    async fn control_with(&self, options: Options) -> Control {
        let provider = Arc::new(self.backend.provider());
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        let events = self.folder.path().join("events");
        let (journal, _) = Journal::open(&events, Bounds::default()).unwrap();
        Control::open(provider, store, journal, options).await.unwrap().0
    }

    async fn count(&self) -> usize {
        self.backend.provider().list().await.unwrap().len()
    }
}

fn named(name: &str) -> Wish {
    Wish { name: Some(name.parse().unwrap()), ..Wish::default() }
}

fn keyed(key: &str, wish: &str) -> Wish {
    Wish { asked: Some(asked(key, wish.as_bytes())), ..Wish::default() }
}

async fn run(control: &Control, which: &str, words: &[&str]) -> Result<String, ControlError> {
    let execution = Execution {
        program: words[0].into(),
        arguments: words[1..].iter().map(|word| (*word).to_owned()).collect(),
        ..Default::default()
    };
    let executed = control.execute(&Caller::local(), &which.into(), execution).await?;
    Ok(executed.stdout.to_text())
}

#[tokio::test]
async fn a_sandbox_that_was_stopped_starts_again_with_its_files() {
    let place = Place::new().await;
    let (control, caller) = (place.control().await, Caller::local());
    control.create(&caller, named("one")).await.unwrap();
    let guest = control.guest(&caller, &"one".into()).await.unwrap();
    guest.make_dir("/workspace/kept", None).await.unwrap();
    for _ in 0..2 {
        let stopped = control.stop(&caller, &"one".into()).await.unwrap();
        assert_eq!(stopped.state.reason().unwrap(), "it was stopped");
    }
    let refused = run(&control, "one", &["echo"]).await.unwrap_err();
    assert_eq!(refused.fault(), Fault::Conflict);
    for _ in 0..2 {
        let started = control.start(&caller, &"one".into()).await.unwrap();
        assert_eq!(started.state.name(), "running");
    }
    let guest = control.guest(&caller, &"one".into()).await.unwrap();
    assert_eq!(guest.stat("/workspace/kept", None).await.unwrap().path, "/workspace/kept");
    assert_eq!(run(&control, "one", &["echo", "hi"]).await.unwrap(), "hi\n");
    // It ends at its time again, and that is noticed again.
    control.stop(&caller, &"one".into()).await.unwrap();
    assert_eq!(control.get(&caller, &"one".into()).unwrap().state.name(), "stopped");
}

#[tokio::test]
async fn a_request_with_a_key_can_be_repeated_and_makes_one_sandbox() {
    let place = Place::new().await;
    let (control, caller) = (place.control().await, Caller::local());
    let first = control.create(&caller, keyed("k1", "{}")).await.unwrap();
    let again = control.create(&caller, keyed("k1", "{}")).await.unwrap();
    assert_eq!((&first.id, &first.spec), (&again.id, &again.spec));
    let other = control.create(&caller, keyed("k1", "{more}")).await.unwrap_err();
    assert!(matches!(other, ControlError::KeyReused { .. }), "{other}");
    assert_eq!(other.fault(), Fault::Conflict);

    let all = (0..20).map(|_| control.create(&caller, keyed("k2", "{}")));
    let all = futures::future::join_all(all).await;
    let ids: std::collections::BTreeSet<_> =
        all.into_iter().map(|made| made.unwrap().id.clone()).collect();
    assert_eq!((ids.len(), place.count().await), (1, 2));

    // Another owner's key is another key, and the id is no secret of the first one's.
    let stranger = Caller::key("b", Owner("two".into()));
    let theirs = control.create(&stranger, keyed("k1", "{}")).await.unwrap();
    assert_ne!(theirs.id, first.id);
    control.close().await;

    // Also by the next daemon.
    let next = place.control().await;
    let found = next.create(&caller, keyed("k1", "{}")).await.unwrap();
    assert_eq!(found.id, first.id);
    // Once it is deleted, the same request makes another.
    next.delete(&caller, &Reference::from(&first.id)).await.unwrap();
    let fresh = next.create(&caller, keyed("k1", "{}")).await.unwrap();
    assert_ne!(fresh.spec.token, first.spec.token);
    assert_eq!(place.count().await, 3);
    for key in ["", "with space", &"x".repeat(256)] {
        let refused = next.create(&caller, keyed(key, "{}")).await.unwrap_err();
        assert_eq!(refused.fault(), Fault::Invalid, "{key}");
    }
}

#[tokio::test]
async fn what_was_made_for_a_daemon_that_died_is_found_by_the_same_request() {
    let place = Place::new().await;
    let (first, caller) = (place.control().await, Caller::local());
    let made = first.create(&caller, keyed("k", "{}")).await.unwrap();
    first.close().await;
    // The index never heard of it.
    place.store.remove_lease(&made.id).await.unwrap();
    let next = place.control().await;
    let found = next.create(&caller, keyed("k", "{}")).await.unwrap();
    assert_eq!((&found.id, place.count().await), (&made.id, 1));
    assert_eq!(found.spec.token, made.spec.token);
}

#[tokio::test]
async fn a_key_is_known_again_also_when_the_homes_secret_was_lost() {
    let place = Place::new().await;
    let (first, caller) = (place.control().await, Caller::local());
    let made = first.create(&caller, keyed("k", "{}")).await.unwrap();
    first.close().await;
    let next = place.control_with(Options { secret: [1; 32], ..Options::default() }).await;
    let found = next.create(&caller, keyed("k", "{}")).await.unwrap();
    assert_eq!((&found.id, place.count().await), (&made.id, 1));
}

#[tokio::test]
async fn what_is_to_go_at_its_time_goes_also_when_nobody_was_there_to_see_it() {
    let place = Place::new().await;
    let (first, caller) = (place.control().await, Caller::local());
    let limits = Limits { timeout: Some(Duration::from_millis(100)), ..Limits::default() };
    let wish = Wish { limits, on_timeout: OnTimeout::Delete, ..named("brief") };
    first.create(&caller, wish).await.unwrap();
    first.close().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    let next = place.control().await;
    for _ in 0..500 {
        if place.count().await == 0 && next.get(&caller, &"brief".into()).is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is still there");
}

#[tokio::test]
async fn what_cannot_be_read_stays_an_error_and_is_not_written_over() {
    let place = Place::new().await;
    let (first, caller) = (place.control().await, Caller::local());
    let lease = first.create(&caller, Wish::default()).await.unwrap();
    first.close().await;
    let permitted =
        Rules::default().decide(&caller, Action::Manage(&lease), lease.id.clone()).unwrap();
    let provider = place.backend.provider();
    provider.write_record(&permitted, "{nonsense").await.unwrap();
    place.store.remove_lease(&lease.id).await.unwrap();
    let next = place.control().await;
    for _ in 0..2 {
        next.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        let seen = next.get(&caller, &Reference::from(&lease.id)).unwrap();
        assert_eq!(seen.state.name(), "error");
    }
    assert!(next.start(&caller, &Reference::from(&lease.id)).await.is_err());
    assert_eq!(provider.read_record(&lease.id).await.unwrap(), "{nonsense");
}

#[tokio::test]
async fn a_caller_with_a_key_who_goes_away_finds_the_sandbox_later() {
    let place = Place::new().await;
    let (control, caller) = (place.control().await, Caller::local());
    {
        let mut create = std::pin::pin!(control.create(&caller, keyed("k", "{}")));
        assert!(futures::poll!(create.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let made = control.create(&caller, keyed("k", "{}")).await.unwrap();
    assert_eq!(made.state.name(), "running");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(place.count().await, 1);
    assert!(control.get(&caller, &Reference::from(&made.id)).is_ok());
}

#[tokio::test]
async fn a_removal_that_a_daemon_did_not_finish_is_finished_by_the_next() {
    let place = Place::new().await;
    let (first, caller) = (place.control().await, Caller::local());
    let lease = first.create(&caller, named("going")).await.unwrap();
    first.close().await;
    let mut going = lease.as_ref().clone();
    going.state = State::Deleting(going.state.delete().unwrap());
    place.store.put_lease(&going).await.unwrap();
    let next = place.control().await;
    for _ in 0..500 {
        if place.count().await == 0 && next.get(&caller, &"going".into()).is_err() {
            assert_eq!(place.store.leases(&LeaseQuery::default()).await.unwrap().total, 0);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is still there");
}

#[tokio::test]
async fn what_a_provider_has_and_nobody_knew_is_taken_in_by_the_next_look() {
    let place = Place::new().await;
    let (control, caller) = (place.control().await, Caller::local());
    let other = Place { backend: FakeBackend::new(), ..Place::new().await };
    let elsewhere = other.control().await;
    let lease = elsewhere.create(&caller, named("found")).await.unwrap();
    let provider = place.backend.provider();
    let spec = Rules::default()
        .decide(&caller, Action::Create { spec: &lease.spec, existing: 0 }, lease.spec.clone())
        .unwrap();
    provider.create(&lease.id, &spec, &lease.to_text().unwrap()).await.unwrap();
    let held = domain::SandboxSpec { lifetime: Lifetime::WithCaller, ..lease.spec.clone() };
    let held = Rules::default()
        .decide(&caller, Action::Create { spec: &lease.spec, existing: 0 }, held)
        .unwrap();
    let theirs = domain::SandboxId::from_random([9; 15]);
    provider.create(&theirs, &held, "").await.unwrap();

    let found = control.reconcile().await.unwrap();
    assert_eq!((found.adopted, found.running), (1, 2));
    assert_eq!(control.get(&caller, &"found".into()).unwrap().id, lease.id);
    assert!(control.get(&caller, &Reference::from(&theirs)).is_err(), "it is somebody else's");
    assert_eq!(control.reconcile().await.unwrap().adopted, 0);
}

#[tokio::test]
async fn what_somebody_else_ended_is_noticed() {
    let place = Place::new().await;
    let (control, caller) = (place.control().await, Caller::local());
    let lease = control.create(&caller, named("one")).await.unwrap();
    let permitted =
        Rules::default().decide(&caller, Action::Manage(&lease), lease.id.clone()).unwrap();
    let provider = place.backend.provider();
    provider.stop(&permitted).await.unwrap();
    let state = async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        control.get(&caller, &"one".into()).unwrap().state.clone()
    };
    assert_eq!(state().await.name(), "stopped");
    provider.start(&permitted, &lease.spec).await.unwrap();
    control.reconcile().await.unwrap();
    assert_eq!(state().await.name(), "running");
    provider.destroy(&permitted).await.unwrap();
    let missing = state().await;
    assert_eq!(missing.reason().unwrap(), Ending::Missing.to_string());
}

#[tokio::test]
async fn when_the_daemon_is_told_to_end_each_sandbox_does_what_it_was_made_to_do() {
    let place = Place::new().await;
    let (control, caller) = (place.control().await, Caller::local());
    for (name, on_exit) in
        [("keeps", OnExit::Keep), ("stops", OnExit::Stop), ("goes", OnExit::Destroy)]
    {
        control.create(&caller, Wish { on_exit, ..named(name) }).await.unwrap();
    }
    control.exit().await;
    control.close().await;
    let next = place.control().await;
    let state = |name: &str| next.get(&caller, &name.into()).map(|lease| lease.state.name());
    assert_eq!((state("keeps").unwrap(), state("stops").unwrap()), ("running", "stopped"));
    assert!(state("goes").is_err());
}

#[tokio::test]
async fn what_stopped_long_ago_by_the_wall_clock_stays_for_a_while() {
    let place = Place::new().await;
    let (first, caller) = (place.control().await, Caller::local());
    let limits = Limits { timeout: Some(Duration::from_millis(1)), ..Limits::default() };
    let lease = first.create(&caller, Wish { limits, ..named("old") }).await.unwrap();
    while first.get(&caller, &"old".into()).unwrap().state.name() != "stopped" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.close().await;
    // As if ten years had passed, or the clock had been set: nobody can tell which.
    let mut old = first_record(&place, &lease.id).await;
    let ten_years = 10 * 365 * 24 * 3600 * 1000;
    for shift in [-ten_years, 2 * ten_years] {
        old.changed_at.0 += shift;
        let rules = Rules::default();
        let permitted = rules.decide(&caller, Action::Manage(&old), old.id.clone()).unwrap();
        let provider = place.backend.provider();
        provider.write_record(&permitted, &old.to_text().unwrap()).await.unwrap();
        let next = place.control().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(next.get(&caller, &"old".into()).unwrap().state.name(), "stopped");
        next.close().await;
    }
}

async fn first_record(place: &Place, id: &domain::SandboxId) -> domain::Lease {
    let mut lease = place.store.leases(&LeaseQuery::default()).await.unwrap().items;
    lease.retain(|lease| lease.id == *id);
    lease.pop().unwrap()
}
