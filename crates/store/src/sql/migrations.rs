//! The steps that make and change the tables, as far as every database takes them alike.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::failed;
use crate::StoreError;

/// Version, description, and what is done.
pub(crate) type Step = (i64, &'static str, &'static str);

/// What is being done, for errors.
const STEP: &str = "make the tables";

/// What takes the steps that were not taken yet, each whole or not at all.
pub(crate) fn migrator(steps: &[Step]) -> Migrator {
    let steps = steps.iter().map(|&(version, description, sql)| {
        let description = Cow::Borrowed(description);
        Migration::new(version, description, MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(steps.collect())
}

/// What a failure of a step is to the caller.
pub(crate) fn failure(
    error: MigrateError,
    name: &str,
    steps: &[Step],
    own: impl Fn(&'static str, sqlx::Error) -> StoreError,
) -> StoreError {
    let newest = steps.last().map_or(0, |(version, ..)| *version);
    match error {
        MigrateError::VersionMissing(version) if version > newest => {
            StoreError::Later { name: name.to_owned() }
        }
        MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_) => {
            let reason = "its tables were not made by a released soma: use another database";
            StoreError::Damaged { name: name.to_owned(), reason: reason.to_owned() }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => own(STEP, error),
        error => failed(STEP)(error),
    }
}
