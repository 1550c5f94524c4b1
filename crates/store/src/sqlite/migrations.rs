//! The tables, made and changed by the steps in `migrations/sqlite/`.

use std::path::Path;

use sqlx::SqlitePool;

use super::failure;
use crate::StoreError;
use crate::sql::migrations::{self, Step};

/// Where sqlx writes down which steps were taken.
pub(super) const TABLE: &str = "_sqlx_migrations";

/// The last step that this Soma knows.
pub(super) const NEWEST: i64 = STEPS[STEPS.len() - 1].0;

const STEPS: &[Step] = &[
    (1, "leases keys events", include_str!("../../migrations/sqlite/0001_leases_keys_events.sql")),
    (2, "no events", include_str!("../../migrations/sqlite/0002_no_events.sql")),
];

/// Takes the steps that were not taken yet, each whole or not at all.
pub(super) async fn run(pool: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    migrations::migrator(STEPS).run(pool).await.map_err(|error| {
        let name = path.display().to_string();
        migrations::failure(error, &name, STEPS, |step, error| failure::in_file(path, step, error))
    })
}
