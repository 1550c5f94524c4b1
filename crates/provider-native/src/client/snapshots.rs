//! Snapshots: taken, seen, removed, and sandboxes brought back to them.

use domain::{Origin, SandboxId, SandboxSpec, SnapshotId};
use provider::{Condition, Observed, Provider as _, ProviderError, Snapshot, SnapshotKind};

use super::{NativeProvider, checked, odd};
use crate::snapshot::{Keeping, Wanted};
use crate::verbs::{Answer, ListedSnapshot, Verb};

impl NativeProvider {
    pub(super) async fn take_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        kind: SnapshotKind,
        record: &str,
    ) -> Result<(), ProviderError> {
        let keeping = if kind.passing { Keeping::Step } else { Keeping::Wanted };
        let (memory, record) = (kind.memory, checked(record)?);
        let wanted = Wanted { id: snapshot.clone(), memory, keeping, record };
        self.ask(Verb::Capture { id: id.clone(), wanted }, Some(id)).await?;
        Ok(())
    }

    pub(super) async fn all_snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        let all = match self.ask(Verb::Snapshots, None).await?.0 {
            Answer::Snapshots(all) => all,
            other => return Err(odd(&other)),
        };
        let mut snapshots = Vec::with_capacity(all.len());
        for ListedSnapshot { id, memory, bytes, layers, sandboxes } in all {
            match self.ask(Verb::ReadSnapshot { id: id.clone() }, None).await {
                Ok((Answer::Record(record), _)) => {
                    let record = record.0;
                    snapshots.push(Snapshot { id, record, memory, bytes, layers, sandboxes });
                }
                Ok((other, _)) => return Err(odd(&other)),
                // It is gone by now.
                Err(ProviderError::NoSnapshot { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(snapshots)
    }

    pub(super) async fn bring_back(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        origin: &Origin,
    ) -> Result<Observed, ProviderError> {
        self.streams.cut(id);
        self.ask(Verb::Stop { id: id.clone() }, Some(id)).await?;
        let verb = Verb::RollBack { id: id.clone(), origin: origin.snapshot.clone() };
        self.ask(verb, Some(id)).await?;
        let back = SandboxSpec { origin: Some(origin.clone()), ..spec.clone() };
        self.bring_up(id, &back).await
    }

    /// Has a sandbox run that was made from a snapshot and does not.
    pub(super) async fn bring_up(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        let (timeout, reserves) = (spec.limits.timeout, self.reserves);
        let verb = match self.inspect(id).await?.condition {
            Condition::Running => None,
            Condition::Paused(_) => Some(Verb::Resume { id: id.clone(), timeout, reserves }),
            Condition::Ended(_) => Some(Verb::Start { id: id.clone(), timeout, reserves }),
        };
        if let Some(verb) = verb {
            self.ask(verb, Some(id)).await?;
        }
        let authority = self.authority(id, spec).await?;
        self.introduce(id, spec, authority.as_ref()).await?;
        self.inspect(id).await
    }
}
