//! What a sandbox may use, changed while it runs.

use std::sync::Arc;

use domain::{Happened, Lease};
use policy::{Action, Caller};

use super::{Command, Handle, Task};
use crate::{ControlError, LimitChange};

impl Handle {
    pub(crate) async fn limit(
        &self,
        caller: Caller,
        change: LimitChange,
    ) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Limit { caller, change, answer }).await
    }
}

impl Task {
    /// Has the provider change it first: what is written down is what holds.
    pub(super) async fn limit(
        &mut self,
        caller: &Caller,
        change: LimitChange,
    ) -> Result<Arc<Lease>, ControlError> {
        self.go_on(caller).await?;
        let limits = change.applied_to(&self.lease.spec.limits).check()?;
        let action = Action::Limit(&self.lease, &limits);
        let permitted = self.shared.rules.decide(caller, action, self.lease.id.clone())?;
        self.shared.provider.limit(&permitted, &limits).await?;
        self.lease.spec.limits = limits.clone();
        self.keep().await?;
        self.tell(caller, Happened::LimitsSet { limits });
        Ok(Arc::clone(&self.published.borrow()))
    }
}
