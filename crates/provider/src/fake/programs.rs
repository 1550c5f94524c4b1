//! The programs of a sandbox in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::tree::{Tree, resolve};

/// What a program has around it.
pub(super) struct Surroundings {
    pub(super) args: Vec<String>,
    pub(super) folder: String,
    pub(super) tree: Arc<Tree>,
    pub(super) stdin: mpsc::Receiver<Vec<u8>>,
    pub(super) output: mpsc::Sender<Output>,
}

/// A piece of what a program writes.
pub(super) enum Output {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

/// The programs that are there, by their bare names.
pub(super) fn is_there(name: &str) -> bool {
    matches!(name, "true" | "false" | "echo" | "cat" | "sleep" | "sh")
}

/// The bare name of what was asked for, when it may be in one of the usual folders.
pub(super) fn bare_name(cmd: &str) -> &str {
    cmd.strip_prefix("/usr/bin/").or_else(|| cmd.strip_prefix("/bin/")).unwrap_or(cmd)
}

/// Runs a program that is there and returns its exit code.
pub(super) async fn run(name: &str, mut surroundings: Surroundings) -> i32 {
    match name {
        "true" => 0,
        "echo" => {
            let line = format!("{}\n", surroundings.args.join(" "));
            surroundings.say(line.into_bytes()).await;
            0
        }
        "cat" => cat(&mut surroundings).await,
        "sleep" => match surroundings.args.first().and_then(|text| text.parse().ok()) {
            Some(seconds) => {
                let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                tokio::time::sleep(time).await;
                0
            }
            None => surroundings.complain("sleep: no time", 1).await,
        },
        "sh" => match surroundings.args.as_slice() {
            [flag, script] if flag == "-c" => match script.strip_prefix("exit ") {
                Some(code) => code.trim().parse().unwrap_or(2),
                None => surroundings.complain("sh: can only exit", 2).await,
            },
            _ => surroundings.complain("sh: wants -c", 2).await,
        },
        _ => 1,
    }
}

async fn cat(surroundings: &mut Surroundings) -> i32 {
    if surroundings.args.is_empty() {
        while let Some(bytes) = surroundings.stdin.recv().await {
            surroundings.say(bytes).await;
        }
        return 0;
    }
    let mut code = 0;
    for path in surroundings.args.clone() {
        match surroundings.tree.get(&resolve(&surroundings.folder, &path)) {
            Ok(Some(body)) => surroundings.say(body.to_vec()).await,
            Ok(None) => {
                code = surroundings.complain(&format!("cat: {path}: Is a directory"), 1).await;
            }
            Err(_) => {
                let words = format!("cat: {path}: No such file or directory");
                code = surroundings.complain(&words, 1).await;
            }
        }
    }
    code
}

impl Surroundings {
    /// Nobody listening is no trouble to these programs.
    async fn say(&self, bytes: Vec<u8>) {
        let _ = self.output.send(Output::Stdout(bytes)).await;
    }

    async fn complain(&self, words: &str, code: i32) -> i32 {
        let _ = self.output.send(Output::Stderr(format!("{words}\n").into_bytes())).await;
        code
    }
}
