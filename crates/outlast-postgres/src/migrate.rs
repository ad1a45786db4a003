//! Migrations: the schema is made and brought up to date, by one process at a time.
//!
//! Programs of two builds use one schema while an upgrade is rolled out. Functions have the number of their interface in
//! their names. A step that changes one of them makes a new set, keeps the set before it, and drops the one
//! before that; it is refused while a worker is joined that calls one of the dropped.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use outlast_core::WorldError;
use outlast_core::takeover::CRASH_CLASS_MAX;
use tokio_postgres::error::SqlState;

use crate::columns::fill;
use crate::connect::{Connector, pause};
use crate::error::{is_locked, is_overtaken, of_postgres};
use crate::greet::{Owner, greet};
use crate::home::Home;
use crate::options::{Migrate, PostgresOptions};
use crate::sql::{Sql, channel, quoted, suffix};
use crate::store::{Failed, Store};
use crate::url::parse;

/// One step of the schema.
struct Migration {
    /// The set of functions that there is after it. The set before stays, for programs that still run; the one before
    /// that is dropped.
    interface: u32,
    /// What is made in one transaction: first tables, columns and plain indexes.
    tables: &'static [&'static str],
    /// Then the functions, whose names end in `{v}`: a list for each step that changed some of them.
    functions: &'static [&'static [&'static str]],
    /// Indexes that are built afterwards and outside of it, while others write.
    indexes: &'static [&'static str],
}

/// The steps, one after the other: append-only.
const MIGRATIONS: &[Migration] = &[
    Migration {
        interface: 1,
        tables: TABLES,
        functions: &[FUNCTIONS, &[include_str!("../migrations/0001/180_join.sql")]],
        indexes: &[],
    },
    Migration {
        interface: 2,
        tables: &[include_str!("../migrations/0002/010_sessions_version.sql")],
        functions: &[FUNCTIONS, &[include_str!("../migrations/0002/180_join.sql")]],
        indexes: &[],
    },
];

/// How long a step waits for a lock on a table. Everybody else who needs the table waits behind it: when somebody has the
/// table for long, such as a dump, it lets them go first and tries again.
const LOCK_WAIT: Duration = Duration::from_millis(250);

/// The pause before a step is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// How often a step is tried: for some minutes.
const TRIES_MAX: u32 = 400;

/// The tables of the first step.
const TABLES: &[&str] = &[
    include_str!("../migrations/0001/010_runs.sql"),
    include_str!("../migrations/0001/011_runs_key.sql"),
    include_str!("../migrations/0001/012_runs_ready.sql"),
    include_str!("../migrations/0001/014_runs_ends_without_code.sql"),
    include_str!("../migrations/0001/015_runs_overdue.sql"),
    include_str!("../migrations/0001/016_runs_held.sql"),
    include_str!("../migrations/0001/017_runs_unread.sql"),
    include_str!("../migrations/0001/019_runs_by_status.sql"),
    include_str!("../migrations/0001/020_runs_by_workflow.sql"),
    include_str!("../migrations/0001/021_runs_by_parent.sql"),
    include_str!("../migrations/0001/022_runs_by_root.sql"),
    include_str!("../migrations/0001/030_tags.sql"),
    include_str!("../migrations/0001/031_tags_by_value.sql"),
    include_str!("../migrations/0001/040_turns.sql"),
    include_str!("../migrations/0001/041_events.sql"),
    include_str!("../migrations/0001/050_inbox.sql"),
    include_str!("../migrations/0001/060_sessions.sql"),
    include_str!("../migrations/0001/061_heartbeats.sql"),
    include_str!("../migrations/0001/070_counts.sql"),
    include_str!("../migrations/0001/071_skew.sql"),
    include_str!("../migrations/0001/072_leftovers.sql"),
    include_str!("../migrations/0001/073_settings.sql"),
    include_str!("../migrations/0001/074_settings_row.sql"),
    include_str!("../migrations/0001/075_unmerged.sql"),
];

/// The functions that are the same in every step.
const FUNCTIONS: &[&str] = &[
    include_str!("../migrations/0001/100_clock.sql"),
    include_str!("../migrations/0001/101_boot.sql"),
    include_str!("../migrations/0001/110_count.sql"),
    include_str!("../migrations/0001/111_widen.sql"),
    include_str!("../migrations/0001/112_put_tags.sql"),
    include_str!("../migrations/0001/113_count_move.sql"),
    include_str!("../migrations/0001/114_merge.sql"),
    include_str!("../migrations/0001/119_forget.sql"),
    include_str!("../migrations/0001/120_check_rules.sql"),
    include_str!("../migrations/0001/121_free_keys.sql"),
    include_str!("../migrations/0001/122_put_starts.sql"),
    include_str!("../migrations/0001/139_start_one.sql"),
    include_str!("../migrations/0001/140_start.sql"),
    include_str!("../migrations/0001/149_put_messages.sql"),
    include_str!("../migrations/0001/150_send.sql"),
    include_str!("../migrations/0001/156_turns_of.sql"),
    include_str!("../migrations/0001/157_deliver.sql"),
    include_str!("../migrations/0001/158_lock_runs.sql"),
    include_str!("../migrations/0001/159_commit_one.sql"),
    include_str!("../migrations/0001/160_commit.sql"),
    include_str!("../migrations/0001/164_line.sql"),
    include_str!("../migrations/0001/165_lines.sql"),
    include_str!("../migrations/0001/166_choose.sql"),
    include_str!("../migrations/0001/166_choose_overdue.sql"),
    include_str!("../migrations/0001/167_ready.sql"),
    include_str!("../migrations/0001/168_give.sql"),
    include_str!("../migrations/0001/169_next_due.sql"),
    include_str!("../migrations/0001/169_next_due_of.sql"),
    include_str!("../migrations/0001/170_claim.sql"),
    include_str!("../migrations/0001/171_claim_one.sql"),
    include_str!("../migrations/0001/178_lock_key.sql"),
    include_str!("../migrations/0001/179_refresh_rules.sql"),
    include_str!("../migrations/0001/181_beat.sql"),
    include_str!("../migrations/0001/181_put_details.sql"),
    include_str!("../migrations/0001/182_failed_with.sql"),
    include_str!("../migrations/0001/183_free.sql"),
    include_str!("../migrations/0001/184_end_session.sql"),
    include_str!("../migrations/0001/185_leave.sql"),
    include_str!("../migrations/0001/185_remove_session.sql"),
    include_str!("../migrations/0001/185_takeover.sql"),
    include_str!("../migrations/0001/186_resume.sql"),
    include_str!("../migrations/0001/187_sweep.sql"),
    include_str!("../migrations/0001/188_prune.sql"),
    include_str!("../migrations/0001/189_sweep_leftovers.sql"),
    include_str!("../migrations/0001/190_hint.sql"),
    include_str!("../migrations/0001/191_base32.sql"),
    include_str!("../migrations/0001/192_new_bits.sql"),
    include_str!("../migrations/0001/193_digest.sql"),
    include_str!("../migrations/0001/194_hex.sql"),
    include_str!("../migrations/0001/195_check_payload.sql"),
    include_str!("../migrations/0001/195_stored.sql"),
    include_str!("../migrations/0001/196_start_run.sql"),
    include_str!("../migrations/0001/197_send_to.sql"),
    include_str!("../migrations/0001/198_compact.sql"),
    include_str!("../migrations/0001/198_start_run_json.sql"),
    include_str!("../migrations/0001/198_start_run_jsonb.sql"),
    include_str!("../migrations/0001/199_send_to_json.sql"),
    include_str!("../migrations/0001/199_send_to_jsonb.sql"),
];

/// Brings the schema that the URL names up to date, for programs that do not do so when they open the world.
///
/// # Errors
///
/// As [`PostgresWorld::open`](crate::PostgresWorld::open).
pub async fn migrate(url: &str) -> Result<(), WorldError> {
    let mut options = PostgresOptions::new();
    let address = parse(url, &mut options)?;
    let home = Home::start()?;
    let handle = home.handle().clone();
    let pool = Connector::new(&address, handle.clone(), options.timeout)?.pool(1)?;
    greet(&pool, Owner::World, &address.place, &handle).await?;
    let sql = Arc::new(Sql::of(&options.schema, options.interface));
    let (owner, place, timeout) = (Owner::World, address.place.into(), options.timeout);
    let store = Store { pool, owner, sql, place, handle, timeout };
    up_to_date(&store, &options.schema, Migrate::Auto).await
}

/// Makes sure that the schema is the one that this build needs.
pub(crate) async fn up_to_date(store: &Store, schema: &str, migrate: Migrate) -> Result<(), WorldError> {
    check_name(schema)?;
    let version = version(store).await?;
    match judge(store, version).await? {
        Judged::Right => check_rights(store, schema).await,
        Judged::Old if migrate == Migrate::Off && version == 0 => Err(WorldError::Conflict(format!(
            "there is no schema `{schema}` of a world at `{}`; make it (`outlast::postgres::migrate(url)`), leave out \
             `migrate=off`, or check the name after `schema=` in the URL",
            store.place
        ))),
        Judged::Old if migrate == Migrate::Off => Err(WorldError::Conflict(format!(
            "the schema at `{}` has version {version}, this build needs {}; migrate it \
             (`outlast::postgres::migrate(url)`), or leave out `migrate=off`",
            store.place,
            MIGRATIONS.len()
        ))),
        Judged::Old => {
            bring_up(store, schema, MIGRATIONS).await?;
            // Another process may have been faster, with a newer build.
            judge(store, self::version(store).await?).await.map(|_| ())
        }
    }
}

enum Judged {
    Right,
    Old,
}

async fn judge(store: &Store, version: usize) -> Result<Judged, WorldError> {
    match version.cmp(&MIGRATIONS.len()) {
        std::cmp::Ordering::Equal => Ok(Judged::Right),
        std::cmp::Ordering::Less => Ok(Judged::Old),
        // A newer schema keeps the functions that the builds before it call.
        std::cmp::Ordering::Greater if store.call(&store.sql.clock, &[]).await.is_ok() => Ok(Judged::Right),
        std::cmp::Ordering::Greater => Err(WorldError::Conflict(format!(
            "the schema at `{}` has version {version}, this build knows {} and older ones, and the functions that it \
             calls are gone; run a newer build",
            store.place,
            MIGRATIONS.len()
        ))),
    }
}

/// Applies the steps that are missing.
async fn bring_up(store: &Store, schema: &str, migrations: &[Migration]) -> Result<(), WorldError> {
    let mut tries = 1;
    let done = loop {
        let apply = async |connection: &Object| apply(connection, schema, migrations).await;
        match store.with_connection(apply).await {
            Err(Failed::Refused(error))
                if (is_locked(&error) || is_overtaken(&error)) && tries < TRIES_MAX =>
            {
                tries += 1;
                pause(&store.handle, LOCK_PAUSE).await;
            }
            done => break done.map_err(|failed| refused(store, &failed))?,
        }
    };
    match done {
        None => Ok(()),
        Some(joined) => Err(WorldError::Conflict(format!(
            "the schema at `{}` cannot be migrated: workers of an old build are joined, whose functions would be \
             dropped ({joined}); stop them, then migrate",
            store.place
        ))),
    }
}

fn check_name(schema: &str) -> Result<(), WorldError> {
    let is_bad = schema.is_empty() || schema.len() > 63 || schema.contains('\0') || schema.starts_with("pg_");
    if is_bad {
        return Err(WorldError::Invalid(format!(
            "`{schema}` cannot be the name of a schema; use 1 to 63 bytes that do not begin with `pg_`"
        )));
    }
    Ok(())
}

/// The schema's version: 0 when there is none.
async fn version(store: &Store) -> Result<usize, WorldError> {
    let sql = format!("SELECT coalesce(max(version), 0) FROM {}.migrations", store.sql.schema);
    let read = store.with_connection(async |connection: &Object| connection.query_one(&sql, &[]).await).await;
    match read {
        Ok(row) => Ok(usize::try_from(row.get::<_, i32>(0)).unwrap_or(0)),
        Err(Failed::Refused(error))
            if matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_SCHEMA)) =>
        {
            Ok(0)
        }
        Err(Failed::Refused(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(no_rights(store, error.as_db_error().map_or("", |error| error.message())))
        }
        Err(failed) => Err(refused(store, &failed)),
    }
}

/// Whether this user may do with the tables what a world does.
async fn check_rights(store: &Store, schema: &str) -> Result<(), WorldError> {
    let read = store
        .with_connection(async |connection: &Object| {
            connection.query_opt(include_str!("../sql/missing_right.sql"), &[&schema]).await
        })
        .await;
    match read.map_err(|failed| refused(store, &failed))? {
        None => Ok(()),
        Some(row) => Err(no_rights(store, &format!("table `{}`", row.get::<_, String>(0)))),
    }
}

fn no_rights(store: &Store, why: &str) -> WorldError {
    let schema = &store.sql.schema;
    WorldError::Invalid(format!(
        "this user may not use the schema at `{}` ({why}); run as its owner: GRANT USAGE ON SCHEMA {schema} TO …; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO …",
        store.place
    ))
}

/// Applies what is missing, each step in a transaction that checks under the lock what that is. Answers why not, when
/// workers are joined that call functions which a step drops.
async fn apply(
    connection: &Object,
    schema: &str,
    migrations: &[Migration],
) -> Result<Option<String>, tokio_postgres::Error> {
    for (index, migration) in migrations.iter().enumerate() {
        let before = index.checked_sub(1).map_or(0, |before| migrations[before].interface);
        let applied = apply_one(connection, schema, index + 1, migration, before).await;
        if !matches!(applied, Ok(None)) {
            // What was refused is rolled back; a lost connection has done so by itself.
            let _ = connection.batch_execute("ROLLBACK").await;
            return applied;
        }
    }
    Ok(None)
}

async fn apply_one(
    connection: &Object,
    schema: &str,
    version: usize,
    migration: &Migration,
    before: u32,
) -> Result<Option<String>, tokio_postgres::Error> {
    let name = quoted(schema);
    let lock = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended({}, 0)); \
         CREATE SCHEMA IF NOT EXISTS {name}; \
         CREATE TABLE IF NOT EXISTS {name}.migrations (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());",
        literal(&format!("outlast migrate {schema}"))
    );
    connection.batch_execute(&lock).await?;
    let sql = format!("SELECT 1 FROM {name}.migrations WHERE version >= $1");
    if connection.query(&sql, &[&(version as i32)]).await?.is_empty() {
        // The set before the one before this step's, unless the step makes no new one.
        let dropped = if migration.interface > before { before.saturating_sub(1) } else { 0 };
        if dropped > 0 {
            end_overdue(connection, &name, dropped, before).await?;
            if let Some(why) = joined(connection, &name, dropped).await? {
                return Ok(Some(why));
            }
            drop_interface(connection, schema, dropped).await?;
        }
        let mut batch = format!("SET LOCAL lock_timeout = '{}ms';\n", LOCK_WAIT.as_millis());
        let functions = migration.functions.iter().copied().flatten();
        for statement in migration.tables.iter().chain(functions) {
            batch.push_str(&filled(statement, schema, migration.interface));
            batch.push_str(";\n");
        }
        batch.push_str(&format!("INSERT INTO {name}.migrations (version) VALUES ({version})"));
        connection.batch_execute(&batch).await?;
    }
    connection.batch_execute("COMMIT").await?;
    for statement in migration.indexes {
        connection.batch_execute(&filled(statement, schema, migration.interface)).await?;
    }
    Ok(None)
}

/// Ends sessions of this interface and older ones whose time is over: when all programs that could take them over are stopped,
/// nobody else does. Their runs are freed by the next takeover. As in a takeover, a session has its full time again after a
/// restart of the server. `latest` is the newest interface there is.
async fn end_overdue(
    connection: &Object,
    name: &str,
    interface: u32,
    latest: u32,
) -> Result<(), tokio_postgres::Error> {
    let v = suffix(latest);
    let sql = format!(
        "SELECT {name}.end_session{v}(c.now_at, s.id, true, s.expires_at, $2), {name}.refresh_rules{v}() \
         FROM {name}.sessions s, (SELECT {name}.clock{v}() AS now_at, {name}.boot{v}() AS boot_at OFFSET 0) c \
         WHERE s.interface <= $1 AND s.ended_at IS NULL AND s.expires_at <= c.now_at \
             AND (s.boot = c.boot_at OR c.boot_at <= c.now_at - s.time)"
    );
    connection.query(&sql, &[&(interface as i32), &(CRASH_CLASS_MAX as i32)]).await?;
    Ok(())
}

/// The joined workers that call functions of this interface or older ones, for a person; `None` when there are none.
async fn joined(
    connection: &Object,
    name: &str,
    interface: u32,
) -> Result<Option<String>, tokio_postgres::Error> {
    let sql = format!(
        "SELECT string_agg(format('process %s on %s', s.pid, s.host), ', ' ORDER BY s.host, s.pid) \
         FROM {name}.sessions s WHERE s.interface <= $1 AND s.ended_at IS NULL"
    );
    let row = connection.query_one(&sql, &[&(interface as i32)]).await?;
    Ok(row.get(0))
}

/// Drops the functions and types whose names end in an interface's suffix.
async fn drop_interface(
    connection: &Object,
    schema: &str,
    interface: u32,
) -> Result<(), tokio_postgres::Error> {
    let ending = format!("%\\{}", suffix(interface));
    let rows = connection.query(include_str!("../sql/interface_objects.sql"), &[&schema, &ending]).await?;
    for row in rows {
        connection.batch_execute(row.get(0)).await?;
    }
    Ok(())
}

/// A statement of a migration, in this schema.
fn filled(statement: &str, schema: &str, interface: u32) -> String {
    fill(statement, interface)
        .replace("{schema_text}", &literal(schema))
        .replace("{channel}", &literal(&channel(schema)))
        .replace("{schema}", &quoted(schema))
        .replace("{v}", &suffix(interface))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn refused(store: &Store, failed: &Failed) -> WorldError {
    match failed {
        Failed::Refused(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            WorldError::Invalid(format!(
                "this user may not make or change the schema at `{}` ({}); GRANT CREATE ON DATABASE to it, or \
                 migrate as another user and write `migrate=off` in the URL of this one",
                store.place,
                error.as_db_error().map_or("", |error| error.message())
            ))
        }
        Failed::Refused(error) => of_postgres(error, &store.place),
        failed => store.world_error(failed),
    }
}
