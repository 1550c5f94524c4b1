//! `soma run` on the provider in memory.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Lease, SandboxId, SandboxSpec, Timestamp};
use policy::{Action, Caller, Permitted, Rules};
use provider::fake::{FakeBackend, FakeProvider};
use provider::{Condition, Provider};
use tokio::sync::mpsc;

use super::follow::follow;
use super::input::Input;
use crate::arguments::{Command, Parsed};
use crate::failure::Failure;
use crate::output::Console;
use crate::session::{Entered, Ground, Interrupt, Interrupts, Plan, Seen, Session};

/// A fresh sandbox of the provider in memory.
struct InMemory {
    provider: Arc<FakeProvider>,
    id: SandboxId,
}

impl InMemory {
    fn new(backend: &FakeBackend) -> Self {
        let id = provider_native::random_id().unwrap();
        Self { provider: Arc::new(backend.provider()), id }
    }

    fn own(&self) -> Permitted<SandboxId> {
        let lease = Lease::new(self.id.clone(), SandboxSpec::default(), Timestamp(0));
        let manage = Action::Manage(&lease);
        Rules::default().decide(&Caller::local(), manage, self.id.clone()).unwrap()
    }
}

#[async_trait]
impl Ground for InMemory {
    async fn enter(&self, spec: &SandboxSpec) -> Result<Entered, Failure> {
        let create = Action::Create { spec, existing: 0 };
        let spec = Rules::default().decide(&Caller::local(), create, spec.clone()).unwrap();
        self.provider.create(&self.id, &spec, "").await.unwrap();
        let guest = provider::guest(Arc::clone(&self.provider) as _, self.own());
        Ok(Entered { id: self.id.to_string(), guest })
    }

    async fn look(&self, _id: &str) -> Option<Seen> {
        match self.provider.inspect(&self.id).await.ok()?.condition {
            Condition::Running | Condition::Paused(_) => Some(Seen::Running),
            Condition::Ended(why) => Some(Seen::Ended(why.to_string())),
        }
    }

    async fn leave(&self, _entered: &Entered, _pid: Option<u32>) -> Result<(), Failure> {
        self.provider.destroy(&self.own()).await.unwrap();
        Ok(())
    }
}

/// What is left when a run is over.
struct Finished {
    outcome: Result<u8, Failure>,
    stdout: String,
    stderr: String,
}

/// A run about to begin.
struct Attempt {
    typed: Vec<String>,
    input: Option<OwnedFd>,
    interrupts: Vec<(u64, Interrupt)>,
}

fn typed(words: &[&str]) -> Attempt {
    let typed = ["soma", "run"].iter().chain(words).map(ToString::to_string).collect();
    Attempt { typed, input: None, interrupts: Vec::new() }
}

impl Attempt {
    fn input(mut self, bytes: &[u8]) -> Self {
        let (reader, writer) = pipe();
        rustix::io::write(&writer, bytes).unwrap();
        self.input = Some(reader);
        self
    }

    fn interrupt(mut self, after_milliseconds: u64, interrupt: Interrupt) -> Self {
        self.interrupts.push((after_milliseconds, interrupt));
        self
    }

    async fn run(self) -> Finished {
        let ((out, stdout), (err, stderr)) = (pipe(), pipe());
        let outcome = self.run_into(stdout, stderr).await;
        Finished { outcome, stdout: all_of(out), stderr: all_of(err) }
    }

    /// Runs, and checks that no sandbox is left whatever the outcome is.
    async fn run_into(self, stdout: OwnedFd, stderr: OwnedFd) -> Result<u8, Failure> {
        let mut plan = plan(&self.typed)?;
        plan.start.stdin = self.input.is_some();
        let backend = FakeBackend::new();
        let session = Session::new(Box::new(InMemory::new(&backend)), plan);
        let console = Console::new(stdout, stderr).unwrap();
        let (sender, receiver) = mpsc::channel(4);
        let interrupting = async {
            for (after, interrupt) in self.interrupts {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let _ = sender.send(interrupt).await;
            }
            std::future::pending::<()>().await;
        };
        let input = Input::from(self.input);
        let running = session.run(console, Interrupts::Channel(receiver), async |live| {
            Ok(follow(live, input).await)
        });
        let outcome = tokio::select! {
            outcome = running => outcome,
            () = interrupting => unreachable!(),
        };
        // What was not made to the end goes with whoever asked for it.
        drop(session);
        assert_eq!(backend.provider().list().await.unwrap(), [], "a sandbox is left");
        outcome
    }
}

fn plan(typed: &[String]) -> Result<Plan, Failure> {
    match crate::arguments::parse(typed.iter().map(Into::into))? {
        Parsed::Command { command: Command::Run(arguments), .. } => arguments.plan(),
        _ => panic!("{typed:?} is not a run"),
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

fn all_of(pipe: OwnedFd) -> String {
    let mut text = String::new();
    File::from(pipe).read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn the_exit_code_is_the_commands_own() {
    assert_eq!(typed(&["--", "true"]).run().await.outcome, Ok(0));
    assert_eq!(typed(&["--", "false"]).run().await.outcome, Ok(1));
    assert_eq!(typed(&["--", "sh", "-c", "exit 42"]).run().await.outcome, Ok(42));
}

#[tokio::test]
async fn both_outputs_arrive_where_they_belong() {
    let finished = typed(&["--", "echo", "hello"]).run().await;
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("hello\n", ""));
    let finished = typed(&["--", "cat", "/nothing"]).run().await;
    assert_eq!(finished.stdout, "");
    assert!(finished.stderr.contains("/nothing"));
    assert_eq!(finished.outcome, Ok(1));
}

#[tokio::test]
async fn standard_input_is_passed_and_ends() {
    let finished = typed(&["--", "cat"]).input(b"one\ntwo\n").run().await;
    assert_eq!(finished.stdout, "one\ntwo\n");
    assert_eq!(finished.outcome, Ok(0));
}

#[tokio::test]
async fn a_command_that_leaves_input_unread_ends_all_the_same() {
    let finished = typed(&["--", "true"]).input(&[b'x'; 4096]).run().await;
    assert_eq!(finished.outcome, Ok(0));
}

#[tokio::test]
async fn a_command_over_its_time_is_ended_with_124_and_the_way_out() {
    let failure =
        typed(&["--timeout", "100ms", "--", "sleep", "60"]).run().await.outcome.unwrap_err();
    assert_eq!(failure.code, 124);
    assert_eq!(failure.message, "the command was ended: it took longer than 100 ms");
    assert_eq!(
        failure.hint.as_deref(),
        Some("give it more with --timeout, such as --timeout 200ms")
    );
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_with_127() {
    let failure = typed(&["--", "fly"]).run().await.outcome.unwrap_err();
    assert_eq!((failure.code, failure.message.contains("`fly`")), (127, true));
    let failure = typed(&["--lang", "r", "1"]).run().await.outcome.unwrap_err();
    assert_eq!(failure.code, 127);
    assert!(failure.message.contains("`Rscript`"), "{failure}");
    let hint = failure.hint.unwrap();
    assert!(hint.contains("`r-base-core`") && hint.contains("/usr"), "{hint}");
}

#[tokio::test]
async fn an_unknown_user_and_folder_are_named() {
    let failure = typed(&["--user", "nobody", "--", "true"]).run().await.outcome.unwrap_err();
    assert_eq!(failure.code, 2);
    assert_eq!(failure.message, "there is no user `nobody` in the sandbox");
    assert_eq!(failure.hint.as_deref(), Some("root and user exist"));
    let failure = typed(&["--workdir", "/nowhere", "--", "true"]).run().await.outcome.unwrap_err();
    assert_eq!(failure.code, 2);
    assert!(failure.message.contains("/nowhere"), "{failure}");
}

#[tokio::test]
async fn ctrl_c_ends_the_command_and_says_so_with_130() {
    let attempt = typed(&["--", "sleep", "60"]).interrupt(50, Interrupt::CtrlC);
    assert_eq!(attempt.run().await.outcome, Ok(130));
}

#[tokio::test]
async fn ctrl_c_before_the_command_runs_leaves_nothing() {
    let attempt = typed(&["--", "sleep", "60"]).interrupt(0, Interrupt::CtrlC);
    assert_eq!(attempt.run().await.outcome, Ok(130));
}

#[tokio::test]
async fn a_kill_ends_it_at_once() {
    let attempt = typed(&["--", "sleep", "60"]).interrupt(50, Interrupt::Terminate);
    assert_eq!(attempt.run().await.outcome, Ok(143));
    let attempt = typed(&["--", "sleep", "60"]).interrupt(50, Interrupt::HangUp);
    assert_eq!(attempt.run().await.outcome, Ok(129));
}

#[tokio::test]
async fn a_closed_pipe_ends_it_quietly_with_141() {
    let ((reader, stdout), (_err, stderr)) = (pipe(), pipe());
    drop(reader);
    let failure = typed(&["--", "echo", "hello"]).run_into(stdout, stderr).await.unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), (141, ""));
}

#[test]
fn a_limit_that_makes_no_sense_is_refused_before_anything_is_made() {
    for (flag, value) in
        [("--memory", "1k"), ("--cpus", "0"), ("--pids", "0"), ("--timeout", "0"), ("--disk", "1m")]
    {
        let failure = plan(&typed(&[flag, value, "1"]).typed).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("too little"), "{failure}");
    }
}

#[test]
fn a_variable_that_cannot_be_read_is_refused_without_its_value() {
    for words in [["--env", "=hunter2"], ["-e", "=hunter2=hunter2"]] {
        let failure = plan(&typed(&[words[0], words[1], "1"]).typed).unwrap_err();
        assert!(!failure.message.contains("hunter2"), "{failure}");
    }
}

#[test]
fn what_a_run_may_reach_is_part_of_its_plan() {
    let network = |words: &[&str]| plan(&typed(words).typed).map(|plan| plan.network);
    assert_eq!(network(&["1"]).unwrap(), None);
    let learning = network(&["--network", "learn", "1"]).unwrap().unwrap();
    assert!(learning.learn);
    let listed = network(&["--allow", "a.com", "1"]).unwrap().unwrap();
    assert_eq!(listed.allow_domains, ["a.com"]);
    for words in [&["--network", "1"][..], &["1", "--network"], &["--network=host", "1"]] {
        assert_eq!(network(words).unwrap_err().code, 2, "{words:?}");
    }
}

#[test]
fn code_goes_to_its_interpreter_as_one_argument() {
    let plan_of = |words: &[&str]| plan(&typed(words).typed).unwrap().start;
    let start = plan_of(&["print(6*7)"]);
    assert_eq!(
        (start.cmd.as_str(), start.args),
        ("python3", vec!["-c".into(), "print(6*7)".into()])
    );
    let start = plan_of(&["--lang", "bash", "-"]);
    assert_eq!((start.cmd.as_str(), start.args), ("bash", vec!["-s".into()]));
    let start = plan_of(&["--", "ls", "-l"]);
    assert_eq!((start.cmd.as_str(), start.args), ("ls", vec!["-l".into()]));
    assert_eq!(plan(&typed(&[]).typed).unwrap_err().message, "there is nothing to run");
}
