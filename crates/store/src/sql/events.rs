//! What happened: only ever appended to, and bounded by dropping the oldest.

use domain::Event;

use super::{Database, Kind, Row, Statement, Value, failed};
use crate::{EventQuery, StoreError};

/// How many are kept.
pub(crate) const MOST: i64 = 100_000;

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

pub(super) async fn append(database: &impl Database, event: &Event) -> Result<(), StoreError> {
    let statements = appending(event, database.most_events())?;
    let written = database.write(statements.into()).await;
    written.map_err(|error| database.failure(STEP, error))
}

pub(super) async fn find(
    database: &impl Database,
    query: &EventQuery,
) -> Result<Vec<Event>, StoreError> {
    let mut statement = Statement::asking(
        "SELECT record FROM (SELECT sequence, record FROM events WHERE 1 = 1",
        &[Kind::Text],
    );
    if let Some(owner) = &query.owner {
        statement.push(" AND owner = ").push_value(&owner.0);
    }
    if let Some(sandbox) = &query.sandbox {
        statement.push(" AND sandbox = ").push_value(sandbox.as_str());
    }
    statement.push(" ORDER BY sequence DESC LIMIT ").push_value(query.limit.unwrap_or(u64::MAX));
    statement.push(") AS newest ORDER BY sequence ASC");
    let answers = database.read(vec![statement]).await;
    let answers = answers.map_err(|error| database.failure("look for events", error))?;
    let read = |row: Row| {
        let record = row.into_iter().next().map(Value::into_text).unwrap_or_default();
        // What is in it stays out of the error: a reader's complaint quotes what it met.
        serde_json::from_str(&record)
            .map_err(|_| database.damaged("an event in it cannot be read".to_owned()))
    };
    answers.into_iter().flatten().map(read).collect()
}

/// What appends an event, as part of what else is written.
pub(super) fn appending(event: &Event, most: i64) -> Result<[Statement; 2], StoreError> {
    let record = serde_json::to_string(event).map_err(failed(STEP))?;
    if record.len() > LARGEST {
        return Err(failed(STEP)(TooLarge { bytes: record.len() }));
    }
    Ok([
        Statement::new("INSERT INTO events (owner, sandbox, record) VALUES ($1, $2, $3)")
            .with(&event.owner.0)
            .with(event.sandbox.as_str())
            .with(record),
        Statement::new(
            "DELETE FROM events WHERE sequence <= (SELECT MAX(sequence) FROM events) - $1",
        )
        .with(most),
    ])
}
