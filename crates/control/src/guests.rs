//! The way into a sandbox.

use std::sync::Arc;

use domain::{Lease, SandboxId, State, Token};
use guest_proto::GuestClient;
use policy::{Action, Caller, Who};

use crate::sandbox::Handle;
use crate::{Control, ControlError, Reference};

impl Control {
    /// The guest of a sandbox, for a caller who may use it. Waits while the sandbox is being made.
    pub async fn guest(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<GuestClient, ControlError> {
        Ok(self.enter(caller, which).await?.1.1)
    }

    /// The same, for a request that carries what opens the guest itself, or does not need it.
    pub async fn guest_without_token(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<GuestClient, ControlError> {
        Ok(self.enter(caller, which).await?.1.0)
    }

    async fn enter(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<(Arc<Lease>, (GuestClient, GuestClient)), ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Use(lease))?;
        let lease = handle.awake(caller).await?;
        if !matches!(lease.state, State::Running(_)) {
            let (which, state) = (lease.id.to_string(), lease.state.clone());
            return Err(ControlError::WrongState { which, state });
        }
        let guests = self.guests(caller, &handle, &lease)?;
        Ok((lease, guests))
    }

    /// The clients are made once and shared: they keep connections for the next call.
    fn guests(
        &self,
        caller: &Caller,
        handle: &Handle,
        lease: &Lease,
    ) -> Result<(GuestClient, GuestClient), ControlError> {
        if let Some(guests) = handle.guests.get() {
            return Ok(guests.clone());
        }
        let permitted = self.shared.rules.decide(caller, Action::Use(lease), lease.id.clone())?;
        let plain = provider::guest(Arc::clone(&self.shared.provider), permitted);
        let opened = match &lease.spec.token {
            Some(token) => plain.with_token(token.reveal())?,
            None => plain.clone(),
        };
        Ok(handle.guests.get_or_init(|| (plain, opened)).clone())
    }

    /// Whether there is a sandbox with this id, whoever's it is. Ids cannot be guessed.
    pub fn is_there(&self, id: &SandboxId) -> bool {
        self.shared.registry.get(id).is_some()
    }

    /// Whoever shows the token of a sandbox may use it.
    pub fn caller_with_token(&self, id: &SandboxId, word: &str) -> Option<Caller> {
        let lease = self.shared.registry.get(id)?.lease();
        let token = lease.spec.token.as_ref()?;
        token.matches(word).then(|| bearer(&lease))
    }

    /// Whoever reaches a sandbox that asks for no token may use it.
    pub fn caller_of_open_sandbox(&self, id: &SandboxId) -> Option<Caller> {
        let lease = self.shared.registry.get(id)?.lease();
        (!lease.secure).then(|| bearer(&lease))
    }

    /// Whoever brings something that only the token of one of the sandboxes could have made, and
    /// which sandbox that is.
    pub fn caller_with_signature(
        &self,
        made_with: impl Fn(&Token) -> bool,
    ) -> Option<(SandboxId, Caller)> {
        let leases = self.shared.registry.all().into_iter().map(|handle| handle.lease());
        let mut made = leases.filter(|lease| lease.spec.token.as_ref().is_some_and(&made_with));
        let lease = made.next()?;
        Some((lease.id.clone(), bearer(&lease)))
    }
}

fn bearer(lease: &Lease) -> Caller {
    let who = Who::Token { sandbox: lease.id.clone() };
    Caller { who, owner: lease.owner.clone(), request: None }
}
