//! Sandboxes that stand still in memory.

use std::time::Duration;

use domain::{Limits, Rest, SandboxSpec};
use provider::{Condition, ProviderError};
use provider_native::random_id;

use crate::conformance::{output_of, run};
use crate::support::{Home, needs_root};

const FROZEN: Condition = Condition::Paused(Rest::Frozen { because: None });

/// Writes a larger number to a file again and again.
pub(super) const COUNTER: &str = "n=0; while :; do n=$((n+1)); echo $n > /workspace/n.new; \
                       mv /workspace/n.new /workspace/n; sleep 0.01; done";

pub(super) async fn count(home: &Home, id: &domain::SandboxId) -> u64 {
    let guest = home.provider().guest(id);
    output_of(&guest, "cat", &["/workspace/n"]).await.trim().parse().unwrap_or(0)
}

#[tokio::test]
async fn a_paused_sandbox_stands_still_through_a_killed_engine_and_goes_on_where_it_was() {
    let name = "a_paused_sandbox_stands_still_through_a_killed_engine_and_goes_on_where_it_was";
    if needs_root(name, "freezer") {
        return;
    }
    let home = Home::new();
    let id = random_id().unwrap();
    let limits = Limits { timeout: Some(Duration::from_secs(2)), ..Limits::default() };
    let spec = SandboxSpec { limits, ..SandboxSpec::default() };
    home.provider().create(&id, &spec).await.unwrap();
    let guest = home.provider().guest(&id);
    let background = format!("({COUNTER}) > /dev/null 2>&1 & true");
    assert_eq!(run(&guest, "sh", &["-c", &background]).await.code, 0);

    home.provider().pause(&id).await.unwrap();
    assert_eq!(home.provider().inspect(&id).await.unwrap().condition, FROZEN);
    // Twice is once.
    home.provider().pause(&id).await.unwrap();
    let refused = home.provider().connect(&id).await.err().unwrap();
    assert!(matches!(refused, ProviderError::Paused { .. }), "{refused:?}");

    home.kill_engine();
    assert_eq!(home.provider().inspect(&id).await.unwrap().condition, FROZEN);
    // Its time would be over by now, had it run.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
    assert_eq!(home.provider().inspect(&id).await.unwrap().condition, Condition::Running);
    let before = count(&home, &id).await;
    assert!(before > 0, "the counter is gone");
    let mut after = before;
    for _ in 0..100 {
        after = count(&home, &id).await;
        if after > before {
            break;
        }
    }
    assert!(after > before, "the counter does not go on");

    // Its end is noted, and it can be destroyed, also while it stands still.
    home.provider().pause(&id).await.unwrap();
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_paused_sandbox_can_be_stopped_and_its_files_stay() {
    if needs_root("a_paused_sandbox_can_be_stopped_and_its_files_stay", "freezer") {
        return;
    }
    let home = Home::new();
    let id = random_id().unwrap();
    home.provider().create(&id, &SandboxSpec::default()).await.unwrap();
    let guest = home.provider().guest(&id);
    assert_eq!(run(&guest, "sh", &["-c", "echo here > /workspace/mark"]).await.code, 0);
    home.provider().pause(&id).await.unwrap();
    home.provider().stop(&id).await.unwrap();
    let seen = home.provider().inspect(&id).await.unwrap().condition;
    assert_eq!(seen, Condition::Ended(domain::Ending::Stopped));
    home.provider().start(&id, &SandboxSpec::default()).await.unwrap();
    let guest = home.provider().guest(&id);
    assert_eq!(output_of(&guest, "cat", &["/workspace/mark"]).await, "here\n");
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}
