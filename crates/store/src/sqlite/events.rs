//! What happened: only ever appended to, and bounded by dropping the oldest.

use domain::Event;
use sqlx::{QueryBuilder, Sqlite};

use super::{SqliteStore, failure};
use crate::{EventQuery, StoreError};

/// How many are kept.
pub(super) const MOST: i64 = 100_000;

/// What one may take: reasons come from outside.
const LARGEST: usize = 64 << 10;

/// Why an event is not kept.
#[derive(Debug, thiserror::Error)]
#[error("it takes {bytes} bytes: the most is {LARGEST}")]
struct TooLarge {
    bytes: usize,
}

impl SqliteStore {
    pub(super) async fn write_event(&self, event: &Event) -> Result<(), StoreError> {
        let step = "write down an event";
        let record = serde_json::to_string(event).map_err(failure::of(step))?;
        if record.len() > LARGEST {
            return Err(failure::of(step)(TooLarge { bytes: record.len() }));
        }
        self.try_write_event(event, record).await.map_err(self.failure(step))
    }

    async fn try_write_event(&self, event: &Event, record: String) -> Result<(), sqlx::Error> {
        let mut transaction = self.write().await?;
        sqlx::query("INSERT INTO events (owner, sandbox, record) VALUES ($1, $2, $3)")
            .bind(&event.owner.0)
            .bind(event.sandbox.as_str())
            .bind(record)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM events WHERE sequence <= (SELECT MAX(sequence) FROM events) - $1")
            .bind(self.most_events)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
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
