//! The audit: a record for each request that changes something, and for each one that a known caller was refused.
//!
//! The record of a change is written twice: before the change, as an intention, and after it, with its outcome. If the
//! first cannot be written, the change is not made. Records are kept for [`KEPT`], and the oldest are deleted earlier if
//! the space is full. Ids begin with the time, so that a page is a range.
//!
//! Requests that change nothing cost their caller nothing, so they must not fill the space: a caller could repeat one until
//! the records of what it did before are gone. Each actor may have [`UNCHANGED_MAX`] records of such requests at once, and one
//! more each [`UNCHANGED_EVERY`]. Beyond that, the intention of a request is deleted as soon as it is known that nothing was
//! changed, and refusals and logins are not stored.

use std::collections::HashMap;
use std::time::Duration;

use outlast::WorldError;
use outlast_core::limits::{RECORD_BYTES_MAX, RECORDS_BATCH_MAX};
use outlast_core::{ListOrder, NewRecord, RecordQuery, StoredRecord, Timestamp};

use super::problems::of_world;
use super::{Caller, Service, machine_time};
use crate::audit::{AuditFilter, AuditJson, AuditOutcome};
use crate::cursor::{Cursor, PageDirection};
use crate::page::ItemPage;
use crate::problem::{Problem, ProblemCode};

/// The space of the records.
const AUDIT: &str = "audit";

/// How long records are kept.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3_600);

/// How often old records are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// The records that one request looks at.
const LOOKS_MAX: usize = 5_000;

/// Bytes of a reason, a target, an address or an id of a request in a record.
const TEXT_BYTES_MAX: usize = 1_024;

/// The records of one actor about requests that changed nothing: those stored at once, and the time until one more is.
const UNCHANGED_MAX: f64 = 500.0;
const UNCHANGED_EVERY: Duration = Duration::from_secs(60);

/// The number of actors with such records that are known at the same time.
const ACTORS_MAX: usize = 10_000;

/// When old records were looked for, and how many records about nothing each actor may still have.
#[derive(Debug, Default)]
pub(super) struct AuditState {
    pruned_at: Option<Timestamp>,
    unchanged: HashMap<String, UnchangedLeft>,
}

/// How many requests of an actor that change nothing are still stored.
#[derive(Clone, Copy, Debug)]
struct UnchangedLeft {
    records: f64,
    at: Timestamp,
}

impl UnchangedLeft {
    /// The number at a later time.
    fn records_at(&self, now: Timestamp) -> f64 {
        let more = now.since(self.at).as_secs_f64() / UNCHANGED_EVERY.as_secs_f64();
        (self.records + more).min(UNCHANGED_MAX)
    }
}

impl AuditState {
    /// Whether another request of this actor that changed nothing is stored.
    fn takes_unchanged(&mut self, actor: &str, now: Timestamp) -> bool {
        if self.unchanged.len() >= ACTORS_MAX && !self.unchanged.contains_key(actor) {
            self.unchanged.retain(|_, left| left.records_at(now) < UNCHANGED_MAX);
            if self.unchanged.len() >= ACTORS_MAX {
                // So many actors are not misbehaving one by one. None of them is favoured for long.
                self.unchanged.clear();
            }
        }
        let begin = UnchangedLeft { records: UNCHANGED_MAX, at: now };
        let left = self.unchanged.entry(actor.to_owned()).or_insert(begin);
        let records = left.records_at(now);
        let takes = records >= 1.0;
        *left = UnchangedLeft { records: if takes { records - 1.0 } else { records }, at: now };
        takes
    }

    /// Whether the time has come to delete old records. Then the next one is [`PRUNE_EVERY`] later.
    fn is_prune_due(&mut self, now: Timestamp) -> bool {
        let is_due = self.pruned_at.is_none_or(|at| now.since(at) >= PRUNE_EVERY);
        if is_due {
            self.pruned_at = Some(now);
        }
        is_due
    }
}

/// A record of the audit before it is stored.
pub type NewAudit = AuditJson;

impl Service {
    /// A record about a request of a caller that is made now, without an outcome.
    pub fn new_audit(&self, caller: &Caller, action: &str, route: &str) -> NewAudit {
        AuditJson {
            id: String::new(),
            at: self.now(),
            actor: caller.actor.clone(),
            role: Some(caller.role),
            action: action.into(),
            route: route.into(),
            run: None,
            target: None,
            outcome: AuditOutcome::Intended,
            status: None,
            code: None,
            reason: None,
            address: None,
            request: None,
        }
    }

    /// Stores a record before its change is made. The change must not be made if this fails.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn audit_intent(&self, record: NewAudit) -> Result<AuditJson, Problem> {
        let bits =
            (u128::from(record.at.0.as_micros().max(0).unsigned_abs()) << 64) | u128::from(random_bits());
        let record = AuditJson { id: format!("{bits:032x}"), ..shortened(record) };
        self.put_audit(&record).await.map_err(|error| {
            tracing::error!(%error, "a record of the audit cannot be written");
            let detail = "the audit cannot be written, so the action was not done; try again later";
            Problem::new(ProblemCode::Unavailable, detail)
        })?;
        Ok(record)
    }

    /// Stores what became of a change whose intention was stored. A failure is only logged: the change was made.
    ///
    /// If nothing was changed and the actor has many records of such requests, the intention is deleted instead.
    pub async fn audit_outcome(&self, record: AuditJson) {
        let has_changed = matches!(record.outcome, AuditOutcome::Intended | AuditOutcome::Done);
        let is_kept = has_changed || self.audit.lock().takes_unchanged(&record.actor, machine_time());
        let written = match is_kept {
            true => self.put_audit(&shortened(record.clone())).await,
            false => {
                let world = self.client.world();
                world.delete_records(AUDIT, std::slice::from_ref(&record.id)).await.map(drop)
            }
        };
        if let Err(error) = written {
            tracing::error!(%error, audit = record.id, outcome = %record.outcome, "an outcome cannot be written to the audit");
        }
    }

    /// Stores a request that changes nothing, such as a refusal or a login. Beyond a rate, those of an actor are not stored.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn audit_unchanged(&self, record: NewAudit) -> Result<(), Problem> {
        let is_stored = self.audit.lock().takes_unchanged(&record.actor, machine_time());
        if is_stored { self.audit_intent(record).await.map(drop) } else { Ok(()) }
    }

    /// `GET /api/audit`: the newest first.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `cursor_mismatch`.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<ItemPage<AuditJson>, Problem> {
        let (filters, limit) = (filter.filters(), filter.page.limit());
        let before_time = filter.to.map(|to| id_of_time(to.0));
        let cursor = filter.page.cursor(&filters)?.map(|cursor| format!("{:032x}", cursor.position));
        let mut after = cursor.or(before_time);
        let oldest = filter.from.map(|from| id_of_time(from.0)).unwrap_or_default();
        let (mut items, mut looks) = (Vec::new(), 0);
        let is_more = loop {
            let page = self.audit_page(after.clone()).await?;
            let is_last_page = page.len() < RECORDS_BATCH_MAX;
            let mut is_over = false;
            for record in &page {
                is_over = record.id < oldest || items.len() >= limit;
                if is_over {
                    break;
                }
                after = Some(record.id.clone());
                items.extend(Some(read(record)).filter(|record| filter.wants(record)));
            }
            looks += page.len();
            if is_over || is_last_page {
                break items.len() >= limit && is_over;
            }
            if looks >= LOOKS_MAX {
                break true;
            }
        };
        let position = after.and_then(|id| u128::from_str_radix(&id, 16).ok());
        let next = position.filter(|_| is_more);
        let next = next.map(|position| Cursor::new(&filters, PageDirection::Next, position).to_string());
        Ok(ItemPage { items, next, prev: None })
    }

    async fn audit_page(&self, after: Option<String>) -> Result<Vec<StoredRecord>, Problem> {
        let query = RecordQuery { after, order: ListOrder::NewestFirst, ..RecordQuery::of_space(AUDIT) };
        self.client.world().records(query).await.map_err(of_world)
    }

    async fn put_audit(&self, record: &AuditJson) -> Result<(), WorldError> {
        let world = self.client.world();
        let is_prune_due = self.audit.lock().is_prune_due(machine_time());
        if is_prune_due {
            self.prune_audit(world.clock().now().minus(KEPT)).await?;
        }
        let body = serde_json::to_string(record).unwrap_or_default();
        let new = || vec![NewRecord { id: record.id.clone(), body: body.clone() }];
        match world.put_records(AUDIT, new()).await {
            // The space is full: the oldest records go.
            Err(WorldError::Limit(_)) if body.len() <= RECORD_BYTES_MAX => {
                let oldest = world.records(RecordQuery::of_space(AUDIT)).await?;
                let ids: Vec<String> = oldest.into_iter().map(|record| record.id).collect();
                world.delete_records(AUDIT, &ids).await?;
                world.put_records(AUDIT, new()).await
            }
            answer => answer,
        }
    }

    /// Deletes the records from before a time.
    async fn prune_audit(&self, before: Timestamp) -> Result<(), WorldError> {
        let (world, before) = (self.client.world(), id_of_time(before));
        loop {
            let oldest = world.records(RecordQuery::of_space(AUDIT)).await?;
            let is_last = oldest.len() < RECORDS_BATCH_MAX;
            let old: Vec<String> =
                oldest.into_iter().map(|record| record.id).take_while(|id| *id < before).collect();
            let is_done = is_last || old.len() < RECORDS_BATCH_MAX;
            if !old.is_empty() {
                world.delete_records(AUDIT, &old).await?;
            }
            if is_done {
                return Ok(());
            }
        }
    }
}

/// The lowest id of a record of this time.
fn id_of_time(at: Timestamp) -> String {
    format!("{:032x}", u128::from(at.as_micros().max(0).unsigned_abs()) << 64)
}

/// A stored record. One that this build cannot read is shown as unreadable, and breaks no list.
fn read(stored: &StoredRecord) -> AuditJson {
    let read = serde_json::from_str::<AuditJson>(&stored.body);
    let mut record = read.unwrap_or_else(|_| AuditJson {
        id: String::new(),
        at: stored.at.into(),
        actor: "?".into(),
        role: None,
        action: "?".into(),
        route: String::new(),
        run: None,
        target: None,
        outcome: AuditOutcome::Unreadable,
        status: None,
        code: None,
        reason: None,
        address: None,
        request: None,
    });
    record.id.clone_from(&stored.id);
    record
}

/// The record with texts that fit.
fn shortened(mut record: AuditJson) -> AuditJson {
    let texts = [&mut record.reason, &mut record.target, &mut record.address, &mut record.request];
    for text in texts.into_iter().flatten().chain([&mut record.actor, &mut record.action, &mut record.route])
    {
        if text.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
            text.truncate(end);
        }
    }
    record
}

/// Random bits: records of the same microsecond have different ids.
fn random_bits() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use crate::role::Role;
    use outlast::Client;

    use super::*;

    async fn service() -> Service {
        Service::new(Client::new(outlast::open("memory:").await.unwrap()))
    }

    fn caller(actor: &str) -> Caller {
        Caller { actor: actor.into(), scope: actor.into(), role: Role::Operate }
    }

    async fn did(service: &Service, actor: &str, action: &str) -> AuditJson {
        let record = service.new_audit(&caller(actor), action, "/api/runs/{id}/cancel");
        let stored = service.audit_intent(record).await.unwrap();
        let done = AuditJson { outcome: AuditOutcome::Done, status: Some(200), ..stored };
        service.audit_outcome(done.clone()).await;
        done
    }

    #[tokio::test]
    async fn an_intention_becomes_an_outcome_in_one_record() {
        let service = service().await;
        let record = service.new_audit(&caller("ada"), "cancel", "/api/runs/{id}/cancel");
        let stored = service.audit_intent(record).await.unwrap();
        let listed = service.audit(&AuditFilter::default()).await.unwrap().items;
        assert_eq!((listed.len(), listed[0].outcome), (1, AuditOutcome::Intended));
        service.audit_outcome(AuditJson { outcome: AuditOutcome::Done, ..stored.clone() }).await;
        let listed = service.audit(&AuditFilter::default()).await.unwrap().items;
        assert_eq!(listed, [AuditJson { outcome: AuditOutcome::Done, ..stored }]);
    }

    #[tokio::test]
    async fn the_audit_is_filtered_and_read_page_by_page() {
        let service = service().await;
        let mut all = Vec::new();
        for number in 0..7 {
            all.insert(0, did(&service, if number % 2 == 0 { "ada" } else { "grace" }, "cancel").await);
        }
        let mut filter = AuditFilter::default();
        filter.page.limit = Some(3);
        let mut read = Vec::new();
        loop {
            let page = service.audit(&filter).await.unwrap();
            assert!(page.items.len() <= 3);
            read.extend(page.items);
            filter.page.cursor = page.next;
            if filter.page.cursor.is_none() {
                break;
            }
        }
        assert_eq!(read, all, "the newest comes first, each once");
        let of_ada = AuditFilter { actor: Some("ada".into()), ..AuditFilter::default() };
        assert_eq!(service.audit(&of_ada).await.unwrap().items.len(), 4);
        let since = AuditFilter { from: Some(all[1].at), ..AuditFilter::default() };
        let recent = all.iter().filter(|record| record.at >= all[1].at).count();
        assert_eq!(service.audit(&since).await.unwrap().items.len(), recent);
        let before = AuditFilter { to: Some(all[1].at), ..AuditFilter::default() };
        let earlier = all.iter().filter(|record| record.at < all[1].at).count();
        assert_eq!(service.audit(&before).await.unwrap().items.len(), earlier);
    }

    #[tokio::test]
    async fn old_records_are_deleted_and_an_unreadable_one_breaks_no_list() {
        let service = service().await;
        let now = service.client.world().clock().now();
        let old = NewRecord { id: id_of_time(now.minus(KEPT)), body: "{}".into() };
        let odd = NewRecord { id: id_of_time(now.minus(KEPT / 2)), body: "what?".into() };
        service.client.world().put_records(AUDIT, vec![old, odd]).await.unwrap();
        did(&service, "ada", "cancel").await;
        let listed = service.audit(&AuditFilter::default()).await.unwrap().items;
        let outcomes: Vec<_> = listed.iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes, [AuditOutcome::Done, AuditOutcome::Unreadable]);
    }

    #[test]
    fn requests_that_change_nothing_are_stored_at_a_bounded_rate_for_each_actor() {
        let mut state = AuditState::default();
        let at = |minutes: i64| Timestamp::from_micros(minutes * 60_000_000);
        let mut stored = |actor: &str, now| (0..1_000).filter(|_| state.takes_unchanged(actor, now)).count();
        assert_eq!((stored("ada", at(0)), stored("ada", at(0)), stored("ada", at(10))), (500, 0, 10));
        assert_eq!(stored("grace", at(10)), 500, "one actor does not use up what another has");
        assert_eq!(stored("ada", at(100_000)), 500);
    }

    #[test]
    fn the_number_of_known_actors_is_limited() {
        let mut state = AuditState::default();
        for number in 0..2 * ACTORS_MAX {
            assert!(state.takes_unchanged(&number.to_string(), Timestamp::from_micros(0)));
        }
        assert!(state.unchanged.len() <= ACTORS_MAX);
    }

    #[tokio::test]
    async fn requests_that_change_nothing_do_not_push_out_what_was_done() {
        let service = service().await;
        let done = did(&service, "ada", "cancel").await;
        for outcome in [AuditOutcome::Failed, AuditOutcome::Unchanged, AuditOutcome::Refused] {
            for _ in 0..400 {
                let record = service.new_audit(&caller("mallory"), "cancel", "/api/runs/{id}/cancel");
                let stored = service.audit_intent(record).await.unwrap();
                service.audit_outcome(AuditJson { outcome, ..stored }).await;
            }
        }
        for action in ["pause", "log_in"] {
            let record = service.new_audit(&caller("mallory"), action, "/");
            service.audit_unchanged(AuditJson { outcome: AuditOutcome::Refused, ..record }).await.unwrap();
        }
        did(&service, "mallory", "terminate").await;
        let mut stored = Vec::new();
        let mut filter = AuditFilter::default();
        filter.page.limit = Some(1_000);
        for actor in ["ada", "mallory"] {
            filter.actor = Some(actor.into());
            stored.push(service.audit(&filter).await.unwrap().items);
        }
        assert_eq!(stored[0], [done], "the record of another actor is still there");
        let count = |outcome| stored[1].iter().filter(|record| record.outcome == outcome).count();
        assert_eq!((count(AuditOutcome::Done), count(AuditOutcome::Intended)), (1, 0));
        assert_eq!(stored[1].len(), 1 + UNCHANGED_MAX as usize, "what was changed is always stored");
    }
}
