//! A tree of files in memory.
//!
//! Nodes are kept by their absolute path; a folder is a node without a body.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use connectrpc::ConnectError;

#[derive(Debug)]
pub(super) struct Tree {
    nodes: Mutex<BTreeMap<String, Option<Bytes>>>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let folders = ["/", "/home", "/home/user", "/root", "/tmp", "/workspace"];
        let nodes = folders.map(|path| (path.to_owned(), None)).into_iter().collect();
        Self { nodes: Mutex::new(nodes) }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Option<Bytes>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is at a path: `None` for a folder, the body of a file.
    pub(super) fn get(&self, path: &str) -> Result<Option<Bytes>, ConnectError> {
        self.nodes().get(path).cloned().ok_or_else(|| missing(path))
    }

    pub(super) fn is_folder(&self, path: &str) -> bool {
        matches!(self.nodes().get(path), Some(None))
    }

    pub(super) fn write(&self, path: &str, body: Bytes) -> Result<(), ConnectError> {
        if self.is_folder(path) {
            return Err(ConnectError::invalid_argument(format!("path '{path}' is a directory")));
        }
        self.make_folder(parent(path))?;
        self.nodes().insert(path.to_owned(), Some(body));
        Ok(())
    }

    /// Makes a folder and those above it.
    pub(super) fn make_folder(&self, path: &str) -> Result<(), ConnectError> {
        if path != "/" {
            self.make_folder(parent(path))?;
        }
        match self.nodes().entry(path.to_owned()).or_insert(None) {
            None => Ok(()),
            Some(_) => Err(ConnectError::invalid_argument(format!("path '{path}' is a file"))),
        }
    }

    /// What lies below a folder, at most `depth` levels down, in the order of the paths.
    pub(super) fn below(&self, path: &str, depth: usize) -> Result<Vec<String>, ConnectError> {
        if self.get(path)?.is_some() {
            let message = format!("path '{path}' is not a directory");
            return Err(ConnectError::invalid_argument(message));
        }
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let near = |below: &&String| {
            below
                .strip_prefix(&prefix)
                .is_some_and(|rest| !rest.is_empty() && rest.split('/').count() <= depth)
        };
        Ok(self.nodes().keys().filter(near).cloned().collect())
    }

    pub(super) fn remove(&self, path: &str) {
        let prefix = format!("{path}/");
        self.nodes().retain(|node, _| node != path && !node.starts_with(&prefix));
    }

    pub(super) fn rename(&self, source: &str, destination: &str) -> Result<(), ConnectError> {
        self.get(source)?;
        self.make_folder(parent(destination))?;
        let prefix = format!("{source}/");
        let mut nodes = self.nodes();
        let moved: Vec<String> =
            nodes.keys().filter(|n| *n == source || n.starts_with(&prefix)).cloned().collect();
        for node in moved {
            if let Some(body) = nodes.remove(&node) {
                nodes.insert(node.replacen(source, destination, 1), body);
            }
        }
        Ok(())
    }
}

/// The absolute path that a request means, without `.`, `..` and doubled slashes.
pub(super) fn resolve(home: &str, path: &str) -> String {
    let joined = match path.strip_prefix('~').unwrap_or(path) {
        absolute if absolute.starts_with('/') && !path.starts_with('~') => absolute.to_owned(),
        relative => format!("{home}/{relative}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

fn missing(path: &str) -> ConnectError {
    ConnectError::not_found(format!("path '{path}' does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_home_and_cannot_leave_the_root() {
        assert_eq!(resolve("/home/user", "a//b/../c"), "/home/user/a/c");
        assert_eq!(resolve("/home/user", "~"), "/home/user");
        assert_eq!(resolve("/home/user", "~/x"), "/home/user/x");
        assert_eq!(resolve("/home/user", "/../../etc"), "/etc");
        assert_eq!(resolve("/home/user", ""), "/home/user");
    }
}
