//! Requests that can be repeated when their answer was lost.
//!
//! Whoever sends a key along gets one sandbox for it, however often they ask. The sandbox's id
//! follows from the key, so that also a provider that is still at the first request, and whose
//! daemon died meanwhile, cannot make two.

use std::sync::Arc;

use domain::{Asked, Lease, Owner, SandboxId, State, Token};
use policy::{Action, Caller};
use provider::ProviderError;
use sha2::{Digest, Sha256};

use crate::{Control, ControlError, Wish, sandbox};

/// The most that a key may have.
const LONGEST: usize = 255;

/// How a request with this key is known again; `wish` is what it asks for, always spelt alike.
pub fn asked(key: &str, wish: &[u8]) -> Asked {
    let print = Sha256::digest(wish);
    let spelt = Token::from_random(&print[..16]);
    Asked { key: key.to_owned(), wish: spelt.reveal().to_owned() }
}

impl Control {
    /// The sandbox that this was asked for before, or a new one.
    pub(crate) async fn create_once(
        &self,
        caller: &Caller,
        wish: Wish,
        asked: Asked,
    ) -> Result<Arc<Lease>, ControlError> {
        check(&asked.key)?;
        let id = self.id_for(&caller.owner, &asked.key);
        loop {
            // By its key, and not by the id that follows from it: a home's secret may be lost.
            let known = self.shared.registry.asked_for(&caller.owner, &asked.key);
            if let Some(handle) = known.or_else(|| self.shared.registry.get(&id)) {
                let lease = handle.settled().await;
                self.shared.rules.decide(caller, Action::See(&lease), ())?;
                if lease.asked.as_ref().is_some_and(|before| before.wish != asked.wish) {
                    return Err(ControlError::KeyReused { key: asked.key });
                }
                match lease.state {
                    // It could not be made, and nothing of it is left.
                    State::Starting(_) | State::Deleted(_) => {}
                    State::Deleting(_) => {
                        let (which, state) = (lease.id.to_string(), lease.state.clone());
                        return Err(ControlError::WrongState { which, state });
                    }
                    _ => return Ok(lease),
                }
                tokio::task::yield_now().await;
                continue;
            }
            match self.shared.provider.inspect(&id).await {
                // Made for a daemon that did not live to answer.
                Ok(_) => {
                    self.reconcile().await?;
                    continue;
                }
                Err(ProviderError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let wish = self.with_template(caller, wish.clone()).await?;
            let (mut lease, spec) = self.plan(caller, wish, id.clone())?;
            lease.asked = Some(asked.clone());
            match sandbox::begin(&self.shared, caller, lease, spec) {
                // Somebody was faster with the same request.
                Err(ControlError::Exists { .. }) => {}
                begun => return begun?.made().await,
            }
        }
    }

    /// What nobody can guess who does not know this home's secret.
    fn id_for(&self, owner: &Owner, key: &str) -> SandboxId {
        let mut hash = Sha256::new();
        hash.update(self.shared.secret);
        hash.update((owner.0.len() as u64).to_le_bytes());
        hash.update(&owner.0);
        hash.update(key);
        let mut bytes = [0; 15];
        bytes.copy_from_slice(&hash.finalize()[..15]);
        SandboxId::from_random(bytes)
    }
}

fn check(key: &str) -> Result<(), ControlError> {
    if (1..=LONGEST).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let reason = format!(
        "an idempotency key has 1 to {LONGEST} letters, digits and signs of ASCII: send a UUID"
    );
    Err(ControlError::Invalid { reason })
}
