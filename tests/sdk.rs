//! E2B's official SDK, unmodified, against our guest.

use std::process::Stdio;

use crate::support::{Home, needs_root, skip};

#[tokio::test]
async fn the_official_e2b_sdk_drives_our_guest() {
    if needs_root(
        "the_official_e2b_sdk_drives_our_guest",
        "way into a sandbox for a foreign client",
    ) {
        return;
    }
    let Ok(python) = std::env::var("SOMA_E2B") else {
        let reason = std::env::var("SOMA_E2B_MISSING")
            .unwrap_or_else(|_| "SOMA_E2B does not say where its interpreter is".to_owned());
        return skip("the_official_e2b_sdk_drives_our_guest", &reason);
    };
    let home = Home::new();
    let provider = home.provider();
    let id = provider_native::random_id().unwrap();
    provider.create(&id, &domain::SandboxSpec::default()).await.unwrap();

    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sdk/e2b_suite.py");
    let output = sys_linux::command::command(python)
        .args([suite, &home.first_process(&id).to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        said,
        "commands held
background held
terminals held
files held
watching held
\
         transfers held
secured held
",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    provider.destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}
