//! The tables, made and changed by the steps in `migrations/`.

use std::borrow::Cow;
use std::path::Path;

use sqlx::SqlSafeStr;
use sqlx::SqlitePool;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::failure;
use crate::StoreError;

/// Where sqlx writes down which steps were taken.
pub(super) const TABLE: &str = "_sqlx_migrations";

/// The last step that this Soma knows.
pub(super) const NEWEST: i64 = STEPS[STEPS.len() - 1].0;

/// Version, description, and what is done.
const STEPS: &[(i64, &str, &str)] =
    &[(1, "leases keys events", include_str!("../../migrations/0001_leases_keys_events.sql"))];

/// Takes the steps that were not taken yet, each whole or not at all.
pub(super) async fn run(pool: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    let steps = STEPS.iter().map(|&(version, description, sql)| {
        let description = Cow::Borrowed(description);
        Migration::new(version, description, MigrationType::Simple, sql.into_sql_str(), false)
    });
    match Migrator::with_migrations(steps.collect()).run(pool).await {
        Ok(()) => Ok(()),
        Err(MigrateError::VersionMissing(version)) if version > NEWEST => {
            Err(StoreError::Later { path: path.display().to_string() })
        }
        Err(MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_)) => {
            let reason = "its tables were not made by a released soma: move it away";
            Err(failure::damaged(path, reason.to_owned()))
        }
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(failure::in_file(path, "make the tables", error))
        }
        Err(error) => Err(failure::of("make the tables")(error)),
    }
}
