//! What sandboxes may reach, on a provider in memory: who changes it, what is kept, what is shown.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use control::{Control, EventQuery, Fault, NetworkWish, Options, Wish};
use domain::{
    Happened, Lease, NetworkEntry, NetworkMode, NetworkPolicy, NetworkProtocol, Owner, SecretText,
    Timestamp, Transform,
};
use journal::{Bounds, Journal};
use policy::{Caller, Who};
use provider::Provider as _;
use provider::fake::FakeBackend;
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
}

fn named(name: &str) -> Wish {
    Wish { name: Some(name.parse().unwrap()), ..Wish::default() }
}

fn custom(domains: &[&str]) -> NetworkPolicy {
    NetworkPolicy {
        mode: NetworkMode::Custom,
        allow_domains: domains.iter().map(|domain| domain.parse().unwrap()).collect(),
        ..NetworkPolicy::default()
    }
}

fn with_secret(domain: &str, value: &str) -> NetworkPolicy {
    let transform = Transform {
        domain: domain.parse().unwrap(),
        inject_headers: BTreeMap::from([("Authorization".to_owned(), SecretText::new(value))]),
        strip_headers: Vec::new(),
    };
    NetworkPolicy { transforms: vec![transform], ..custom(&[]) }
}

fn granting(names: &[&str]) -> NetworkWish {
    let sandboxes = names.iter().map(ToString::to_string).collect();
    NetworkWish { policy: custom(&[]), sandboxes }
}

async fn record(place: &Place, lease: &Lease) -> Lease {
    let text = place.backend.provider().read_record(&lease.id).await.unwrap();
    Lease::from_text(&text).unwrap()
}

#[tokio::test]
async fn nothing_said_is_what_the_operator_chose() {
    for mode in [NetworkMode::AllowAll, NetworkMode::DenyAll] {
        let place = Place::new().await;
        let options = Options { network: mode, ..Options::default() };
        let control = place.control(options).await;
        let lease = control.create(&Caller::local(), Wish::default()).await.unwrap();
        assert_eq!(place.backend.network(&lease.id).unwrap().mode, mode);
        assert_eq!(control.network(&Caller::local(), &(&lease.id).into()).unwrap().mode, mode);
    }
    assert_eq!(Options::default().network, NetworkMode::AllowAll);
}

#[tokio::test]
async fn a_change_is_written_down_done_and_told_without_secrets() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let wish = Wish { network: Some(custom(&["a.example"]).into()), ..named("one") };
    let lease = control.create(&caller, wish).await.unwrap();
    assert_eq!(place.backend.network(&lease.id).unwrap(), custom(&["a.example"]));
    let policy = with_secret("api.example.com", "swordfish");
    control.change_network(&caller, &"one".into(), policy.clone().into()).await.unwrap();
    assert_eq!(place.backend.network(&lease.id).unwrap(), policy);
    assert_eq!(record(&place, &lease).await.spec.network, policy);
    let shown = control.network(&caller, &"one".into()).unwrap();
    assert!(!serde_json::to_string(&shown).unwrap().contains("swordfish"));
    // What was shown can be sent back, and what was not shown stays.
    let back = NetworkPolicy { block_domains: vec!["b.example".parse().unwrap()], ..shown };
    control.change_network(&caller, &"one".into(), back.into()).await.unwrap();
    let kept = place.backend.network(&lease.id).unwrap();
    assert_eq!(kept.transforms, policy.transforms);
    assert_eq!(kept.block_domains.len(), 1);
    let query = EventQuery { limit: 100, ..EventQuery::default() };
    let page = control.history(&caller, query).await.unwrap();
    let told = serde_json::to_string(&page.items.iter().map(|it| &it.event).collect::<Vec<_>>());
    assert!(!told.unwrap().contains("swordfish"));
    let last = &page.items.last().unwrap().event.happened;
    let Happened::NetworkChanged { mode, summary } = last else { panic!("{last:?}") };
    assert_eq!(*mode, NetworkMode::Custom);
    assert_eq!(summary, "blocked: b.example; requests changed: api.example.com");
}

#[tokio::test]
async fn a_secret_that_was_not_shown_goes_to_no_other_host() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let policy = with_secret("api.example.com", "swordfish");
    let wish = Wish { network: Some(policy.clone().into()), ..named("one") };
    let lease = control.create(&caller, wish).await.unwrap();
    let mut stolen = control.network(&caller, &"one".into()).unwrap();
    stolen.transforms[0].domain = "evil.example".parse().unwrap();
    let changed = control.change_network(&caller, &"one".into(), stolen.clone().into()).await;
    let error = changed.unwrap_err();
    assert_eq!(error.fault(), Fault::Invalid);
    assert!(error.to_string().contains("transforms[0].inject_headers.Authorization"), "{error}");
    assert_eq!(place.backend.network(&lease.id).unwrap(), policy);
    let fresh = Wish { network: Some(stolen.into()), ..Wish::default() };
    assert_eq!(control.create(&caller, fresh).await.unwrap_err().fault(), Fault::Invalid);
}

#[tokio::test]
async fn what_cannot_be_done_leaves_everything_as_it_was() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let wish = Wish { network: Some(custom(&["a.example"]).into()), ..named("one") };
    let lease = control.create(&caller, wish).await.unwrap();
    place.backend.refuse_changes_of_network(true);
    let wider = NetworkPolicy { mode: NetworkMode::AllowAll, ..NetworkPolicy::default() };
    control.change_network(&caller, &"one".into(), wider.clone().into()).await.unwrap_err();
    assert_eq!(record(&place, &lease).await.spec.network, custom(&["a.example"]));
    assert_eq!(control.network(&caller, &"one".into()).unwrap(), custom(&["a.example"]));
    place.backend.refuse_changes_of_network(false);
    let too_much = NetworkPolicy { learn: true, ..NetworkPolicy::default() };
    let refused = control.change_network(&caller, &"one".into(), too_much.into()).await;
    assert_eq!(refused.unwrap_err().fault(), Fault::Invalid);
    assert_eq!(place.backend.network(&lease.id).unwrap(), custom(&["a.example"]));
    let query = EventQuery { limit: 100, ..EventQuery::default() };
    let page = control.history(&caller, query).await.unwrap();
    let failed = page.items.iter().filter(
        |it| matches!(&it.event.happened, Happened::NetworkFailed { reason } if !reason.is_empty()),
    );
    assert_eq!(failed.count(), 2);
}

#[tokio::test]
async fn what_was_written_down_and_not_done_is_done_by_the_next_daemon() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let lease = control.create(&caller, named("one")).await.unwrap();
    control.close().await;
    // As if the daemon had died between the two.
    let mut intent = record(&place, &lease).await;
    intent.spec.network = custom(&["a.example"]);
    let permitted = policy::Rules::default()
        .decide(&caller, policy::Action::Manage(&lease), lease.id.clone())
        .unwrap();
    let provider = place.backend.provider();
    provider.write_record(&permitted, &intent.to_text().unwrap()).await.unwrap();
    let _next = place.control(Options::default()).await;
    for _ in 0..1000 {
        if place.backend.network(&lease.id).unwrap() == custom(&["a.example"]) {
            return;
        }
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("the policy is never done");
}

#[tokio::test]
async fn a_sandbox_that_stopped_has_its_new_policy_when_it_starts() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let lease = control.create(&caller, named("one")).await.unwrap();
    control.stop(&caller, &"one".into()).await.unwrap();
    let narrow = custom(&["a.example"]);
    control.change_network(&caller, &"one".into(), narrow.clone().into()).await.unwrap();
    control.start(&caller, &"one".into()).await.unwrap();
    assert_eq!(place.backend.network(&lease.id).unwrap(), narrow);
}

#[tokio::test]
async fn sandboxes_of_one_owner_can_be_granted_to_each_other_and_no_others() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let here = Caller::key("ci", Owner("here".into()));
    let there = Caller::key("ci", Owner("there".into()));
    let own = control.create(&here, named("db")).await.unwrap();
    let foreign = control.create(&there, named("secret-db")).await.unwrap();
    let wish = Wish { network: Some(granting(&["db"])), ..named("web") };
    let web = control.create(&here, wish).await.unwrap();
    let granted = place.backend.network(&web.id).unwrap().sandboxes;
    assert_eq!(granted, BTreeMap::from([("db".to_owned(), own.id.clone())]));
    for other in ["secret-db", foreign.id.as_str(), "nobody", "web"] {
        // Also whoever runs the machine makes no pair of two owners.
        for caller in [&here, &Caller::local()] {
            let changed = control.change_network(caller, &"web".into(), granting(&[other])).await;
            let error = changed.unwrap_err();
            assert_eq!(error.fault(), Fault::Invalid, "{other}");
            assert!(error.to_string().contains("allow_sandboxes"), "{error}");
        }
    }
    // A policy that names one which is gone can be sent back.
    control.delete(&here, &"db".into()).await.unwrap();
    control.change_network(&here, &"web".into(), granting(&["db"])).await.unwrap();
    assert_eq!(place.backend.network(&web.id).unwrap().sandboxes["db"], own.id);
}

#[tokio::test]
async fn others_neither_see_nor_change_it() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let here = Caller::key("ci", Owner("here".into()));
    let lease = control.create(&here, named("one")).await.unwrap();
    let which = (&lease.id).into();
    let there = Caller::key("ci", Owner("there".into()));
    let who = Who::Token { sandbox: lease.id.clone() };
    let token = Caller { who, owner: lease.owner.clone(), request: None };
    for (caller, fault) in [(&there, Fault::NotFound), (&token, Fault::Forbidden)] {
        let changed = control.change_network(caller, &which, custom(&[]).into()).await;
        assert_eq!(changed.unwrap_err().fault(), fault);
        let log = control.network_log(caller, &which, 0, false).await;
        assert_eq!(log.unwrap_err().fault(), fault);
    }
    assert_eq!(control.network(&there, &which).unwrap_err().fault(), Fault::NotFound);
    assert_eq!(place.backend.network(&lease.id).unwrap().mode, NetworkMode::AllowAll);
}

fn entry(name: &str, port: u16, allowed: bool) -> NetworkEntry {
    NetworkEntry {
        sequence: 0,
        at: Timestamp(5),
        protocol: NetworkProtocol::Tls,
        name: Some(name.to_owned()),
        address: None,
        port,
        process: None,
        sent: 1,
        received: 2,
        milliseconds: 3,
        allowed,
        rule: "learn".to_owned(),
        detail: None,
    }
}

#[tokio::test]
async fn the_log_is_read_followed_and_learned_from() {
    let place = Place::new().await;
    let control = place.control(Options::default()).await;
    let caller = Caller::local();
    let lease = control.create(&caller, named("one")).await.unwrap();
    let which = (&lease.id).into();
    for (name, allowed) in [("a.example", true), ("b.example", false), ("c.example", true)] {
        place.backend.reach(&lease.id, entry(name, 443, allowed));
    }
    let mut log = control.network_log(&caller, &which, 1, false).await.unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = log.next().await {
        seen.push(entry.unwrap().sequence);
    }
    assert_eq!(seen, [2, 3]);
    let mut following = control.network_log(&caller, &which, 3, true).await.unwrap();
    let (next, ()) = tokio::join!(following.next(), async {
        place.backend.reach(&lease.id, entry("d.example", 80, true));
    });
    assert_eq!(next.unwrap().unwrap().name.as_deref(), Some("d.example"));
    let (policy, left_out) = control.learned(&caller, &which).await.unwrap();
    let domains: Vec<String> = policy.allow_domains.iter().map(ToString::to_string).collect();
    assert_eq!(domains, ["a.example", "c.example", "d.example"]);
    assert_eq!((policy.allow_ports.len(), left_out.len()), (2, 0));
}
