//! What a test prints when a child does not end: everything that decides why its runs do not.

use std::fmt::Write;

use outlast::core::World;
use outlast::{Client, Error};

use crate::postgres_schema::with_client;
use crate::process_folder::ProcessFolder;
use crate::snapshot::{all_runs, block_on};

/// The number of open runs that are explained; the others are only counted.
const EXPLAINED: usize = 25;

/// Describes the sessions and open runs of the world of this folder, the connections of its server, and the output of
/// all children.
pub(crate) fn describe(process_folder: &ProcessFolder) -> String {
    let mut text = block_on(async {
        let world = outlast::open(&process_folder.url()).await?;
        let mut text = describe_sessions(&*world).await?;
        text.push_str(&describe_runs(&Client::new(world)).await?);
        Ok(text)
    });
    if let Some(url) = &process_folder.world_url {
        with_client(url, async |client| text.push_str(&describe_connections(client, url).await));
    }
    let output = std::fs::read_to_string(process_folder.output()).unwrap_or_default();
    let _ = writeln!(text, "output of all children:\n{output}");
    text
}

async fn describe_sessions(world: &dyn World) -> Result<String, Error> {
    let mut text = String::new();
    for worker in world.workers().await? {
        let _ = writeln!(
            text,
            "session {} of process {}: joined {}, last beat {}, holds {}, {:?}",
            worker.session, worker.pid, worker.joined_at, worker.beat_at, worker.held, worker.report
        );
    }
    Ok(text)
}

async fn describe_runs(client: &Client) -> Result<String, Error> {
    let mut text = format!("runs: {:?}\n", client.counts().await?);
    let mut open = all_runs(client).await?;
    open.retain(|run| !run.status.is_final());
    for run in open.iter().take(EXPLAINED) {
        let key = run.key.as_deref().unwrap_or_default();
        let _ = writeln!(
            text,
            "{key} {}: {}, owner {:?}, {} crashes, {} of {} messages read, updated {}, wakes {:?}, {:?}",
            run.id,
            run.status,
            run.owner,
            run.crashes,
            run.consumed,
            run.sent,
            run.updated_at,
            run.wake_at,
            run.stuck
        );
        let _ = writeln!(text, "  {}", client.explain(run.id).await?.sentence);
        for turn in client.history(run.id).await? {
            let events: Vec<_> = turn.events.iter().map(|event| (event.kind(), event.op())).collect();
            let _ = writeln!(text, "  {} {}: {events:?}", turn.at, turn.id);
        }
    }
    Ok(text)
}

/// The connections to the server, and the locks for which they wait.
async fn describe_connections(client: &tokio_postgres::Client, url: &str) -> String {
    let name = url.rsplit('=').next().unwrap();
    let sql = "SELECT a.pid::text || ' ' || coalesce(a.state, '-') || ', since ' || coalesce(a.state_change::text, '-')
            || ', waits for ' || coalesce(a.wait_event_type || '/' || a.wait_event, 'nothing') || ', blocked by '
            || pg_blocking_pids(a.pid)::text || ', has ' || (SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid)
            || ' locks: ' || left(a.query, 200)
        FROM pg_stat_activity a WHERE a.application_name = $1 ORDER BY a.pid";
    match client.query(sql, &[&name]).await {
        Ok(rows) => rows.iter().map(|row| format!("connection {}\n", row.get::<_, String>(0))).collect(),
        Err(error) => format!("the connections are not known: {error}\n"),
    }
}
