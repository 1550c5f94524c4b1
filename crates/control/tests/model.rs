//! Random lives of sandboxes beside a model of them: 10,000 steps, with daemons that end, crash in
//! the middle of a step, and lose their index.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use control::{Control, ControlError, Fault, Options, Reference, Renewal, Wish, asked};
use journal::{Bounds, Journal};
use policy::{Action, Caller, Rules};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use provider::Provider as _;
use provider::fake::FakeBackend;
use store::sqlite::SqliteStore;
use store::{LeaseQuery, Store};
use tokio::runtime::Runtime;
use tokio_util::task::TaskTracker;

const LIVES: u32 = 100;
const STEPS: usize = 100;
const NAMES: u8 = 4;

/// One step, of a sandbox by its number.
#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    /// With a key, and the daemon dies after so many turns; the same request follows.
    CreateThroughCrash(u8, u8),
    Stop(u8),
    Start(u8),
    Renew(u8),
    Write(u8, u8),
    Delete(u8),
    /// The daemon dies after so many turns of the removal.
    DeleteThroughCrash(u8, u8),
    /// Somebody ends it without asking the daemon.
    EndBehindItsBack(u8),
    Reconcile,
    Restart,
    Crash,
    LoseIndex,
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..NAMES;
    prop_oneof![
        6 => which().prop_map(Step::Create),
        2 => (which(), 0u8..12).prop_map(|(which, turns)| Step::CreateThroughCrash(which, turns)),
        4 => which().prop_map(Step::Stop),
        4 => which().prop_map(Step::Start),
        2 => which().prop_map(Step::Renew),
        6 => (which(), 0u8..8).prop_map(|(which, file)| Step::Write(which, file)),
        3 => which().prop_map(Step::Delete),
        1 => (which(), 0u8..12).prop_map(|(which, turns)| Step::DeleteThroughCrash(which, turns)),
        1 => which().prop_map(Step::EndBehindItsBack),
        1 => Just(Step::Reconcile),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        1 => Just(Step::LoseIndex),
    ]
}

/// What should be true of one sandbox.
#[derive(Debug, Default)]
struct Expected {
    running: bool,
    files: BTreeSet<u8>,
}

struct World {
    backend: FakeBackend,
    folder: tempfile::TempDir,
    daemon: Option<(Runtime, Control)>,
    expected: BTreeMap<u8, Expected>,
    keys: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            backend: FakeBackend::new(),
            folder: tempfile::tempdir().unwrap(),
            daemon: None,
            expected: BTreeMap::new(),
            keys: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let control = runtime.block_on(async {
            let path = self.folder.path().join("soma.db");
            let (store, _) = SqliteStore::open(&path).await.unwrap();
            let provider = Arc::new(self.backend.provider());
            let store = Arc::new(store) as Arc<dyn Store>;
            let events = self.folder.path().join("events");
            let (journal, _) = Journal::open(&events, Bounds::default()).unwrap();
            Control::open(provider, store, journal, Options::default()).await.unwrap().0
        });
        self.daemon = Some((runtime, control));
    }

    fn crash(&mut self) {
        self.end();
        self.begin();
    }

    /// Nothing that the daemon was at goes on.
    fn end(&mut self) {
        if let Some((runtime, control)) = self.daemon.take() {
            drop(control);
            runtime.shutdown_background();
        }
    }

    fn run<T>(&self, work: impl AsyncFnOnce(&Control) -> T) -> T {
        let (runtime, control) = self.daemon.as_ref().unwrap();
        runtime.block_on(work(control))
    }

    /// Begins something and dies after so many turns of everything that runs.
    fn crash_within(&mut self, turns: u8, work: impl Future<Output = ()> + Send + 'static) {
        let (runtime, _) = self.daemon.as_ref().unwrap();
        runtime.block_on(async {
            let tasks = TaskTracker::new();
            tasks.spawn(work);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        });
        self.crash();
    }

    fn take(&mut self, step: &Step) {
        let caller = Caller::local();
        match *step {
            Step::Create(which) => {
                let made = self.run(async |control| control.create(&caller, named(which)).await);
                if self.expected.contains_key(&which) {
                    assert!(matches!(made, Err(ControlError::NameTaken { .. })), "{made:?}");
                } else {
                    made.unwrap();
                    self.made(which);
                }
            }
            Step::CreateThroughCrash(which, turns) => {
                if self.expected.contains_key(&which) {
                    return;
                }
                self.keys += 1;
                let key = format!("key-{}", self.keys);
                let wish = Wish { asked: Some(asked(&key, b"{}")), ..named(which) };
                let (control, first) = (self.daemon.as_ref().unwrap().1.clone(), wish.clone());
                self.crash_within(turns, async move {
                    let _ = control.create(&Caller::local(), first).await;
                });
                let made = self.run(async |control| control.create(&caller, wish).await);
                made.unwrap();
                self.made(which);
            }
            Step::Stop(which) => {
                let ended = self.run(async |control| control.stop(&caller, &named_so(which)).await);
                self.check(which, ended.map(|lease| lease.state.name()), "stopped");
                self.expected.get_mut(&which).into_iter().for_each(|one| one.running = false);
            }
            Step::Start(which) => {
                let begun =
                    self.run(async |control| control.start(&caller, &named_so(which)).await);
                self.check(which, begun.map(|lease| lease.state.name()), "running");
                self.expected.get_mut(&which).into_iter().for_each(|one| one.running = true);
            }
            Step::Renew(which) => {
                let renewal = Renewal::Set(Duration::from_hours(1));
                let renewed = self
                    .run(async |control| control.renew(&caller, &named_so(which), renewal).await);
                self.check_running(which, renewed.map(drop));
            }
            Step::Write(which, file) => {
                let path = format!("/workspace/{file}");
                let written = self.run(async |control| {
                    let guest = control.guest(&caller, &named_so(which)).await?;
                    let _ = guest.make_dir(&path, None).await;
                    guest.stat(&path, None).await.map(drop).map_err(ControlError::from)
                });
                self.check_running(which, written);
                let one = self.expected.get_mut(&which).filter(|one| one.running);
                if let Some(one) = one {
                    one.files.insert(file);
                }
            }
            Step::Delete(which) => {
                let gone =
                    self.run(async |control| control.delete(&caller, &named_so(which)).await);
                assert_eq!(gone.is_ok(), self.expected.remove(&which).is_some(), "{gone:?}");
            }
            Step::DeleteThroughCrash(which, turns) => {
                let control = self.daemon.as_ref().unwrap().1.clone();
                self.crash_within(turns, async move {
                    let _ = control.delete(&Caller::local(), &named_so(which)).await;
                });
                // Nobody was told that it is gone: it is, or it is there as it was.
                let gone =
                    self.run(async |control| control.delete(&caller, &named_so(which)).await);
                assert!(gone.is_ok() || is_absent(&gone.unwrap_err()));
                self.expected.remove(&which);
            }
            Step::EndBehindItsBack(which) => {
                self.end_behind_its_back(which);
            }
            Step::Reconcile => {
                let found = self.run(async |control| control.reconcile().await.unwrap());
                assert_eq!((found.adopted, found.missing.len()), (0, 0), "{found:?}");
            }
            Step::Restart => {
                self.run(async |control| control.close().await);
                self.crash();
            }
            Step::Crash => self.crash(),
            Step::LoseIndex => {
                self.run(async |control| control.close().await);
                self.end();
                self.folder = tempfile::tempdir().unwrap();
                self.begin();
            }
        }
    }

    fn end_behind_its_back(&mut self, which: u8) {
        let caller = Caller::local();
        let lease = self.run(async |control| control.get(&caller, &named_so(which)));
        let Ok(lease) = lease else { return };
        let permitted =
            Rules::default().decide(&caller, Action::Manage(&lease), lease.id.clone()).unwrap();
        let provider = self.backend.provider();
        self.run(async |_| provider.stop(&permitted).await.unwrap());
        self.expected.get_mut(&which).into_iter().for_each(|one| one.running = false);
        self.run(async |control| control.reconcile().await.unwrap());
    }

    fn made(&mut self, which: u8) {
        self.expected.insert(which, Expected { running: true, files: BTreeSet::new() });
    }

    fn check(&self, which: u8, seen: Result<&'static str, ControlError>, wanted: &str) {
        match (seen, self.expected.contains_key(&which)) {
            (Ok(state), true) => assert_eq!(state, wanted),
            (Err(error), false) => assert_eq!(error.fault(), Fault::NotFound),
            (seen, known) => panic!("{seen:?}, and it is {known} that it is there"),
        }
    }

    fn check_running(&self, which: u8, done: Result<(), ControlError>) {
        match (done, self.expected.get(&which)) {
            (Ok(()), Some(one)) => assert!(one.running, "it was used while it did not run"),
            (Err(error), Some(one)) => {
                assert!(!one.running, "{error}");
                assert_eq!(error.fault(), Fault::Conflict);
            }
            (Err(error), None) => assert_eq!(error.fault(), Fault::NotFound),
            (Ok(()), None) => panic!("what is not there was used"),
        }
    }

    /// Everything is as it should be, by whatever door one looks.
    fn compare(&self) {
        let caller = Caller::local();
        let wanted: BTreeMap<String, &str> = self
            .expected
            .iter()
            .map(|(which, one)| (name(*which), if one.running { "running" } else { "stopped" }))
            .collect();
        self.run(async |control| {
            let mut seen = BTreeMap::new();
            // What ended is noticed by a task that needs its turn.
            for _ in 0..200 {
                let listed = control.list(&caller, LeaseQuery::default()).await.unwrap();
                seen = listed
                    .items
                    .iter()
                    .map(|lease| (lease.name.as_ref().unwrap().to_string(), lease.state.name()))
                    .collect();
                if seen == wanted {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(seen, wanted);
            let there = self.backend.provider().list().await.unwrap();
            assert_eq!(there.len(), wanted.len(), "lost or doubled: {there:?}");
            for (which, one) in self.expected.iter().filter(|(_, one)| one.running) {
                let guest = control.guest(&caller, &named_so(*which)).await.unwrap();
                for file in &one.files {
                    let path = format!("/workspace/{file}");
                    assert!(guest.stat(&path, None).await.is_ok(), "{path} is lost");
                }
            }
        });
    }
}

fn is_absent(error: &ControlError) -> bool {
    error.fault() == Fault::NotFound
}

fn name(which: u8) -> String {
    format!("box-{which}")
}

fn named_so(which: u8) -> Reference {
    name(which).as_str().into()
}

fn named(which: u8) -> Wish {
    Wish { name: Some(name(which).parse().unwrap()), ..Wish::default() }
}

#[test]
fn ten_thousand_random_steps_lose_and_double_nothing() {
    let config = Config { cases: LIVES, failure_persistence: None, ..Config::default() };
    let lives = prop::collection::vec(step(), STEPS);
    TestRunner::new(config)
        .run(&lives, |steps| {
            let mut world = World::new();
            for step in &steps {
                world.take(step);
                world.compare();
            }
            Ok(())
        })
        .unwrap();
}
