//! Migrations: the schema is made and brought up to date, by one process at a time.

use std::sync::Arc;

use deadpool_postgres::Object;
use outlast_core::WorldError;
use tokio_postgres::error::SqlState;

use crate::connect::Connector;
use crate::error::of_postgres;
use crate::greet::{Owner, greet};
use crate::home::Home;
use crate::options::{Migrate, PostgresOptions};
use crate::sql::{Sql, channel, quoted};
use crate::store::{Failed, Store};
use crate::url::parse;

/// The schemas, one after the other: append-only.
const MIGRATIONS: &[&[&str]] = &[
    // 1
    &[
        include_str!("../migrations/0001/010_runs.sql"),
        include_str!("../migrations/0001/011_runs_key.sql"),
        include_str!("../migrations/0001/012_runs_ready.sql"),
        include_str!("../migrations/0001/013_runs_suspects.sql"),
        include_str!("../migrations/0001/014_runs_codeless.sql"),
        include_str!("../migrations/0001/015_runs_overdue.sql"),
        include_str!("../migrations/0001/016_runs_held.sql"),
        include_str!("../migrations/0001/017_runs_unread.sql"),
        include_str!("../migrations/0001/018_runs_stuck.sql"),
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
        include_str!("../migrations/0001/070_counts.sql"),
        include_str!("../migrations/0001/071_skew.sql"),
        include_str!("../migrations/0001/072_leftovers.sql"),
        include_str!("../migrations/0001/073_settings.sql"),
        include_str!("../migrations/0001/074_settings_row.sql"),
        include_str!("../migrations/0001/100_clock.sql"),
        include_str!("../migrations/0001/101_boot.sql"),
        include_str!("../migrations/0001/110_count.sql"),
        include_str!("../migrations/0001/111_widen.sql"),
        include_str!("../migrations/0001/112_put_tags.sql"),
        include_str!("../migrations/0001/113_count_move.sql"),
        include_str!("../migrations/0001/119_forget.sql"),
        include_str!("../migrations/0001/120_put_run.sql"),
        include_str!("../migrations/0001/121_put_start.sql"),
        include_str!("../migrations/0001/122_put_held.sql"),
        include_str!("../migrations/0001/130_put_message.sql"),
        include_str!("../migrations/0001/139_start_one.sql"),
        include_str!("../migrations/0001/140_start.sql"),
        include_str!("../migrations/0001/150_send.sql"),
        include_str!("../migrations/0001/159_commit_one.sql"),
        include_str!("../migrations/0001/160_commit.sql"),
        include_str!("../migrations/0001/161_commit_beyond.sql"),
        include_str!("../migrations/0001/162_commit_each.sql"),
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
        include_str!("../migrations/0001/180_join.sql"),
        include_str!("../migrations/0001/181_beat.sql"),
        include_str!("../migrations/0001/182_free.sql"),
        include_str!("../migrations/0001/183_leave.sql"),
        include_str!("../migrations/0001/184_lock_key.sql"),
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
    ],
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
    let sql = Arc::new(Sql::of(&options.schema));
    let (owner, place, timeout) = (Owner::World, address.place.into(), options.timeout);
    let store = Store { pool, owner, sql, place, handle, timeout };
    up_to_date(&store, &options.schema, Migrate::Auto).await
}

/// Makes sure that the schema is the one that this build needs.
pub(crate) async fn up_to_date(store: &Store, schema: &str, migrate: Migrate) -> Result<(), WorldError> {
    check_name(schema)?;
    let version = version(store).await?;
    match judge(version, &store.place)? {
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
            let done =
                store.with_connection(async |connection: &Object| apply(connection, schema).await).await;
            done.map_err(|failed| refused(store, &failed))?;
            // Another process may have been faster, with a newer build.
            judge(self::version(store).await?, &store.place).map(|_| ())
        }
    }
}

enum Judged {
    Right,
    Old,
}

fn judge(version: usize, place: &str) -> Result<Judged, WorldError> {
    match version.cmp(&MIGRATIONS.len()) {
        std::cmp::Ordering::Equal => Ok(Judged::Right),
        std::cmp::Ordering::Less => Ok(Judged::Old),
        std::cmp::Ordering::Greater => Err(WorldError::Conflict(format!(
            "the schema at `{place}` has version {version}, this build knows {} and older ones; run a newer build",
            MIGRATIONS.len()
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

/// Applies what is missing: one batch, which checks under the lock what that is.
async fn apply(connection: &Object, schema: &str) -> Result<(), tokio_postgres::Error> {
    let name = quoted(schema);
    let lock = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended({}, 0)); \
         CREATE SCHEMA IF NOT EXISTS {name}; \
         CREATE TABLE IF NOT EXISTS {name}.migrations (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());",
        literal(&format!("outlast migrate {schema}"))
    );
    let applied = async {
        connection.batch_execute(&lock).await?;
        let row = connection
            .query_one(&format!("SELECT coalesce(max(version), 0) FROM {name}.migrations"), &[])
            .await?;
        let version = usize::try_from(row.get::<_, i32>(0)).unwrap_or(0);
        for (index, statements) in MIGRATIONS.iter().enumerate().skip(version) {
            let mut batch = String::new();
            for statement in *statements {
                batch.push_str(&filled(statement, schema));
                batch.push_str(";\n");
            }
            batch.push_str(&format!("INSERT INTO {name}.migrations (version) VALUES ({})", index + 1));
            connection.batch_execute(&batch).await?;
        }
        connection.batch_execute("COMMIT").await
    };
    let applied = applied.await;
    if applied.is_err() {
        // What was refused is rolled back; a lost connection has done so by itself.
        let _ = connection.batch_execute("ROLLBACK").await;
    }
    applied
}

/// A statement of a migration, in this schema.
fn filled(statement: &str, schema: &str) -> String {
    statement
        .replace("{schema_text}", &literal(schema))
        .replace("{channel}", &literal(&channel(schema)))
        .replace("{schema}", &quoted(schema))
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
