//! Somebody dies at the N-th system call of an operation.

use super::operations::{
    CREATE, DELETE, EXECUTE, LAUNCH, Operation, Outcome, PAUSE, PROCESS, REPLACE, RESUME, START,
    Subject, Victim, WRITE,
};
use super::scene::Scene;
use super::tracer::{Counted, Deed, Plan, Watched};
use super::{Chance, Where, cannot_trace, say};

/// At how many points somebody dies in one operation; all of them when time does not matter.
const POINTS: u64 = 26;

#[test]
fn a_create_during_which_somebody_dies_is_made_whole_or_not_at_all() {
    dies_over("a_create_during_which_somebody_dies_is_made_whole_or_not_at_all", &[CREATE]);
}

#[test]
fn a_launch_during_which_somebody_dies_is_made_whole_or_not_at_all() {
    dies_over("a_launch_during_which_somebody_dies_is_made_whole_or_not_at_all", &[LAUNCH]);
}

#[test]
fn a_command_during_which_somebody_dies_is_begun_once_and_heard() {
    dies_over("a_command_during_which_somebody_dies_is_begun_once_and_heard", &[EXECUTE, PROCESS]);
}

#[test]
fn a_file_during_which_somebody_dies_is_the_old_one_or_the_new_one() {
    dies_over("a_file_during_which_somebody_dies_is_the_old_one_or_the_new_one", &[REPLACE, WRITE]);
}

#[test]
fn a_delete_during_which_somebody_dies_is_done_or_can_be_done() {
    dies_over("a_delete_during_which_somebody_dies_is_done_or_can_be_done", &[DELETE]);
}

#[test]
fn a_start_during_which_somebody_dies_is_done_or_can_be_done() {
    dies_over("a_start_during_which_somebody_dies_is_done_or_can_be_done", &[START]);
}

#[test]
fn a_pause_during_which_somebody_dies_loses_nothing() {
    dies_over("a_pause_during_which_somebody_dies_loses_nothing", &[PAUSE]);
}

#[test]
fn a_resume_during_which_somebody_dies_loses_nothing() {
    dies_over("a_resume_during_which_somebody_dies_loses_nothing", &[RESUME]);
}

pub(super) fn dies_over(name: &str, operations: &[Operation]) {
    if cannot_trace(name) {
        return;
    }
    let mut chance = Chance::of_this_run();
    let mut scene = Scene::set();
    for operation in operations {
        let victims = operation.victims.len() as u64;
        let points = POINTS.div_ceil(operations.len() as u64 * victims);
        for victim in operation.victims {
            let calls = count(&mut scene, operation, *victim);
            say(&format!("{}: {calls} calls to {victim:?}", operation.name));
            for at in chance.points(calls + 1, points) {
                die(&mut scene, operation, *victim, at);
            }
        }
    }
    scene.close();
}

/// How many calls there are in an operation during which nobody dies.
fn count(scene: &mut Scene, operation: &Operation, victim: Victim) -> u64 {
    let _where = Where(format!("{}, nobody dies, {victim:?} is watched", operation.name));
    let subject = (operation.prepare)(scene);
    let (watched, _) = roles(scene, operation, &subject, victim);
    let plan = Plan { watched, counted: Counted::All, at: 0, deed: Deed::Count };
    let (answer, seen) = operation.traced(scene, &subject, plan);
    let answer = answer.unwrap();
    assert_eq!(answer.status, operation.done, "{:?}", String::from_utf8_lossy(&answer.body));
    let outcome = Outcome { answer: Some(&answer), may_have_ended: false };
    (operation.check)(scene, &subject, outcome);
    scene.witness_testifies();
    scene.assert_no_group();
    seen.calls
}

fn die(scene: &mut Scene, operation: &Operation, victim: Victim, at: u64) {
    let mut place = Where(format!("{}, {victim:?} dies at {at}", operation.name));
    let subject = (operation.prepare)(scene);
    let (watched, deed) = roles(scene, operation, &subject, victim);
    let plan = Plan { watched, counted: Counted::All, at, deed };
    let (answer, seen) = operation.traced(scene, &subject, plan);
    place.0 = format!("{}, {seen:?}, {:?}", place.0, answer.as_ref().map(|answer| answer.status));
    if let Some(answer) = &answer
        && answer.status != operation.done
    {
        // Whoever is left says what went wrong.
        assert!(answer.status >= 400 && !answer.message().is_empty(), "{answer:?}");
    }
    if victim == Victim::Daemon {
        // Where it was done before the point came, the daemon dies now.
        scene.restart_daemon();
    }
    let holds = matches!(victim, Victim::Child | Victim::Supervisor);
    let may_have_ended = holds && seen.struck.is_some();
    (operation.check)(scene, &subject, Outcome { answer: answer.as_ref(), may_have_ended });
    scene.witness_testifies();
    scene.assert_no_group();
}

/// Whose calls count, and how the victim dies at one of them. Where it makes none itself, those of
/// the daemon are its clock.
fn roles(
    scene: &Scene,
    operation: &Operation,
    subject: &Subject,
    victim: Victim,
) -> (Watched, Deed) {
    let engine = scene.engine_process();
    let daemon = Watched::Process(scene.daemon_process());
    match victim {
        Victim::Daemon => (daemon, Deed::Die),
        Victim::Engine if operation.is_engines => (Watched::Process(engine), Deed::Die),
        Victim::Engine => (daemon, Deed::Kill(engine)),
        Victim::Child => (Watched::ChildrenOf(engine), Deed::Die),
        Victim::Supervisor => {
            let supervisor = scene.supervisor_process(&subject.id);
            if operation.is_engines {
                (Watched::Process(supervisor), Deed::Die)
            } else {
                (daemon, Deed::Kill(supervisor))
            }
        }
    }
}
