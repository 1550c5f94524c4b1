//! What a build of a template is doing, for whoever waits for it; on a terminal only.

use std::time::Duration;

use client::Client;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often it is looked at. A build takes minutes.
const PACE: Duration = Duration::from_millis(400);

/// What is waited for before anything is shown: a template that is ready takes less.
const PATIENCE: Duration = Duration::from_millis(700);

/// The template that is built, by all of its names.
const BUILT: &str = "code-interpreter";

/// Does something that may wait for the build of its template, and shows what that is doing.
pub(crate) async fn watched<T>(
    client: &Client,
    template: Option<&str>,
    work: impl Future<Output = T>,
) -> T {
    let is_built = template.is_some_and(|name| name.starts_with(BUILT));
    if !is_built || !rustix::termios::isatty(rustix::stdio::stderr()) {
        return work.await;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("building {prefix} ({elapsed}): {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(BUILT);
    let done = tokio::select! {
        done = work => done,
        never = show(client, &bar) => match never {},
    };
    bar.finish_and_clear();
    done
}

/// Goes on until it is dropped.
async fn show(client: &Client, bar: &ProgressBar) -> std::convert::Infallible {
    tokio::time::sleep(PATIENCE).await;
    loop {
        if let Ok(seen) = client.template(BUILT).await
            && seen.state == "building"
        {
            bar.set_message(super::one_line(&seen.detail));
        }
        tokio::time::sleep(PACE).await;
    }
}
