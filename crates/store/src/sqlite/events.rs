//! What happened: only ever appended to, and bounded by dropping the oldest.

use domain::Event;
use sqlx::{QueryBuilder, Sqlite, Transaction};

use super::{SqliteStore, failure};
use crate::{EventQuery, StoreError};

/// How many are kept.
pub(super) const MOST: i64 = 100_000;

/// What one may take: reasons come from outside.
const LARGEST: usize = 64 << 10;

/// What is being done, for errors.
const STEP: &str = "write down an event";

/// Why an event is not kept.
#[derive(Debug, thiserror::Error)]
#[error("it takes {bytes} bytes: the most is {LARGEST}")]
struct TooLarge {
    bytes: usize,
}

/// An event as it is kept.
pub(super) struct Written<'event> {
    event: &'event Event,
    record: String,
}

impl<'event> Written<'event> {
    pub(super) fn new(event: &'event Event) -> Result<Self, StoreError> {
        let record = serde_json::to_string(event).map_err(failure::of(STEP))?;
        if record.len() > LARGEST {
            return Err(failure::of(STEP)(TooLarge { bytes: record.len() }));
        }
        Ok(Self { event, record })
    }

    /// Appends it, as part of what else is written.
    pub(super) async fn append(
        self,
        transaction: &mut Transaction<'static, Sqlite>,
        most: i64,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO events (owner, sandbox, record) VALUES ($1, $2, $3)")
            .bind(&self.event.owner.0)
            .bind(self.event.sandbox.as_str())
            .bind(self.record)
            .execute(&mut **transaction)
            .await?;
        sqlx::query("DELETE FROM events WHERE sequence <= (SELECT MAX(sequence) FROM events) - $1")
            .bind(most)
            .execute(&mut **transaction)
            .await?;
        Ok(())
    }
}

impl SqliteStore {
    pub(super) async fn write_event(&self, event: &Event) -> Result<(), StoreError> {
        let event = Written::new(event)?;
        let write = async {
            let mut transaction = self.write().await?;
            event.append(&mut transaction, self.most_events).await?;
            transaction.commit().await
        };
        write.await.map_err(self.failure(STEP))
    }

    pub(super) async fn find_events(&self, query: &EventQuery) -> Result<Vec<Event>, StoreError> {
        let mut builder = QueryBuilder::<Sqlite>::new(
            "SELECT record FROM (SELECT sequence, record FROM events WHERE 1 = 1",
        );
        if let Some(owner) = &query.owner {
            builder.push(" AND owner = ").push_bind(&owner.0);
        }
        if let Some(sandbox) = &query.sandbox {
            builder.push(" AND sandbox = ").push_bind(sandbox.as_str());
        }
        builder.push(" ORDER BY sequence DESC LIMIT ");
        builder.push_bind(super::leases::count(query.limit.unwrap_or(u64::MAX)));
        builder.push(") AS newest ORDER BY sequence ASC");
        let step = "look for events";
        let records: Vec<String> = builder
            .build_query_scalar()
            .fetch_all(&self.readers)
            .await
            .map_err(self.failure(step))?;
        let read = |record: String| {
            // What is in it stays out of the error: a reader's complaint quotes what it met.
            serde_json::from_str(&record).map_err(|_| {
                failure::damaged(&self.path, "an event in it cannot be read".to_owned())
            })
        };
        records.into_iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use domain::{Happened, Owner, SandboxId, Timestamp};

    use super::*;

    #[tokio::test]
    async fn the_oldest_events_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _) = SqliteStore::open(&folder.path().join("soma.db")).await.unwrap();
        store.most_events = 10;
        for at in 0..25 {
            let event = Event {
                at: Timestamp(at),
                sandbox: SandboxId::from_random([0; 15]),
                owner: Owner::default(),
                actor: "local".to_owned(),
                happened: Happened::TimeoutSet { until: None },
            };
            store.write_event(&event).await.unwrap();
        }
        let kept = store.find_events(&EventQuery::default()).await.unwrap();
        assert_eq!(
            kept.iter().map(|event| event.at.0).collect::<Vec<_>>(),
            (15..25).collect::<Vec<_>>()
        );
        store.close().await;
    }
}
