//! How a sandbox comes to be, or leaves nothing when it cannot.

use std::sync::Arc;

use domain::{Event, Happened, Lease, SandboxSpec, State};
use policy::{Caller, Permitted};
use tracing::warn;

use super::{Answer, Task};
use crate::{ControlError, now};

impl Task {
    pub(super) async fn make(
        mut self,
        caller: Caller,
        spec: Permitted<SandboxSpec>,
        answer: Answer<Arc<Lease>>,
    ) {
        match self.try_to_make(&caller, &spec).await {
            Ok(()) => {
                let made = Arc::clone(&self.published.borrow());
                let indexing = Arc::clone(&self.shared.indexing).read_owned().await;
                let is_lost = answer.send(Ok(made)).is_err();
                self.index().await;
                drop(indexing);
                if is_lost && self.lease.asked.is_none() {
                    // Whoever asked went away, knows no id and has no way to ask for it again.
                    if let Err(error) = self.delete(&Caller::soma()).await {
                        warn!(sandbox = %self.lease.id, %error, "nobody's sandbox stays for now");
                    } else {
                        return;
                    }
                }
                self.serve().await;
            }
            Err(error) => {
                self.unmake().await;
                let reason = Event::words_of(&error);
                self.tell(&caller, Happened::CreationFailed { reason });
                let _ = answer.send(Err(error));
            }
        }
    }

    async fn try_to_make(
        &mut self,
        caller: &Caller,
        spec: &Permitted<SandboxSpec>,
    ) -> Result<(), ControlError> {
        let (template, name) = (self.lease.template.clone(), self.lease.name.clone());
        self.tell(caller, Happened::CreationAsked { template, name });
        let record = self.lease.to_text()?;
        // The intent is in the folder that the provider makes; the index may learn of it meanwhile.
        let (indexed, created) = tokio::join!(
            self.shared.put(&self.lease),
            self.shared.provider.create(&self.lease.id, spec, &record)
        );
        let seen = created?;
        indexed?;
        let made = now();
        self.lease.unenforced = seen.unenforced;
        self.lease.missing_layers = seen.missing_layers;
        self.lease.until = self.lease.spec.limits.timeout.map(|timeout| made.after(timeout));
        let State::Starting(starting) = self.lease.state.clone() else {
            return Err(ControlError::Closing);
        };
        let was_copied = self.lease.spec.origin.take().is_some();
        if self.lease.asked.is_some() || was_copied {
            // A copy is told once what is new in it. Any other may be one that an earlier daemon
            // asked for and did not live to answer for: then the record that is there is another.
            self.keep().await?;
        }
        self.become_known(State::Running(starting.ready()), made, caller);
        Ok(())
    }

    /// Leaves nothing of a sandbox that could not be made.
    async fn unmake(&mut self) {
        let id = self.lease.id.clone();
        let destroyed = match self.permit(&Caller::soma()) {
            Ok(permitted) => self.shared.provider.destroy(&permitted).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        if let Err(error) = destroyed {
            warn!(sandbox = %id, %error, "what could not be made could not be removed");
        }
        if let Err(error) = self.shared.forget(&id).await {
            warn!(sandbox = %id, %error, "the store still has what could not be made");
        }
        self.shared.registry.remove(&self.lease);
    }
}
