//! The N-th write of state fails, or there is no descriptor left.
//!
//! Nobody dies: the operation says what went wrong or works all the same, nothing is corrupt, and
//! it works as soon as the fault is gone, without anything being started again.

use rustix::io::Errno;

use super::operations::{CREATE, DELETE, EXECUTE, LAUNCH, Operation, Outcome, REPLACE, Victim};
use super::scene::Scene;
use super::tracer::{Counted, Deed, Plan, Watched};
use super::{Chance, Where, cannot_trace, say};

/// At how many points each fault strikes; all of them when time does not matter.
const POINTS: u64 = 5;

/// Something that the host may do to us.
struct Fault {
    errno: Errno,
    /// A full disk stays full.
    lasting: bool,
}

const FAULTS: [Fault; 3] = [
    Fault { errno: Errno::NOSPC, lasting: true },
    Fault { errno: Errno::IO, lasting: false },
    Fault { errno: Errno::MFILE, lasting: false },
];

#[test]
fn a_create_that_meets_a_fault_says_so_and_works_when_it_is_gone() {
    fails_over(
        "a_create_that_meets_a_fault_says_so_and_works_when_it_is_gone",
        &[(CREATE, Victim::Daemon), (CREATE, Victim::Engine)],
    );
}

#[test]
fn a_launch_that_meets_a_fault_says_so_and_works_when_it_is_gone() {
    fails_over(
        "a_launch_that_meets_a_fault_says_so_and_works_when_it_is_gone",
        &[(LAUNCH, Victim::Child), (LAUNCH, Victim::Engine)],
    );
}

#[test]
fn a_delete_that_meets_a_fault_says_so_and_works_when_it_is_gone() {
    fails_over(
        "a_delete_that_meets_a_fault_says_so_and_works_when_it_is_gone",
        &[(DELETE, Victim::Daemon), (DELETE, Victim::Engine), (DELETE, Victim::Child)],
    );
}

#[test]
fn what_is_done_inside_meets_no_fault_of_the_daemons_state() {
    fails_over(
        "what_is_done_inside_meets_no_fault_of_the_daemons_state",
        &[(EXECUTE, Victim::Daemon), (REPLACE, Victim::Daemon)],
    );
}

fn fails_over(name: &str, operations: &[(Operation, Victim)]) {
    if cannot_trace(name) {
        return;
    }
    let mut chance = Chance::of_this_run();
    let mut scene = Scene::set();
    for (operation, victim) in operations {
        for Fault { errno, lasting } in FAULTS {
            let deed = Deed::Fail { error: errno.raw_os_error(), lasting };
            let calls = meet(&mut scene, operation, *victim, errno, (0, Deed::Count));
            say(&format!("{}: {calls} calls by {victim:?} can meet {errno}", operation.name));
            // What is done inside is not written down by the daemon.
            let inside = operation.name == EXECUTE.name || operation.name == REPLACE.name;
            assert!(calls > 0 || inside, "nothing of {} can meet {errno}", operation.name);
            for at in chance.points(calls, POINTS) {
                meet(&mut scene, operation, *victim, errno, (at, deed));
            }
        }
    }
    scene.close();
}

/// Lets an operation meet a fault, and returns how many calls could have.
fn meet(
    scene: &mut Scene,
    operation: &Operation,
    victim: Victim,
    errno: Errno,
    (at, deed): (u64, Deed),
) -> u64 {
    let mut place = Where(format!("{}, {victim:?} meets {errno} at {at}", operation.name));
    let subject = (operation.prepare)(scene);
    let counted = match errno {
        Errno::MFILE => Counted::Descriptors,
        _ => Counted::Writes(scene.home().path().to_owned()),
    };
    let watched = match victim {
        Victim::Daemon => Watched::Process(scene.daemon_process()),
        Victim::Child => Watched::ChildrenOf(scene.engine_process()),
        Victim::Engine | Victim::Supervisor => Watched::Process(scene.engine_process()),
    };
    let living = (scene.daemon_process(), scene.engine_process());
    let (answer, seen) = operation.traced(scene, &subject, Plan { watched, counted, at, deed });
    place.0 = format!("{}, {seen:?}, {:?}", place.0, answer.as_ref().map(|answer| answer.status));
    let answer = answer.unwrap();
    if answer.status == operation.done {
        // A launcher says that all is well before it has become the supervisor.
        let may_have_ended = victim == Victim::Child && seen.struck.is_some();
        (operation.check)(scene, &subject, Outcome { answer: Some(&answer), may_have_ended });
    } else {
        assert!(answer.status >= 400 && !answer.message().is_empty(), "{answer:?}");
        place.0 = format!("{}: {}", place.0, answer.message());
        // It is gone now, and the very same works, if it is not done already.
        let again = scene.attempt(&(operation.request)(&subject)).unwrap();
        let is_gone = operation.name == DELETE.name && again.status == 404;
        assert!(again.status == operation.done || is_gone, "{again:?}");
        let outcome = Outcome { answer: Some(&again), may_have_ended: false };
        (operation.check)(scene, &subject, outcome);
    }
    let left = (scene.daemon_process(), scene.engine_process());
    assert_eq!(living, left, "the daemon or the engine did not live through it");
    scene.witness_testifies();
    scene.assert_no_group();
    seen.calls
}
