//! Sandboxes, as far as they are searched for.
//!
//! A search reads indexes alone until it knows which records are on its page.

use domain::{Event, Lease, SandboxId, SandboxName};
use sqlx::{QueryBuilder, Sqlite, Transaction};

use super::events::Written;
use super::{SqliteStore, failure};
use crate::{LeaseQuery, Order, Page, Sort, StoreError};

/// How many labels are written at once: a statement takes about 32,000 values.
const BATCH: usize = 1000;

/// Up to how many labels each is a condition of its own, which finds a page soonest. Conditions
/// nest, and only so deep, so more of them are counted.
const FEW: usize = 32;

impl SqliteStore {
    pub(super) async fn write_lease(
        &self,
        lease: &Lease,
        event: Option<&Event>,
    ) -> Result<(), StoreError> {
        let step = "keep the record of a sandbox";
        let record = lease.to_text().map_err(failure::of(step))?;
        let event = event.map(Written::new).transpose()?;
        let outcome = self.try_write_lease(lease, record, event).await;
        outcome.map_err(|error| match (&lease.name, error.as_database_error()) {
            // An id that is there is no violation: its row is written over.
            (Some(name), Some(violation)) if violation.is_unique_violation() => {
                StoreError::NameTaken { name: name.clone() }
            }
            _ => self.failure(step)(error),
        })
    }

    async fn try_write_lease(
        &self,
        lease: &Lease,
        record: String,
        event: Option<Written<'_>>,
    ) -> Result<(), sqlx::Error> {
        let mut transaction = self.write().await?;
        sqlx::query(
            "INSERT INTO leases (id, owner, name, state, template, created_at, record) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET \
             owner = excluded.owner, name = excluded.name, state = excluded.state, \
             template = excluded.template, created_at = excluded.created_at, \
             record = excluded.record",
        )
        .bind(lease.id.as_str())
        .bind(&lease.owner.0)
        .bind(lease.name.as_ref().map(SandboxName::as_str))
        .bind(lease.state.name())
        .bind(&lease.template)
        .bind(lease.created_at.0)
        .bind(record)
        .execute(&mut *transaction)
        .await?;
        write_labels(&mut transaction, lease).await?;
        if let Some(event) = event {
            event.append(&mut transaction, self.most_events).await?;
        }
        transaction.commit().await
    }

    pub(super) async fn delete_lease(&self, id: &SandboxId) -> Result<(), StoreError> {
        // Its labels go with it.
        let deleted = sqlx::query("DELETE FROM leases WHERE id = $1")
            .bind(id.as_str())
            .execute(&self.writer)
            .await;
        deleted.map(drop).map_err(self.failure("forget a sandbox"))
    }

    pub(super) async fn find_leases(&self, query: &LeaseQuery) -> Result<Page<Lease>, StoreError> {
        let found = self.try_find_leases(query).await;
        let (records, total) = found.map_err(self.failure("look for sandboxes"))?;
        let read = |(id, record): (String, String)| {
            // What is in it stays out of the error: it may be a token.
            Lease::from_text(&record).map_err(|error| {
                failure::damaged(&self.path, format!("the record of sandbox `{id}`: {error}"))
            })
        };
        let items = records.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Page { items, total })
    }

    async fn try_find_leases(
        &self,
        query: &LeaseQuery,
    ) -> Result<(Vec<(String, String)>, u64), sqlx::Error> {
        // One transaction, so that the total is of the same moment as the page.
        let mut transaction = self.readers.begin().await?;
        let mut counting = QueryBuilder::new("SELECT COUNT(*) FROM leases");
        push_conditions(&mut counting, query);
        let total: i64 = counting
            .build_query_scalar()
            .persistent(query.labels.is_empty())
            .fetch_one(&mut *transaction)
            .await?;
        let mut paging = QueryBuilder::new(
            "SELECT leases.id, leases.record FROM (SELECT id, state, created_at FROM leases",
        );
        push_conditions(&mut paging, query);
        push_order(&mut paging, query, "");
        paging.push(" LIMIT ").push_bind(count(query.limit.unwrap_or(u64::MAX)));
        paging.push(" OFFSET ").push_bind(count(query.offset));
        paging.push(") AS page JOIN leases ON leases.id = page.id");
        push_order(&mut paging, query, "page.");
        let records = paging
            .build_query_as()
            .persistent(query.labels.is_empty())
            .fetch_all(&mut *transaction)
            .await?;
        Ok((records, u64::try_from(total).unwrap_or(0)))
    }
}

async fn write_labels(
    transaction: &mut Transaction<'static, Sqlite>,
    lease: &Lease,
) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM lease_labels WHERE lease = $1")
        .bind(lease.id.as_str())
        .execute(&mut **transaction)
        .await?;
    let labels: Vec<_> = lease.labels.iter().collect();
    for batch in labels.chunks(BATCH) {
        let mut builder = QueryBuilder::new("INSERT INTO lease_labels (lease, key, value) ");
        builder.push_values(batch, |mut row, (key, value)| {
            row.push_bind(lease.id.as_str()).push_bind(*key).push_bind(*value);
        });
        builder.build().persistent(false).execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Everything from outside is bound, never spelled.
fn push_conditions(builder: &mut QueryBuilder<Sqlite>, query: &LeaseQuery) {
    builder.push(" WHERE 1 = 1");
    if let Some(owner) = &query.owner {
        builder.push(" AND owner = ").push_bind(&owner.0);
    }
    if !query.states.is_empty() {
        builder.push(" AND state IN (");
        let mut states = builder.separated(", ");
        for state in &query.states {
            states.push_bind(state);
        }
        builder.push(")");
    }
    if let Some(template) = &query.template {
        builder.push(" AND template = ").push_bind(template);
    }
    if let Some(name) = &query.name {
        builder.push(" AND name = ").push_bind(name.as_str());
    }
    if let Some(prefix) = &query.prefix {
        // Ids have lowercase letters and digits, and a brace comes after all of them.
        builder.push(" AND id >= ").push_bind(prefix);
        builder.push(" AND id < ").push_bind(format!("{prefix}{{"));
    }
    if let Some(moment) = query.created_from {
        builder.push(" AND created_at >= ").push_bind(moment.0);
    }
    push_labels(builder, query);
}

fn push_labels(builder: &mut QueryBuilder<Sqlite>, query: &LeaseQuery) {
    if query.labels.len() <= FEW {
        for (key, value) in &query.labels {
            builder.push(" AND EXISTS (SELECT 1 FROM lease_labels WHERE lease = leases.id");
            builder.push(" AND key = ").push_bind(key);
            builder.push(" AND value = ").push_bind(value).push(")");
        }
        return;
    }
    builder.push(" AND id IN (SELECT lease FROM lease_labels WHERE (key, value) IN (");
    builder.push_values(&query.labels, |mut row, (key, value)| {
        row.push_bind(key).push_bind(value);
    });
    builder.push(") GROUP BY lease HAVING COUNT(*) = ");
    builder.push_bind(count(query.labels.len() as u64)).push(")");
}

fn push_order(builder: &mut QueryBuilder<Sqlite>, query: &LeaseQuery, table: &str) {
    let columns: &[&str] = match query.sort {
        Sort::CreatedAt => &["created_at", "id"],
        Sort::State => &["state", "created_at", "id"],
    };
    let direction = match query.order {
        Order::Ascending => "ASC",
        Order::Descending => "DESC",
    };
    builder.push(" ORDER BY ");
    let mut order = builder.separated(", ");
    for column in columns {
        order.push(format_args!("{table}{column} {direction}"));
    }
}

/// A number as the database has it. What does not fit is more than there can be.
pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
