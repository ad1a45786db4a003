//! Definitions: what the worker says about its workflows is stored when it joins, and outlives it.
//!
//! It is a service for people: nothing depends on it, and a failure is only logged. A worker writes only what is new or
//! was stored a while ago, so that a fleet that is restarted writes little. In virtual time nothing is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::definition::{DEFINITIONS, definition_id};
use outlast_core::limits::{DEFINITIONS_MAX, RECORDS_BATCH_MAX};
use outlast_core::queue::check_workflow_name;
use outlast_core::record::check_records;
use outlast_core::{NewRecord, RecordQuery, StoredRecord, Timestamp, WorkflowSummary, World, WorldError};
use serde_json::Value;

use super::Session;

/// How old the record of a definition may be before another worker with it stores it again.
const REFRESHED_AFTER: Duration = Duration::from_secs(3_600);

/// The schemas of a version of a workflow.
#[derive(Clone, Debug)]
pub(crate) struct WorkflowSchemas {
    pub(crate) workflow: &'static str,
    pub(crate) version: u32,
    pub(crate) input: Value,
    pub(crate) output: Value,
}

/// Stores the definitions of the session's worker.
pub(in crate::worker) async fn store_definitions(session: Arc<Session>) {
    if session.clock.is_virtual() {
        return;
    }
    let stored = tokio::select! {
        biased;
        () = session.lost.cancelled() => return,
        stored = store(&*session.world, summaries(&session), session.clock.now()) => stored,
    };
    if let Err(error) = stored {
        tracing::debug!(session = %session.id, %error, "the definitions of the workflows were not stored");
    }
}

/// The records that describe the workflows of this worker.
fn summaries(session: &Session) -> Vec<NewRecord> {
    let settings = &session.settings;
    let queues: Vec<String> = settings.queues.iter().map(ToString::to_string).collect();
    let steps: Vec<String> = settings.step_names.iter().map(ToString::to_string).collect();
    let code = settings.code.code();
    let of_program = code.iter().filter(|code| check_workflow_name(&code.workflow).is_ok());
    let records = of_program.map(|code| {
        let summary = WorkflowSummary::new(&code.workflow, code.version, &settings.build, &queues, &steps);
        let is_of_code = |schemas: &&WorkflowSchemas| {
            *schemas.workflow == *code.workflow && schemas.version == code.version
        };
        match settings.schemas.iter().find(is_of_code) {
            Some(schemas) => summary.with_schemas(&schemas.input, &schemas.output).to_record(),
            None => summary.to_record(),
        }
    });
    // A name may contain what a record cannot.
    records.filter(|record| check_records(DEFINITIONS, std::slice::from_ref(record)).is_ok()).collect()
}

/// Stores what is new or old, and deletes the oldest definitions if there are too many: never those of workers that are
/// joined, of which there may be more.
async fn store(world: &dyn World, mut own: Vec<NewRecord>, now: Timestamp) -> Result<(), WorldError> {
    let known = all_definitions(world).await?;
    let by_id: BTreeMap<&str, &StoredRecord> =
        known.iter().map(|record| (record.id.as_str(), record)).collect();
    own.retain(|record| {
        by_id
            .get(record.id.as_str())
            .is_none_or(|known| known.body != record.body || now.since(known.at) >= REFRESHED_AFTER)
    });
    own.dedup_by(|one, other| one.id == other.id);
    own.truncate(DEFINITIONS_MAX.min(RECORDS_BATCH_MAX));
    if own.is_empty() {
        return Ok(());
    }
    let mut others: Vec<_> = known.iter().filter(|known| own.iter().all(|own| own.id != known.id)).collect();
    if others.len() > DEFINITIONS_MAX - own.len() {
        let joined = joined_definitions(world).await?;
        let room = (DEFINITIONS_MAX - own.len())
            .saturating_sub(others.iter().filter(|other| joined.contains(&other.id)).count());
        others.retain(|other| !joined.contains(&other.id));
        others.sort_by_key(|record| std::cmp::Reverse(record.at));
        let superfluous: Vec<String> = others.iter().skip(room).map(|record| record.id.clone()).collect();
        for batch in superfluous.chunks(RECORDS_BATCH_MAX) {
            world.delete_records(DEFINITIONS, batch).await?;
        }
    }
    world.put_records(DEFINITIONS, own).await
}

async fn all_definitions(world: &dyn World) -> Result<Vec<StoredRecord>, WorldError> {
    let mut all: Vec<StoredRecord> = Vec::new();
    loop {
        let after = all.last().map(|last| last.id.clone());
        let page = world.records(RecordQuery { after, ..RecordQuery::of_space(DEFINITIONS) }).await?;
        let is_last = page.len() < RECORDS_BATCH_MAX;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// The ids of the definitions of the workers that are joined.
async fn joined_definitions(world: &dyn World) -> Result<BTreeSet<String>, WorldError> {
    let workers = world.workers().await?;
    let ids = workers.iter().flat_map(|worker| {
        worker.code.iter().map(|code| definition_id(&code.workflow, code.version, &worker.build))
    });
    Ok(ids.collect())
}

#[cfg(test)]
mod tests {
    use outlast_core::{Code, Join};
    use outlast_memory::MemoryWorld;
    use outlast_testkit::TestClock;

    use super::*;

    fn record(number: usize, body: &str) -> NewRecord {
        NewRecord { id: format!("w/{number:04}/b"), body: body.into() }
    }

    async fn stored(world: &MemoryWorld) -> Vec<StoredRecord> {
        world.records(RecordQuery::of_space(DEFINITIONS)).await.unwrap()
    }

    #[tokio::test]
    async fn the_definitions_that_were_stored_last_are_kept() {
        let clock = TestClock::new();
        let world = MemoryWorld::new(Arc::new(clock.clone()));
        for part in 0..3 {
            let own = (0..DEFINITIONS_MAX / 2).map(|number| record(part * 1_000 + number, "1"));
            store(&world, own.collect(), clock.now()).await.unwrap();
            clock.advance("1s");
        }
        let kept = stored(&world).await;
        assert_eq!((kept.len(), kept[0].id.as_str()), (DEFINITIONS_MAX, "w/1000/b"));
    }

    #[tokio::test]
    async fn the_definitions_of_joined_workers_are_kept() {
        let clock = TestClock::new();
        let world = MemoryWorld::new(Arc::new(clock.clone()));
        let session = crate::ids::session();
        let code = Code { workflow: "w".into(), version: 7 };
        let join = Join {
            session,
            host: "host".into(),
            pid: 1,
            build: "b".into(),
            code: Arc::from([code]),
            queues: Arc::from([outlast_core::queue::default_queue()]),
            time: Duration::from_secs(10),
            rules: outlast_core::event::RULES,
            format: outlast_core::event::FORMAT,
        };
        world.join(join).await.unwrap();
        let joined = NewRecord { id: "w/7/b".into(), body: "1".into() };
        store(&world, vec![joined], clock.now()).await.unwrap();
        let newer = async |part: usize| {
            clock.advance("1s");
            let own = (0..DEFINITIONS_MAX / 2).map(|number| record(part * 1_000 + number, "1"));
            store(&world, own.collect(), clock.now()).await.unwrap();
        };
        for part in 1..5 {
            newer(part).await;
        }
        let kept = stored(&world).await;
        assert_eq!(kept.len(), DEFINITIONS_MAX);
        assert!(kept.iter().any(|kept| kept.id == "w/7/b"), "the definition of a joined worker");
        world.leave(session).await.unwrap();
        newer(5).await;
        assert!(stored(&world).await.iter().all(|kept| kept.id != "w/7/b"));
    }

    #[tokio::test]
    async fn a_definition_is_stored_again_when_it_changes_and_after_a_while() {
        let clock = TestClock::new();
        let world = MemoryWorld::new(Arc::new(clock.clone()));
        let store = async |body: &str| {
            clock.advance("1s");
            store(&world, vec![record(1, body)], clock.now()).await.unwrap();
            (clock.now().since(stored(&world).await[0].at), stored(&world).await[0].body.clone())
        };
        assert_eq!(store("1").await, (Duration::ZERO, "1".into()));
        assert_eq!(store("1").await.0, Duration::from_secs(1));
        assert_eq!(store("2").await, (Duration::ZERO, "2".into()));
        clock.advance("1h");
        assert_eq!(store("2").await.0, Duration::ZERO);
    }
}
