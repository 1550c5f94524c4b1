//! The tables, made and changed by the steps in `migrations/sqlite/`.

use sqlx::SqlitePool;
use sqlx::migrate::MigrateError;

use crate::sql::migrations::{self, Step};

/// Where sqlx writes down which steps were taken.
pub(super) const TABLE: &str = "_sqlx_migrations";

/// The last step that this Soma knows.
const NEWEST: i64 = STEPS[STEPS.len() - 1].0;

const STEPS: &[Step] = &[
    (1, "leases keys events", include_str!("../../migrations/sqlite/0001_leases_keys_events.sql")),
    (2, "no events", include_str!("../../migrations/sqlite/0002_no_events.sql")),
];

/// The tables that the steps make.
pub(super) const OWN: [&str; 3] = ["leases", "lease_labels", "api_keys"];

/// Whether these are the steps that were taken by a later Soma: it took all of ours before.
pub(super) fn is_later(taken: &[i64]) -> bool {
    let has_ours = STEPS.iter().all(|(version, ..)| taken.contains(version));
    has_ours && taken.iter().any(|version| *version > NEWEST)
}

/// Takes the steps that were not taken yet, each whole or not at all.
pub(super) async fn run(pool: &SqlitePool) -> Result<(), MigrateError> {
    migrations::migrator(STEPS).run(pool).await
}
