//! Sandboxes, as far as they are searched for.
//!
//! A search reads indexes alone until it knows which records are on its page.

use domain::{Lease, SandboxId, SandboxName};

use super::{Database, Kind, Row, Statement, Value, failed};
use crate::{LeaseQuery, Order, Page, Sort, StoreError, Unreadable};

/// How many labels are written at once: a statement takes about 32,000 values.
const BATCH: usize = 1000;

/// Up to how many labels each is a condition of its own, which finds a page soonest. Conditions
/// nest, and only so deep, so more of them are counted.
const FEW: usize = 32;

pub(super) async fn put(database: &impl Database, lease: &Lease) -> Result<(), StoreError> {
    let step = "keep the record of a sandbox";
    let record = lease.to_text().map_err(failed(step))?;
    let mut statements = vec![keeping(lease, record)];
    statements.extend(labelling(lease));
    let written = database.write(statements).await;
    written.map_err(|error| match (&lease.name, error.as_database_error()) {
        // An id that is there is no violation: its row is written over.
        (Some(name), Some(violation)) if violation.is_unique_violation() => {
            StoreError::NameTaken { name: name.clone() }
        }
        _ => database.failure(step, error),
    })
}

pub(super) async fn remove(database: &impl Database, id: &SandboxId) -> Result<(), StoreError> {
    // Its labels go with it.
    let statement = Statement::new("DELETE FROM leases WHERE id = $1").with(id.as_str());
    let deleted = database.write(vec![statement]).await;
    deleted.map_err(|error| database.failure("forget a sandbox", error))
}

pub(super) async fn find(
    database: &impl Database,
    query: &LeaseQuery,
) -> Result<Page<Lease>, StoreError> {
    let answers = database.read(vec![counting(query), paging(query)]).await;
    let answers = answers.map_err(|error| database.failure("look for sandboxes", error))?;
    let mut answers = answers.into_iter();
    let total = answers.next().and_then(|rows| Some(rows.first()?.first()?.number()));
    let (mut items, mut unreadable) = (Vec::new(), Vec::new());
    for row in answers.flatten() {
        match read(row) {
            Ok(lease) => items.push(lease),
            Err(row) => unreadable.push(row),
        }
    }
    let total = total.and_then(|total| u64::try_from(total).ok()).unwrap_or(0);
    Ok(Page { items, total, unreadable })
}

fn read(row: Row) -> Result<Lease, Unreadable> {
    let mut row = row.into_iter().map(Value::into_text);
    let (id, record) = (row.next().unwrap_or_default(), row.next().unwrap_or_default());
    match Lease::from_text(&record) {
        Ok(lease) if lease.id.as_str() == id => Ok(lease),
        Ok(_) => Err(Unreadable { id, reason: "it is another sandbox's".to_owned() }),
        Err(error) => Err(Unreadable { id, reason: error.to_string() }),
    }
}

fn keeping(lease: &Lease, record: String) -> Statement {
    Statement::new(
        "INSERT INTO leases (id, owner, name, state, template, created_at, record) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET \
         owner = excluded.owner, name = excluded.name, state = excluded.state, \
         template = excluded.template, created_at = excluded.created_at, \
         record = excluded.record",
    )
    .with(lease.id.as_str())
    .with(&lease.owner.0)
    .with(lease.name.as_ref().map(SandboxName::as_str))
    .with(lease.state.name())
    .with(&lease.template)
    .with(lease.created_at.0)
    .with(record)
}

fn labelling(lease: &Lease) -> Vec<Statement> {
    let forget = "DELETE FROM lease_labels WHERE lease = $1";
    let mut statements = vec![Statement::new(forget).with(lease.id.as_str())];
    let labels: Vec<_> = lease.labels.iter().collect();
    for batch in labels.chunks(BATCH) {
        let mut statement =
            Statement::new("INSERT INTO lease_labels (lease, key, value) VALUES ").rare();
        statement.push_each(batch, |statement, (key, value)| {
            statement.push("(").push_value(lease.id.as_str());
            statement.push(", ").push_value(*key);
            statement.push(", ").push_value(*value).push(")");
        });
        statements.push(statement);
    }
    statements
}

fn counting(query: &LeaseQuery) -> Statement {
    let mut statement = asking(query, "SELECT COUNT(*) FROM leases", &[Kind::Number]);
    push_conditions(&mut statement, query);
    statement
}

fn paging(query: &LeaseQuery) -> Statement {
    let mut statement = asking(
        query,
        "SELECT leases.id, leases.record FROM (SELECT id, state, created_at FROM leases",
        &[Kind::Text, Kind::Text],
    );
    push_conditions(&mut statement, query);
    push_order(&mut statement, query, "");
    statement.push(" LIMIT ").push_value(query.limit.unwrap_or(u64::MAX));
    statement.push(" OFFSET ").push_value(query.offset);
    statement.push(") AS page JOIN leases ON leases.id = page.id");
    push_order(&mut statement, query, "page.");
    statement
}

fn asking(query: &LeaseQuery, sql: &'static str, columns: &'static [Kind]) -> Statement {
    let statement = Statement::asking(sql, columns);
    if query.labels.is_empty() { statement } else { statement.rare() }
}

fn push_conditions(statement: &mut Statement, query: &LeaseQuery) {
    statement.push(" WHERE 1 = 1");
    if let Some(owner) = &query.owner {
        statement.push(" AND owner = ").push_value(&owner.0);
    }
    if !query.states.is_empty() {
        statement.push(" AND state IN (");
        statement.push_each(&query.states, |statement, state| {
            statement.push_value(state);
        });
        statement.push(")");
    }
    if let Some(template) = &query.template {
        statement.push(" AND template = ").push_value(template);
    }
    if let Some(name) = &query.name {
        statement.push(" AND name = ").push_value(name.as_str());
    }
    if let Some(prefix) = &query.prefix {
        // Ids have lowercase letters and digits, and a brace comes after all of them.
        statement.push(" AND id >= ").push_value(prefix);
        statement.push(" AND id < ").push_value(format!("{prefix}{{"));
    }
    if let Some(moment) = query.created_from {
        statement.push(" AND created_at >= ").push_value(moment.0);
    }
    push_labels(statement, query);
}

fn push_labels(statement: &mut Statement, query: &LeaseQuery) {
    if query.labels.len() <= FEW {
        for (key, value) in &query.labels {
            statement.push(" AND EXISTS (SELECT 1 FROM lease_labels WHERE lease = leases.id");
            statement.push(" AND key = ").push_value(key);
            statement.push(" AND value = ").push_value(value).push(")");
        }
        return;
    }
    statement.push(" AND id IN (SELECT lease FROM lease_labels WHERE (key, value) IN (VALUES ");
    statement.push_each(&query.labels, |statement, (key, value)| {
        statement.push("(").push_value(key).push(", ").push_value(value).push(")");
    });
    statement.push(") GROUP BY lease HAVING COUNT(*) = ");
    statement.push_value(query.labels.len() as u64).push(")");
}

fn push_order(statement: &mut Statement, query: &LeaseQuery, table: &'static str) {
    let columns: &[&str] = match query.sort {
        Sort::CreatedAt => &["created_at", "id"],
        Sort::State => &["state", "created_at", "id"],
    };
    let direction = match query.order {
        Order::Ascending => " ASC",
        Order::Descending => " DESC",
    };
    statement.push(" ORDER BY ").push_each(columns, |statement, column| {
        statement.push(table).push(column).push(direction);
    });
}
