//! Calls on code in kernels: contexts, executions, packages.

mod executing;

use guest_proto::code::{
    Answer, Begun, Complete, Completions, Context, Execute, Install, Installed, Items, NewContext,
    Summary,
};
use http::Method;

pub use executing::Executing;

use crate::sandboxes::{escaped, path};
use crate::{Client, ClientError};

impl Client {
    /// The contexts of a sandbox.
    pub async fn contexts(&self, which: &str) -> Result<Vec<Context>, ClientError> {
        let path = path(which, "/code/contexts");
        let items: Items<Context> = self.ask::<(), _>(Method::GET, &path, None).await?;
        Ok(items.items)
    }

    /// Makes a context.
    pub async fn create_context(
        &self,
        which: &str,
        wish: &NewContext,
    ) -> Result<Context, ClientError> {
        self.ask(Method::POST, &path(which, "/code/contexts"), Some(wish)).await
    }

    /// One context.
    pub async fn context(&self, which: &str, id: &str) -> Result<Context, ClientError> {
        self.ask::<(), _>(Method::GET, &context(which, id, ""), None).await
    }

    /// Deletes a context with its state.
    pub async fn delete_context(&self, which: &str, id: &str) -> Result<(), ClientError> {
        self.order::<()>(Method::DELETE, &context(which, id, ""), None).await
    }

    /// Gives a context a fresh kernel; its state is lost.
    pub async fn restart_context(&self, which: &str, id: &str) -> Result<Context, ClientError> {
        self.ask::<(), _>(Method::POST, &context(which, id, "/restart"), None).await
    }

    /// Interrupts what a context runs; its state is kept.
    pub async fn interrupt_context(&self, which: &str, id: &str) -> Result<Context, ClientError> {
        self.ask::<(), _>(Method::POST, &context(which, id, "/interrupt"), None).await
    }

    /// What could stand at a place of some code.
    pub async fn complete_code(
        &self,
        which: &str,
        id: &str,
        asked: &Complete,
    ) -> Result<Completions, ClientError> {
        self.ask(Method::POST, &context(which, id, "/complete"), Some(asked)).await
    }

    /// Runs code, and follows what happens. The execution goes on when what is returned is
    /// dropped.
    pub async fn execute(&self, which: &str, code: &Execute) -> Result<Executing, ClientError> {
        let code = Execute { detach: false, ..code.clone() };
        let path = path(which, "/code/executions");
        let answer = self.send(Method::POST, &path, Some(&code)).await?;
        Ok(Executing::begun(self.clone(), which, answer))
    }

    /// Runs code, and returns at once.
    pub async fn begin_execution(&self, which: &str, code: &Execute) -> Result<Begun, ClientError> {
        let code = Execute { detach: true, ..code.clone() };
        self.ask(Method::POST, &path(which, "/code/executions"), Some(&code)).await
    }

    /// Reads what happened in an execution from the event with this number on; with `follow`
    /// also what happens from now on.
    pub async fn follow_execution(
        &self,
        which: &str,
        id: &str,
        from: u64,
        follow: bool,
    ) -> Result<Executing, ClientError> {
        let answer = self.events_from(which, id, from, follow).await?;
        Ok(Executing::of(self.clone(), which, id, from, follow, answer))
    }

    /// The executions that are known of.
    pub async fn executions(&self, which: &str) -> Result<Vec<Summary>, ClientError> {
        let path = path(which, "/code/executions");
        let items: Items<Summary> = self.ask::<(), _>(Method::GET, &path, None).await?;
        Ok(items.items)
    }

    /// Cancels an execution, also one that waits for its turn.
    pub async fn cancel_execution(&self, which: &str, id: &str) -> Result<(), ClientError> {
        self.order::<()>(Method::DELETE, &execution(which, id, ""), None).await
    }

    /// Answers what an execution asks.
    pub async fn answer_execution(
        &self,
        which: &str,
        id: &str,
        text: &str,
    ) -> Result<(), ClientError> {
        let answer = Answer { text: text.to_owned() };
        self.order(Method::POST, &execution(which, id, "/input"), Some(&answer)).await
    }

    /// Installs packages. That they could not be installed is an answer, not an error.
    pub async fn install_packages(
        &self,
        which: &str,
        packages: &Install,
    ) -> Result<Installed, ClientError> {
        self.ask(Method::POST, &path(which, "/code/packages"), Some(packages)).await
    }

    async fn events_from(
        &self,
        which: &str,
        id: &str,
        from: u64,
        follow: bool,
    ) -> Result<crate::Answer, ClientError> {
        let path = execution(which, id, &format!("?from={from}&follow={follow}"));
        self.send::<()>(Method::GET, &path, None).await
    }
}

fn context(which: &str, id: &str, rest: &str) -> String {
    path(which, &format!("/code/contexts/{}{rest}", escaped(id)))
}

fn execution(which: &str, id: &str, rest: &str) -> String {
    path(which, &format!("/code/executions/{}{rest}", escaped(id)))
}
