//! Migrations: create the schema and bring it up to date. One process at a time applies them.
//!
//! Programs of two builds use one schema while an upgrade is rolled out. The names of functions end in the number of
//! their interface. A migration that changes a function creates a new set of all functions, keeps the previous set for
//! programs that are still running, and drops the set before that. It is refused while a worker is joined that calls
//! functions of the dropped set.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use outlast_core::takeover::CRASH_CLASS_MAX;
use outlast_core::{Backoff, WorldError};
use tokio_postgres::error::SqlState;

use crate::connection::connector::{Connector, pause_before_retry};
use crate::connection::database::{CallError, Database};
use crate::connection::io_runtime::IoRuntime;
use crate::connection::preflight::{PoolOwner, check_server};
use crate::connection::url::parse;
use crate::error::{is_conflict, is_lock_timeout, postgres_error};
use crate::options::{Migrate, PostgresOptions};
use crate::schema::holder_columns::fill_placeholders;
use crate::schema::statements::{Statements, channel, function_suffix, quoted};

/// One migration of the schema.
struct Migration {
    /// The newest interface after this migration.
    interface: u32,
    /// Tables, columns and small indexes. They are created in the migration's transaction, before the functions.
    tables: &'static [&'static str],
    /// All functions, whose names end in `{v}`, in several lists: those that all migrations share, and changed ones.
    functions: &'static [&'static [&'static str]],
    /// Indexes that are built concurrently, after the transaction.
    indexes: &'static [&'static str],
}

/// All migrations, in order. Append-only.
const MIGRATIONS: &[Migration] = &[
    Migration {
        interface: 1,
        tables: TABLES,
        functions: &[FUNCTIONS, FUNCTIONS_UNTIL_2, &[include_str!("../../migrations/0001/180_join.sql")]],
        indexes: &[],
    },
    Migration {
        interface: 2,
        tables: &[include_str!("../../migrations/0002/010_sessions_version.sql")],
        functions: &[FUNCTIONS, FUNCTIONS_UNTIL_2, &[include_str!("../../migrations/0002/180_join.sql")]],
        indexes: &[],
    },
    Migration {
        interface: 3,
        tables: TABLES_OF_3,
        functions: &[FUNCTIONS, FUNCTIONS_OF_3, &[include_str!("../../migrations/0002/180_join.sql")]],
        indexes: INDEXES_OF_3,
    },
];

/// How long a migration waits for a lock on a table. Other statements queue behind its request. If another transaction
/// holds the table for longer, for example a dump, the migration gives up its request and tries again later.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// The pauses before a migration is tried again.
const LOCK_BACKOFF: Backoff = Backoff::constant(Duration::from_millis(650));

/// How often a migration is tried: for some minutes.
const MIGRATION_TRIES_MAX: u32 = 400;

/// The tables of the first migration.
const TABLES: &[&str] = &[
    include_str!("../../migrations/0001/010_runs.sql"),
    include_str!("../../migrations/0001/011_runs_key.sql"),
    include_str!("../../migrations/0001/012_runs_ready.sql"),
    include_str!("../../migrations/0001/014_runs_ends_without_code.sql"),
    include_str!("../../migrations/0001/015_runs_overdue.sql"),
    include_str!("../../migrations/0001/016_runs_held.sql"),
    include_str!("../../migrations/0001/017_runs_unread.sql"),
    include_str!("../../migrations/0001/019_runs_by_status.sql"),
    include_str!("../../migrations/0001/020_runs_by_workflow.sql"),
    include_str!("../../migrations/0001/021_runs_by_parent.sql"),
    include_str!("../../migrations/0001/022_runs_by_root.sql"),
    include_str!("../../migrations/0001/030_tags.sql"),
    include_str!("../../migrations/0001/031_tags_by_value.sql"),
    include_str!("../../migrations/0001/040_turns.sql"),
    include_str!("../../migrations/0001/041_events.sql"),
    include_str!("../../migrations/0001/050_inbox.sql"),
    include_str!("../../migrations/0001/060_sessions.sql"),
    include_str!("../../migrations/0001/061_heartbeats.sql"),
    include_str!("../../migrations/0001/070_counts.sql"),
    include_str!("../../migrations/0001/071_skew.sql"),
    include_str!("../../migrations/0001/072_leftovers.sql"),
    include_str!("../../migrations/0001/073_settings.sql"),
    include_str!("../../migrations/0001/074_settings_row.sql"),
    include_str!("../../migrations/0001/075_unmerged.sql"),
];

/// The functions that are the same in every migration.
const FUNCTIONS: &[&str] = &[
    include_str!("../../migrations/0001/100_clock.sql"),
    include_str!("../../migrations/0001/101_boot.sql"),
    include_str!("../../migrations/0001/110_count.sql"),
    include_str!("../../migrations/0001/111_widen.sql"),
    include_str!("../../migrations/0001/112_put_tags.sql"),
    include_str!("../../migrations/0001/113_count_move.sql"),
    include_str!("../../migrations/0001/114_merge.sql"),
    include_str!("../../migrations/0001/119_forget.sql"),
    include_str!("../../migrations/0001/120_check_rules.sql"),
    include_str!("../../migrations/0001/122_put_starts.sql"),
    include_str!("../../migrations/0001/139_start_one.sql"),
    include_str!("../../migrations/0001/140_start.sql"),
    include_str!("../../migrations/0001/150_send.sql"),
    include_str!("../../migrations/0001/156_turns_of.sql"),
    include_str!("../../migrations/0001/157_deliver.sql"),
    include_str!("../../migrations/0001/158_lock_runs.sql"),
    include_str!("../../migrations/0001/164_line.sql"),
    include_str!("../../migrations/0001/165_lines.sql"),
    include_str!("../../migrations/0001/166_choose.sql"),
    include_str!("../../migrations/0001/166_choose_overdue.sql"),
    include_str!("../../migrations/0001/167_ready.sql"),
    include_str!("../../migrations/0001/168_give.sql"),
    include_str!("../../migrations/0001/169_next_due.sql"),
    include_str!("../../migrations/0001/169_next_due_of.sql"),
    include_str!("../../migrations/0001/170_claim.sql"),
    include_str!("../../migrations/0001/171_claim_one.sql"),
    include_str!("../../migrations/0001/178_lock_key.sql"),
    include_str!("../../migrations/0001/179_refresh_rules.sql"),
    include_str!("../../migrations/0001/181_beat.sql"),
    include_str!("../../migrations/0001/181_put_details.sql"),
    include_str!("../../migrations/0001/182_failed_with.sql"),
    include_str!("../../migrations/0001/184_end_session.sql"),
    include_str!("../../migrations/0001/185_leave.sql"),
    include_str!("../../migrations/0001/185_remove_session.sql"),
    include_str!("../../migrations/0001/185_takeover.sql"),
    include_str!("../../migrations/0001/187_sweep.sql"),
    include_str!("../../migrations/0001/189_sweep_leftovers.sql"),
    include_str!("../../migrations/0001/190_hint.sql"),
    include_str!("../../migrations/0001/191_base32.sql"),
    include_str!("../../migrations/0001/192_new_bits.sql"),
    include_str!("../../migrations/0001/193_digest.sql"),
    include_str!("../../migrations/0001/194_hex.sql"),
    include_str!("../../migrations/0001/195_check_payload.sql"),
    include_str!("../../migrations/0001/195_stored.sql"),
    include_str!("../../migrations/0001/196_start_run.sql"),
    include_str!("../../migrations/0001/197_send_to.sql"),
    include_str!("../../migrations/0001/198_compact.sql"),
    include_str!("../../migrations/0001/198_start_run_json.sql"),
    include_str!("../../migrations/0001/198_start_run_jsonb.sql"),
    include_str!("../../migrations/0001/199_send_to_json.sql"),
    include_str!("../../migrations/0001/199_send_to_jsonb.sql"),
];

/// Functions that migration 3 changes, as they were before.
const FUNCTIONS_UNTIL_2: &[&str] = &[
    include_str!("../../migrations/0001/121_free_keys.sql"),
    include_str!("../../migrations/0001/149_put_messages.sql"),
    include_str!("../../migrations/0001/159_commit_one.sql"),
    include_str!("../../migrations/0001/160_commit.sql"),
    include_str!("../../migrations/0001/183_free.sql"),
    include_str!("../../migrations/0001/186_resume.sql"),
    include_str!("../../migrations/0001/188_prune.sql"),
];

/// The tables and columns of migration 3.
const TABLES_OF_3: &[&str] = &[
    include_str!("../../migrations/0003/010_runs_marks.sql"),
    include_str!("../../migrations/0003/012_runs_replay_from.sql"),
    include_str!("../../migrations/0003/013_runs_continued.sql"),
    include_str!("../../migrations/0003/014_runs_retrying.sql"),
    include_str!("../../migrations/0003/015_runs_failure.sql"),
    include_str!("../../migrations/0003/016_runs_fingerprint.sql"),
    include_str!("../../migrations/0003/030_streams.sql"),
    include_str!("../../migrations/0003/031_stream_writers.sql"),
    include_str!("../../migrations/0003/032_chunks.sql"),
    include_str!("../../migrations/0003/033_states.sql"),
    include_str!("../../migrations/0003/034_chunk_leftovers.sql"),
    include_str!("../../migrations/0003/035_forget_streams.sql"),
    include_str!("../../migrations/0003/036_runs_deleted.sql"),
    include_str!("../../migrations/0003/037_tokens.sql"),
    include_str!("../../migrations/0003/038_tokens_by_run.sql"),
    include_str!("../../migrations/0003/039_tokens_kept.sql"),
    include_str!("../../migrations/0003/040_replies.sql"),
    include_str!("../../migrations/0003/041_replies_by_time.sql"),
    include_str!("../../migrations/0003/042_forget_tokens.sql"),
    include_str!("../../migrations/0003/043_runs_deleted_tokens.sql"),
    include_str!("../../migrations/0003/044_records.sql"),
    include_str!("../../migrations/0003/045_record_counts.sql"),
];

/// The indexes of migration 3.
const INDEXES_OF_3: &[&str] = &[
    include_str!("../../migrations/0003/011_runs_marked.sql"),
    include_str!("../../migrations/0003/017_runs_by_fingerprint.sql"),
    include_str!("../../migrations/0003/018_runs_failed.sql"),
    include_str!("../../migrations/0003/019_runs_retrying.sql"),
    include_str!("../../migrations/0003/020_runs_cancelling.sql"),
];

/// The functions that migration 3 changes or adds.
const FUNCTIONS_OF_3: &[&str] = &[
    include_str!("../../migrations/0003/121_free_keys.sql"),
    include_str!("../../migrations/0003/149_put_messages.sql"),
    include_str!("../../migrations/0003/159_commit_one.sql"),
    include_str!("../../migrations/0003/160_commit.sql"),
    include_str!("../../migrations/0003/183_free.sql"),
    include_str!("../../migrations/0003/186_resume.sql"),
    include_str!("../../migrations/0003/187_fork.sql"),
    include_str!("../../migrations/0003/187_reopen.sql"),
    include_str!("../../migrations/0003/188_delete.sql"),
    include_str!("../../migrations/0003/188_prune.sql"),
    include_str!("../../migrations/0003/200_open_stream.sql"),
    include_str!("../../migrations/0003/201_trim_stream.sql"),
    include_str!("../../migrations/0003/202_append_chunks.sql"),
    include_str!("../../migrations/0003/203_restart_streams.sql"),
    include_str!("../../migrations/0003/204_write_chunks.sql"),
    include_str!("../../migrations/0003/205_put_workflow_writes.sql"),
    include_str!("../../migrations/0003/206_commit_writes.sql"),
    include_str!("../../migrations/0003/207_sweep_chunks.sql"),
    include_str!("../../migrations/0003/208_record_outcome.sql"),
    include_str!("../../migrations/0003/208_put_tokens.sql"),
    include_str!("../../migrations/0003/209_put_replies.sql"),
    include_str!("../../migrations/0003/210_commit_tokens.sql"),
    include_str!("../../migrations/0003/211_send_to_token.sql"),
    include_str!("../../migrations/0003/212_start_and_send.sql"),
    include_str!("../../migrations/0003/213_prune_tokens.sql"),
    include_str!("../../migrations/0003/214_put_records.sql"),
    include_str!("../../migrations/0003/215_delete_records.sql"),
];

/// Migrates the schema at a URL, for programs that open the world with `migrate=off`.
///
/// # Errors
///
/// As [`PostgresWorld::open`](crate::PostgresWorld::open).
pub async fn migrate(url: &str) -> Result<(), WorldError> {
    let mut options = PostgresOptions::new();
    let target = parse(url, &mut options)?;
    let io_runtime = IoRuntime::start()?;
    let handle = io_runtime.handle().clone();
    let connector = Connector::new(&target, handle.clone(), options.timeout)?;
    let pool = connector.pool(1)?;
    check_server(&pool, Some(&connector), &target.place, &handle).await?;
    let sql = Arc::new(Statements::of(&options.schema, options.interface));
    let (owner, place, timeout) = (PoolOwner::World, target.place.into(), options.timeout);
    let database = Database { pool, owner, sql, place, handle, timeout };
    ensure_schema(&database, &options.schema, Migrate::Auto).await
}

/// Ensures that the schema exists in the version that this build needs.
pub(crate) async fn ensure_schema(
    database: &Database,
    schema: &str,
    migrate: Migrate,
) -> Result<(), WorldError> {
    check_name(schema)?;
    let version = schema_version(database).await?;
    match compare_version(database, version).await? {
        SchemaState::Current => check_privileges(database, schema).await,
        SchemaState::Outdated if migrate == Migrate::Off && version == 0 => {
            Err(WorldError::conflict(format!(
                "there is no schema `{schema}` of a world at `{}`; create it (`outlast::postgres::migrate(url)`), leave out \
             `migrate=off`, or check the name after `schema=` in the URL",
                database.place
            )))
        }
        SchemaState::Outdated if migrate == Migrate::Off => Err(WorldError::conflict(format!(
            "the schema at `{}` has version {version}, this build needs {}; migrate it \
             (`outlast::postgres::migrate(url)`), or leave out `migrate=off`",
            database.place,
            MIGRATIONS.len()
        ))),
        SchemaState::Outdated => {
            apply_missing(database, schema, MIGRATIONS).await?;
            // Another process, with a newer build, may have migrated the schema meanwhile.
            compare_version(database, schema_version(database).await?).await.map(|_| ())
        }
    }
}

/// Whether a schema has the version that this build needs.
enum SchemaState {
    /// This build can use it.
    Current,
    /// It must be migrated.
    Outdated,
}

/// Compares the schema's version with this build's.
async fn compare_version(database: &Database, version: usize) -> Result<SchemaState, WorldError> {
    match version.cmp(&MIGRATIONS.len()) {
        std::cmp::Ordering::Equal => Ok(SchemaState::Current),
        std::cmp::Ordering::Less => Ok(SchemaState::Outdated),
        // A newer schema still has the functions of the previous interface.
        std::cmp::Ordering::Greater if database.call(&database.sql.clock, &[]).await.is_ok() => {
            Ok(SchemaState::Current)
        }
        std::cmp::Ordering::Greater => Err(WorldError::conflict(format!(
            "the schema at `{}` has version {version}, this build needs {}, and the functions that it calls have been \
             dropped; run a newer build",
            database.place,
            MIGRATIONS.len()
        ))),
    }
}

/// Applies the migrations that the schema does not have yet.
async fn apply_missing(
    database: &Database,
    schema: &str,
    migrations: &[Migration],
) -> Result<(), WorldError> {
    let mut backoff = LOCK_BACKOFF;
    let outcome = loop {
        let apply = async |connection: &Object| apply_all(connection, schema, migrations).await;
        match database.with_connection(apply).await {
            Err(CallError::Postgres(error))
                if (is_lock_timeout(&error) || is_conflict(&error))
                    && backoff.pauses() + 1 < MIGRATION_TRIES_MAX =>
            {
                pause_before_retry(&database.handle, &mut backoff).await;
            }
            outcome => break outcome.map_err(|failure| migration_error(database, &failure))?,
        }
    };
    match outcome {
        None => Ok(()),
        Some(workers) => Err(WorldError::conflict(format!(
            "the schema at `{}` cannot be migrated: it would drop functions that joined workers of an old build call \
             ({workers}); stop them, then migrate",
            database.place
        ))),
    }
}

fn check_name(schema: &str) -> Result<(), WorldError> {
    let is_bad = schema.is_empty() || schema.len() > 63 || schema.contains('\0') || schema.starts_with("pg_");
    if is_bad {
        return Err(WorldError::invalid(format!(
            "`{schema}` is not a valid name of a schema; use 1 to 63 bytes that do not begin with `pg_`"
        )));
    }
    Ok(())
}

/// The schema's version; 0 if the schema does not exist.
async fn schema_version(database: &Database) -> Result<usize, WorldError> {
    let sql = format!("SELECT coalesce(max(version), 0) FROM {}.migrations", database.sql.schema);
    let read =
        database.with_connection(async |connection: &Object| connection.query_one(&sql, &[]).await).await;
    match read {
        Ok(row) => Ok(usize::try_from(row.get::<_, i32>(0)).unwrap_or(0)),
        Err(CallError::Postgres(error))
            if matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_SCHEMA)) =>
        {
            Ok(0)
        }
        Err(CallError::Postgres(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(missing_privilege_error(database, error.as_db_error().map_or("", |error| error.message())))
        }
        Err(failure) => Err(migration_error(database, &failure)),
    }
}

/// Checks that the user has the privileges that a world needs.
async fn check_privileges(database: &Database, schema: &str) -> Result<(), WorldError> {
    let read = database
        .with_connection(async |connection: &Object| {
            connection.query_opt(include_str!("../../sql/missing_privilege.sql"), &[&schema]).await
        })
        .await;
    match read.map_err(|failure| migration_error(database, &failure))? {
        None => Ok(()),
        Some(row) => Err(missing_privilege_error(database, &format!("table `{}`", row.get::<_, String>(0)))),
    }
}

fn missing_privilege_error(database: &Database, why: &str) -> WorldError {
    let schema = &database.sql.schema;
    WorldError::invalid(format!(
        "this user lacks privileges on the schema at `{}` ({why}); run as its owner: GRANT USAGE ON SCHEMA {schema} TO …; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO …",
        database.place
    ))
}

/// Applies missing migrations. Returns the joined workers that prevent a migration, if there are any.
async fn apply_all(
    connection: &Object,
    schema: &str,
    migrations: &[Migration],
) -> Result<Option<String>, tokio_postgres::Error> {
    let applied = apply_each(connection, schema, migrations).await;
    if !matches!(applied, Ok(None)) {
        // If the connection is lost, the server has rolled back.
        let _ = connection.batch_execute("ROLLBACK").await;
    }
    applied
}

async fn apply_each(
    connection: &Object,
    schema: &str,
    migrations: &[Migration],
) -> Result<Option<String>, tokio_postgres::Error> {
    if create_schema(connection, schema, migrations).await? {
        return Ok(None);
    }
    for (index, migration) in migrations.iter().enumerate() {
        let previous_interface = index.checked_sub(1).map_or(0, |previous| migrations[previous].interface);
        let workers = apply_migration(connection, schema, index + 1, migration, previous_interface).await?;
        if workers.is_some() {
            return Ok(workers);
        }
    }
    Ok(None)
}

/// Creates a schema that does not exist, with all migrations in one transaction. Functions that a later migration would
/// drop are left out, and indexes are built in the transaction, since nobody uses the tables. Returns whether it did not
/// exist.
async fn create_schema(
    connection: &Object,
    schema: &str,
    migrations: &[Migration],
) -> Result<bool, tokio_postgres::Error> {
    let is_new = begin_migration(connection, schema).await? == 0;
    if is_new {
        let newest = migrations.last().map_or(0, |migration| migration.interface);
        let mut batch = String::from("SET LOCAL check_function_bodies = off;\n");
        for (index, migration) in migrations.iter().enumerate() {
            let is_kept = migration.interface + 1 >= newest;
            let functions = if is_kept { migration.functions } else { &[] };
            batch.push_str(&migration_batch(schema, index + 1, migration, functions));
            for statement in migration.indexes {
                let statement = fill_statement(statement, schema, migration.interface);
                batch.push_str(&statement.replace(" CONCURRENTLY ", " "));
                batch.push_str(";\n");
            }
        }
        connection.batch_execute(&batch).await?;
    }
    connection.batch_execute("COMMIT").await?;
    Ok(is_new)
}

/// Begins a transaction in which no other process migrates the schema. Returns the schema's version; 0 if it is new.
async fn begin_migration(connection: &Object, schema: &str) -> Result<i32, tokio_postgres::Error> {
    let quoted_schema = quoted(schema);
    let lock = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended({}, 0)); \
         CREATE SCHEMA IF NOT EXISTS {quoted_schema}; \
         CREATE TABLE IF NOT EXISTS {quoted_schema}.migrations (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());",
        quoted_literal(&format!("outlast migrate {schema}"))
    );
    connection.batch_execute(&lock).await?;
    let sql = format!("SELECT coalesce(max(version), 0) FROM {quoted_schema}.migrations");
    Ok(connection.query_one(&sql, &[]).await?.get(0))
}

/// The statements of a migration with these functions, as one batch.
fn migration_batch(schema: &str, version: usize, migration: &Migration, functions: &[&[&str]]) -> String {
    let mut batch = String::new();
    for statement in migration.tables.iter().chain(functions.iter().copied().flatten()) {
        batch.push_str(&fill_statement(statement, schema, migration.interface));
        batch.push_str(";\n");
    }
    batch.push_str(&format!("INSERT INTO {}.migrations (version) VALUES ({version});\n", quoted(schema)));
    batch
}

/// Applies one migration in a transaction, unless the schema has it. Returns the joined workers that call functions which
/// it would drop, if there are any.
async fn apply_migration(
    connection: &Object,
    schema: &str,
    version: usize,
    migration: &Migration,
    previous_interface: u32,
) -> Result<Option<String>, tokio_postgres::Error> {
    let quoted_schema = quoted(schema);
    let has_migration = begin_migration(connection, schema).await? >= version as i32;
    if !has_migration {
        // A migration that creates a new interface drops the one before the previous.
        let dropped_interface =
            if migration.interface > previous_interface { previous_interface.saturating_sub(1) } else { 0 };
        if dropped_interface > 0 {
            end_expired_sessions(connection, &quoted_schema, dropped_interface, previous_interface).await?;
            if let Some(workers) = joined_workers(connection, &quoted_schema, dropped_interface).await? {
                return Ok(Some(workers));
            }
            drop_interface(connection, schema, dropped_interface).await?;
        }
        let mut batch = format!("SET LOCAL lock_timeout = '{}ms';\n", LOCK_TIMEOUT.as_millis());
        batch.push_str(&migration_batch(schema, version, migration, migration.functions));
        connection.batch_execute(&batch).await?;
    }
    connection.batch_execute("COMMIT").await?;
    for statement in migration.indexes {
        connection.batch_execute(&fill_statement(statement, schema, migration.interface)).await?;
    }
    Ok(None)
}

/// Ends expired sessions of this interface and older ones: if all programs that could take them over are stopped,
/// nobody else ends them. Their runs are released by the next takeover. As in a takeover, a session has its full time
/// again after a restart of the server. `latest` is the newest interface of the schema.
async fn end_expired_sessions(
    connection: &Object,
    quoted_schema: &str,
    interface: u32,
    latest: u32,
) -> Result<(), tokio_postgres::Error> {
    let v = function_suffix(latest);
    let sql = format!(
        "SELECT {quoted_schema}.end_session{v}(c.now_at, s.id, true, s.expires_at, $2), {quoted_schema}.refresh_rules{v}() \
         FROM {quoted_schema}.sessions s, (SELECT {quoted_schema}.clock{v}() AS now_at, {quoted_schema}.boot{v}() AS boot_at OFFSET 0) c \
         WHERE s.interface <= $1 AND s.ended_at IS NULL AND s.expires_at <= c.now_at \
             AND (s.boot = c.boot_at OR c.boot_at <= c.now_at - s.time)"
    );
    connection.query(&sql, &[&(interface as i32), &(CRASH_CLASS_MAX as i32)]).await?;
    Ok(())
}

/// A description of the joined workers that call functions of this interface or older ones; `None` if there are none.
async fn joined_workers(
    connection: &Object,
    quoted_schema: &str,
    interface: u32,
) -> Result<Option<String>, tokio_postgres::Error> {
    let sql = format!(
        "SELECT string_agg(format('process %s on %s', s.pid, s.host), ', ' ORDER BY s.host, s.pid) \
         FROM {quoted_schema}.sessions s WHERE s.interface <= $1 AND s.ended_at IS NULL"
    );
    let row = connection.query_one(&sql, &[&(interface as i32)]).await?;
    Ok(row.get(0))
}

/// Drops the functions and types of an interface.
async fn drop_interface(
    connection: &Object,
    schema: &str,
    interface: u32,
) -> Result<(), tokio_postgres::Error> {
    let name_pattern = format!("%\\{}", function_suffix(interface));
    let rows =
        connection.query(include_str!("../../sql/interface_objects.sql"), &[&schema, &name_pattern]).await?;
    for row in rows {
        connection.batch_execute(row.get(0)).await?;
    }
    Ok(())
}

/// Replaces the placeholders of a migration's statement.
fn fill_statement(statement: &str, schema: &str, interface: u32) -> String {
    fill_placeholders(statement, interface)
        .replace("{schema_text}", &quoted_literal(schema))
        .replace("{channel}", &quoted_literal(&channel(schema)))
        .replace("{schema}", &quoted(schema))
        .replace("{v}", &function_suffix(interface))
}

fn quoted_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The error of the world for a failed migration.
fn migration_error(database: &Database, failure: &CallError) -> WorldError {
    match failure {
        CallError::Postgres(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            WorldError::invalid(format!(
                "this user may not create or change the schema at `{}` ({}); GRANT CREATE ON DATABASE to it, or \
                 migrate as another user and write `migrate=off` in the URL of this one",
                database.place,
                error.as_db_error().map_or("", |error| error.message())
            ))
        }
        CallError::Postgres(error) => postgres_error(error, &database.place),
        failure => database.world_error(failure),
    }
}
