//! The life of sandboxes on a provider in memory: what callers may, what is found again.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::time::Duration;

use control::{
    Control, ControlError, EventQuery, Execution, Fault, Options, Reference, Renewal, Told, Wish,
};
use domain::{Happened, Limits, OnTimeout, Owner, SandboxId};
use journal::{Bounds, Journal};
use policy::{Caller, Rules, Who};
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

    async fn control(&self, options: Options) -> Control {
        let provider = Arc::new(self.backend.provider());
        let (journal, _) =
            Journal::open(&self.folder.path().join("events"), Bounds::default()).unwrap();
        let store = Arc::clone(&self.store) as _;
        Control::open(provider, store, journal, options).await.unwrap().0
    }
}

fn named(name: &str) -> Wish {
    Wish { name: Some(name.parse().unwrap()), ..Wish::default() }
}

fn brief(milliseconds: u64) -> Limits {
    Limits { timeout: Some(Duration::from_millis(milliseconds)), ..Limits::default() }
}

async fn until(control: &Control, which: &str, state: &str) {
    for _ in 0..500 {
        let seen = control.get(&Caller::local(), &which.into());
        let now = seen.map_or("gone", |lease| lease.state.name());
        if now == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{which} never becomes {state}");
}

#[tokio::test]
async fn a_sandbox_is_made_used_listed_and_deleted() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let lease = control.create(&caller, named("one")).await.unwrap();
    assert_eq!(lease.state.name(), "running");
    for which in ["one", lease.id.as_str(), &lease.id.as_str()[..8], "on"] {
        let found = control.get(&caller, &which.into());
        assert_eq!(found.is_ok(), which != "on", "{which}");
    }
    let execution =
        Execution { program: "echo".into(), arguments: vec!["hi".into()], ..Default::default() };
    let executed = control.execute(&caller, &"one".into(), execution).await.unwrap();
    assert_eq!(executed.stdout.to_text(), "hi\n");
    let listed = control.list(&caller, LeaseQuery::default()).await.unwrap();
    assert_eq!((listed.total, listed.items[0].id.clone()), (1, lease.id.clone()));
    control.delete(&caller, &"one".into()).await.unwrap();
    assert!(place.backend.provider().list().await.unwrap().is_empty());
    let again = control.delete(&caller, &Reference::from(&lease.id)).await.unwrap_err();
    assert_eq!(again.fault(), Fault::NotFound);
    let happened = history(&control, &caller, &lease.id).await;
    assert_eq!(happened, ["creation_asked", "running", "deleting", "deleted"]);
}

/// What happened to a sandbox, in a word each, as far as the caller sees it.
async fn history(control: &Control, caller: &Caller, id: &SandboxId) -> Vec<String> {
    let query = EventQuery { sandbox: Some(id.clone()), limit: 100, ..EventQuery::default() };
    let page = control.history(caller, query).await.unwrap();
    page.items.iter().map(|recorded| word(&recorded.event.happened)).collect()
}

fn word(happened: &Happened) -> String {
    match happened {
        Happened::StateChanged(state) => state.name().to_owned(),
        Happened::CreationAsked { .. } => "creation_asked".to_owned(),
        Happened::CreationFailed { reason } => format!("creation_failed: {reason}"),
        Happened::DeletionFailed { reason } => format!("deletion_failed: {reason}"),
        Happened::TimeoutFailed { reason } => format!("timeout_failed: {reason}"),
        Happened::LimitsFailed { reason } => format!("limits_failed: {reason}"),
        Happened::Found(state) => format!("found {}", state.name()),
        Happened::NameTakenOff { name } => format!("without {name}"),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn events_outlive_the_sandbox_the_daemon_and_the_database_and_are_their_owners() {
    let place = Place::new().await;
    let mut key = Caller::key("ci", Owner("one".into()));
    key.request = Some("0af7".to_owned());
    let first = place.control(Options::default()).await;
    let gone = first.create(&key, named("gone")).await.unwrap();
    let kept = first.create(&key, named("kept")).await.unwrap();
    first.delete(&key, &"gone".into()).await.unwrap();
    first.close().await;
    drop(first);
    // Another database: an empty one.
    let (store, _) = SqliteStore::open(&place.folder.path().join("other.db")).await.unwrap();
    let place = Place { store: Arc::new(store), ..place };
    let control = place.control(Options::default()).await;
    let all = ["creation_asked", "running", "deleting", "deleted"];
    assert_eq!(history(&control, &key, &gone.id).await, all);
    assert_eq!(history(&control, &Caller::local(), &gone.id).await, all);
    let found = ["creation_asked", "running", "found running"];
    assert_eq!(history(&control, &key, &kept.id).await, found);
    let stranger = Caller::key("x", Owner("two".into()));
    assert_eq!(history(&control, &stranger, &gone.id).await, [""; 0]);
    let query = EventQuery { limit: 100, ..EventQuery::default() };
    assert_eq!(control.history(&stranger, query.clone()).await.unwrap().items, []);
    let first = &control.history(&key, query.clone()).await.unwrap().items[0];
    assert_eq!((first.sequence, first.event.actor.as_str()), (1, "key ci"));
    assert_eq!(first.event.request.as_deref(), Some("0af7"));
    // Whoever has only the token of one sees that one.
    let who = Who::Token { sandbox: kept.id.clone() };
    let token = Caller { who, owner: Owner("one".into()), request: None };
    assert_eq!(control.history(&token, query.clone()).await.unwrap().items.len(), 3);
    let other = EventQuery { sandbox: Some(gone.id.clone()), ..query };
    assert_eq!(control.history(&token, other).await.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test]
async fn what_did_not_work_is_written_down_with_the_reason() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let lease =
        control.create(&caller, Wish { limits: brief(20), ..named("brief") }).await.unwrap();
    until(&control, "brief", "stopped").await;
    let renewal = Renewal::Set(Duration::from_secs(1));
    let refused = control.renew(&caller, &"brief".into(), renewal).await.unwrap_err();
    let happened = history(&control, &caller, &lease.id).await;
    assert_eq!(happened.last().unwrap(), &format!("timeout_failed: {refused}"));
}

#[tokio::test]
async fn a_follower_is_told_what_concerns_it_as_it_happens() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let (one, two) = (Caller::key("a", Owner("one".into())), Caller::key("b", Owner("two".into())));
    let early = control.create(&one, named("early")).await.unwrap();
    let mut follower = control.follow(&one, None, Some(0)).unwrap();
    control.create(&two, named("foreign")).await.unwrap();
    let late = control.create(&one, named("late")).await.unwrap();
    for (id, expected) in [
        (&early.id, "creation_asked"),
        (&early.id, "running"),
        (&late.id, "creation_asked"),
        (&late.id, "running"),
    ] {
        let Told::Event(told) = follower.next().await.unwrap().unwrap() else { panic!("missed") };
        assert_eq!((&told.event.sandbox, word(&told.event.happened).as_str()), (id, expected));
    }
}

#[tokio::test]
async fn one_owner_does_not_see_anothers_sandboxes() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let (one, two) = (Caller::key("a", Owner("one".into())), Caller::key("b", Owner("two".into())));
    let lease = control.create(&one, named("web")).await.unwrap();
    // The name is free for the other.
    control.create(&two, named("web")).await.unwrap();
    let foreign = Reference::from(&lease.id);
    assert_eq!(control.get(&two, &foreign).unwrap_err().fault(), Fault::NotFound);
    assert_eq!(control.delete(&two, &foreign).await.unwrap_err().fault(), Fault::NotFound);
    assert_eq!(control.guest(&two, &foreign).await.unwrap_err().fault(), Fault::NotFound);
    let renewal = Renewal::Set(Duration::from_secs(1));
    assert_eq!(control.renew(&two, &foreign, renewal).await.unwrap_err().fault(), Fault::NotFound);
    assert_eq!(control.list(&two, LeaseQuery::default()).await.unwrap().total, 1);
    assert_eq!(control.get(&one, &"web".into()).unwrap().id, lease.id);
    assert_eq!(control.list(&Caller::local(), LeaseQuery::default()).await.unwrap().total, 2);
}

#[tokio::test]
async fn a_taken_name_and_too_many_sandboxes_are_refused() {
    let place = Place::new().await;
    let rules = Rules { sandboxes: 2, ..Rules::default() };
    let control = place.control(Options { rules, ..Options::default() }).await;
    let caller = Caller::local();
    control.create(&caller, named("one")).await.unwrap();
    let taken = control.create(&caller, named("one")).await.unwrap_err();
    assert!(matches!(taken, ControlError::NameTaken { .. }), "{taken}");
    control.create(&caller, Wish::default()).await.unwrap();
    let full = control.create(&caller, Wish::default()).await.unwrap_err();
    assert!(full.to_string().contains("rule `max_sandboxes`"), "{full}");
    control.delete(&caller, &"one".into()).await.unwrap();
    control.create(&caller, named("one")).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_stops_at_its_time_or_is_deleted() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    control.create(&caller, Wish { limits: brief(50), ..named("stops") }).await.unwrap();
    let on_timeout = OnTimeout::Delete;
    control.create(&caller, Wish { limits: brief(50), on_timeout, ..named("goes") }).await.unwrap();
    until(&control, "stops", "stopped").await;
    until(&control, "goes", "gone").await;
    let refused = control.guest(&caller, &"stops".into()).await.unwrap_err();
    let said = refused.to_string();
    let expected = "is stopped: its time was over; `soma start` runs it again";
    assert!(said.ends_with(expected), "{said}");
    assert_eq!(refused.fault(), Fault::Conflict);
}

#[tokio::test]
async fn what_stopped_is_removed_after_the_retention() {
    let place = Place::new().await;
    let options = Options { retention: Duration::from_millis(50), ..Options::default() };
    let control = place.control(options).await;
    let wish = Wish { limits: brief(30), ..named("brief") };
    control.create(&Caller::local(), wish).await.unwrap();
    until(&control, "brief", "gone").await;
    assert!(place.backend.provider().list().await.unwrap().is_empty());
}

#[tokio::test]
async fn time_is_extended_and_shortened() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let lease =
        control.create(&caller, Wish { limits: brief(60_000), ..named("one") }).await.unwrap();
    let less = Renewal::AtLeast(Duration::from_secs(1));
    let same = control.renew(&caller, &"one".into(), less).await.unwrap();
    assert_eq!(same.until, lease.until);
    let more = Renewal::AtLeast(Duration::from_mins(10));
    let later = control.renew(&caller, &"one".into(), more).await.unwrap();
    assert!(later.until > lease.until);
    control.renew(&caller, &"one".into(), Renewal::Set(Duration::ZERO)).await.unwrap();
    until(&control, "one", "stopped").await;
}

#[tokio::test]
async fn another_daemon_finds_the_same_sandboxes_also_without_the_store() {
    let place = Place::new().await;
    let caller = Caller::local();
    let first = place.control(Options::default()).await;
    let lease = first.create(&caller, named("kept")).await.unwrap();
    let held = first.create_held(&caller, named("held")).await.unwrap();
    first.close().await;
    drop((held, first));

    let empty = Place { backend: place.backend.clone(), ..Place::new().await };
    for place in [&place, &empty] {
        let control = place.control(Options::default()).await;
        let found = control.get(&caller, &"kept".into()).unwrap();
        assert_eq!(
            (&found.id, &found.spec, found.created_at),
            (&lease.id, &lease.spec, lease.created_at)
        );
        assert_eq!(found.state.name(), "running");
        assert!(control.get(&caller, &"held".into()).is_err(), "it outlived its holder");
        control.close().await;
    }
}

#[tokio::test]
async fn a_damaged_record_is_restored_from_the_index_or_else_an_error_that_can_be_deleted() {
    let place = Place::new().await;
    let caller = Caller::local();
    let first = place.control(Options::default()).await;
    let lease = first.create(&caller, Wish::default()).await.unwrap();
    first.close().await;
    let provider = place.backend.provider();
    let rules = Rules::default();
    let action = policy::Action::Manage(&lease);
    let permitted = rules.decide(&caller, action, lease.id.clone()).unwrap();
    provider.write_record(&permitted, "{nonsense").await.unwrap();

    let control = place.control(Options::default()).await;
    let found = control.get(&caller, &Reference::from(&lease.id)).unwrap();
    assert_eq!((found.state.name(), &found.spec), ("running", &lease.spec));
    control.close().await;

    let empty = Place { backend: place.backend.clone(), ..Place::new().await };
    let control = empty.control(Options::default()).await;
    let found = control.get(&caller, &Reference::from(&lease.id)).unwrap();
    assert_eq!(found.state.name(), "error");
    assert!(found.state.reason().unwrap().contains("cannot be read"));
    control.delete(&caller, &Reference::from(&lease.id)).await.unwrap();
    assert!(provider.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_missing_stays_listed_as_an_error_and_is_there_again_when_it_is_found() {
    let place = Place::new().await;
    let (caller, backend) = (Caller::local(), place.backend.clone());
    let first = place.control(Options::default()).await;
    let lease = first.create(&caller, named("lost")).await.unwrap();
    first.close().await;
    let elsewhere = Place { backend: FakeBackend::new(), ..place };
    let control = elsewhere.control(Options::default()).await;
    let seen = control.get(&caller, &"lost".into()).unwrap();
    assert_eq!((seen.state.name(), &seen.id), ("error", &lease.id));
    assert_eq!(seen.state.reason().unwrap(), "nothing of it was found on its host");
    let start = control.start(&caller, &"lost".into()).await.unwrap_err();
    assert_eq!(start.fault(), Fault::NotFound);
    assert_eq!(control.get(&caller, &"lost".into()).unwrap().state.name(), "error");
    control.close().await;

    let back = Place { backend, ..elsewhere };
    let control = back.control(Options::default()).await;
    assert_eq!(control.get(&caller, &"lost".into()).unwrap().state.name(), "running");
    control.delete(&caller, &"lost".into()).await.unwrap();
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_no_sandbox() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    {
        let mut create = std::pin::pin!(control.create(&caller, named("nobodys")));
        // Begun, and given up.
        assert!(futures::poll!(create.as_mut()).is_pending());
    }
    until(&control, "nobodys", "gone").await;
    for _ in 0..500 {
        if place.backend.provider().list().await.unwrap().is_empty() {
            assert_eq!(place.store.leases(&LeaseQuery::default()).await.unwrap().total, 0);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a sandbox is left that nobody knows");
}

#[tokio::test]
async fn a_held_sandbox_goes_with_what_holds_it() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let held = control.create_held(&Caller::local(), named("held")).await.unwrap();
    assert_eq!(held.lease().state.name(), "running");
    drop(held);
    until(&control, "held", "gone").await;
}

#[tokio::test]
async fn fifty_sandboxes_at_once_are_fifty() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let wishes = (0..50).map(|n| control.create(&caller, named(&format!("box-{n}"))));
    for made in futures::future::join_all(wishes).await {
        made.unwrap();
    }
    assert_eq!(control.census()["running"], 50);
    assert_eq!(control.list(&caller, LeaseQuery::default()).await.unwrap().total, 50);
}

#[tokio::test]
async fn a_template_is_its_importers_to_replace_and_remove_and_everybodys_to_use() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let (one, two) = (Caller::key("a", Owner("one".into())), Caller::key("b", Owner("two".into())));
    let import = |caller: Caller, replace| {
        let (control, image) = (control.clone(), Box::new(std::io::Cursor::new(b"an image")));
        async move { control.import_template(&caller, "small".parse().unwrap(), replace, image).await }
    };
    let name = || "small".parse().unwrap();
    // A name that nobody has is not replaced, whatever was asked for.
    import(one.clone(), true).await.unwrap();
    for refused in [
        import(two.clone(), true).await.unwrap_err(),
        control.remove_template(&two, name()).await.unwrap_err(),
    ] {
        assert_eq!(refused.fault(), Fault::Forbidden, "{refused}");
        assert!(refused.to_string().contains("rule `owner`"), "{refused}");
    }
    assert_eq!(import(two.clone(), false).await.unwrap_err().fault(), Fault::Conflict);
    let seen = control.template(&two, &name()).await.unwrap();
    assert_eq!(seen.record.owner, Owner("one".into()));
    let wish = Wish { template: Some("small".into()), ..named("made") };
    control.create(&two, wish).await.unwrap();

    import(one.clone(), true).await.unwrap();
    // Whoever runs the machine may do both, and what they import is theirs.
    import(Caller::local(), true).await.unwrap();
    assert_eq!(import(one.clone(), true).await.unwrap_err().fault(), Fault::Forbidden);
    control.remove_template(&Caller::local(), name()).await.unwrap();
    import(two.clone(), false).await.unwrap();
    control.remove_template(&two, name()).await.unwrap();
    assert_eq!(control.remove_template(&two, name()).await.unwrap_err().fault(), Fault::NotFound);
}
