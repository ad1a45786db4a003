//! The model: a list of runs and a list of sessions.

use std::collections::BTreeMap;

use outlast_core::event::format_of_rules;
use outlast_core::refusal::{check_start, key_taken};
use outlast_core::{
    Code, Counts, FailedBuilds, HeartbeatDetails, HolderColumns, Join, KeyPolicy, ListOrder, Message,
    MessageBody, MessageId, OpNumber, Page, Pruned, Report, RunId, RunQuery, RunView, Sent, SessionId, Start,
    Started, Status, Stuck, Timestamp, TurnId, TurnRecord, WorldError,
};

use super::outboxes::Outboxes;

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Conflict,
    Fenced,
    Limit,
    Other,
}

impl From<WorldError> for Refusal {
    fn from(error: WorldError) -> Self {
        match error {
            WorldError::NotFound(_) => Self::NotFound,
            WorldError::Conflict(_) => Self::Conflict,
            WorldError::Fenced(_) => Self::Fenced,
            WorldError::Limit(_) => Self::Limit,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) runs: Vec<ModelRun>,
    pub(super) sessions: Vec<ModelSession>,
    pub(super) outboxes: Outboxes,
}

#[derive(Debug)]
pub(super) struct ModelRun {
    pub(super) start: Start,
    pub(super) view: RunView,
    pub(super) history: Vec<TurnRecord>,
    pub(super) turn: TurnId,
    pub(super) turn_at: Timestamp,
    pub(super) inbox: Vec<Message>,
    /// The time from which it is ready.
    pub(super) ready_at: Option<Timestamp>,
    pub(super) last_holder: Option<SessionId>,
    pub(super) crashes: u32,
    /// Why it is stuck, or was stuck when it was claimed.
    pub(super) stuck: Option<Stuck>,
    pub(super) failed: FailedBuilds,
    /// The answer to each message.
    pub(super) answers: Vec<(MessageId, Sent)>,
    /// The heartbeat details of attempts, by step.
    pub(super) details: BTreeMap<OpNumber, HeartbeatDetails>,
}

#[derive(Debug)]
pub(super) struct ModelSession {
    pub(super) join: Join,
    pub(super) beat_at: Timestamp,
    pub(super) report: Report,
    pub(super) expires_at: Timestamp,
    pub(super) is_dead: bool,
}

impl ModelRun {
    pub(super) fn new(start: Start, first: TurnRecord, now: Timestamp) -> Self {
        let begins_at = start.not_before.filter(|at| *at > now);
        let mut view = RunView::of_columns(start.run, Status::Pending, &HolderColumns::default());
        view.workflow = start.workflow.clone();
        view.version = start.version;
        view.queue = start.queue.clone();
        view.priority = start.priority;
        view.key = start.key.as_ref().map(|key| key.text.clone());
        view.created_at = now;
        view.updated_at = now;
        view.wake_at = begins_at;
        view.format = format_of_rules(start.rules);
        view.parent = start.parent;
        view.tags = start.tags.clone();
        view.deadline = start.deadline;
        Self {
            start,
            view,
            turn: first.id,
            turn_at: first.at,
            history: vec![first],
            inbox: Vec::new(),
            ready_at: Some(begins_at.unwrap_or(now)),
            last_holder: None,
            crashes: 0,
            stuck: None,
            failed: FailedBuilds::default(),
            answers: Vec::new(),
            details: BTreeMap::new(),
        }
    }

    pub(super) fn seq(&self) -> u64 {
        self.history.iter().map(|turn| turn.events.len() as u64).sum()
    }

    pub(super) fn unread(&self) -> &[Message] {
        &self.inbox[self.view.consumed as usize..]
    }

    pub(super) fn code(&self) -> Code {
        Code { workflow: self.start.workflow.clone(), version: self.start.version }
    }

    pub(super) fn needs_no_code(&self) -> bool {
        let is_fresh = self.seq() == 1;
        self.unread().iter().any(|message| match message.body {
            MessageBody::Terminate { .. } | MessageBody::Compensate { .. } => true,
            MessageBody::Cancel { .. } => is_fresh,
            _ => false,
        })
    }

    /// The columns that only its holder changes.
    pub(super) fn columns(&self) -> HolderColumns {
        HolderColumns {
            crashes: self.crashes,
            kept: self.view.kept,
            deadline: self.view.deadline,
            stuck: self.stuck.clone().map(Box::new),
            failed_builds: self.failed.clone(),
            marks: self.view.marks,
            replay_from: 0,
            continued: 0,
            is_retrying: self.view.is_retrying,
            failure: self.view.failure.clone(),
        }
    }

    /// Updates the view from the other fields.
    pub(super) fn update_view(&mut self) {
        self.view.crashes = self.crashes;
        self.view.failed_builds = self.failed.clone();
        self.view.stuck = self.stuck.clone().filter(|_| self.view.status == Status::Stuck);
    }
}

impl Model {
    pub(super) fn find(&mut self, run: RunId) -> Option<&mut ModelRun> {
        self.runs.iter_mut().find(|other| other.view.id == run)
    }

    pub(super) fn is_live(&self, session: SessionId) -> bool {
        self.sessions.iter().any(|other| other.join.session == session)
    }

    pub(super) fn held(&self, session: SessionId) -> Vec<RunId> {
        let held = self.runs.iter().filter(|run| run.view.owner == Some(session));
        held.map(|run| run.view.id).collect()
    }

    pub(super) fn start(&mut self, start: Start, now: Timestamp) -> Result<Started, WorldError> {
        if let Some(existed) = self.started_before(&start, now)? {
            return Ok(existed);
        }
        let known = self.sessions.iter().map(|session| session.join.rules);
        let start = Start { rules: known.chain([start.rules]).min().unwrap_or(start.rules), ..start };
        let run = start.run;
        let first = start.first_turn(now);
        self.add(ModelRun::new(start, first, now));
        Ok(Started { run, is_new: true })
    }

    pub(super) fn started_before(
        &self,
        start: &Start,
        now: Timestamp,
    ) -> Result<Option<Started>, WorldError> {
        check_start(start)?;
        for run in &self.runs {
            if run.view.id == start.run {
                return Ok(Some(Started { run: start.run, is_new: true }));
            }
        }
        let Some(key) = &start.key else { return Ok(None) };
        for run in &self.runs {
            let Some(known) = &run.start.key else { continue };
            if known.text == key.text {
                let is_free =
                    start.replaces() || key.policy == KeyPolicy::WhileRunning && run.view.status.is_final();
                if is_free || key.window.is_some_and(|window| now.since(run.view.created_at) >= window) {
                    return Ok(None);
                }
                let is_same = known.digest == key.digest && run.start.workflow == start.workflow;
                let existed = Started { run: run.view.id, is_new: false };
                let taken = key_taken(start, run.view.id, &run.start.workflow);
                return if is_same { Ok(Some(existed)) } else { Err(taken) };
            }
        }
        Ok(None)
    }

    /// Adds a run. An older run with the same key loses it.
    pub(super) fn add(&mut self, new: ModelRun) {
        for run in self.runs.iter_mut().filter(|run| new.view.key.is_some() && run.view.key == new.view.key) {
            run.view.key = None;
            run.start.key = None;
        }
        self.runs.push(new);
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = BTreeMap::new();
        for run in &self.runs {
            *counts.entry(run.view.status).or_default() += 1;
        }
        counts
    }

    /// The runs as a list shows them, without the times of their last updates.
    pub(super) fn views(&self) -> Vec<RunView> {
        let mut views: Vec<_> = self.runs.iter().map(|run| without_update_times(run.view.clone())).collect();
        views.sort_by_key(|view| view.id);
        views
    }

    pub(super) fn page(&self, query: &RunQuery) -> Page {
        let mut views = self.views();
        views.retain(|view| query.wants(view));
        let is_backwards = query.before.is_some() && query.after.is_none();
        if (query.order == ListOrder::NewestFirst) != is_backwards {
            views.reverse();
        }
        query.page(views, query.limit)
    }

    pub(super) fn prune(&mut self, before: Timestamp, after: Option<RunId>, limit: usize) -> Pruned {
        let mut ids: Vec<RunId> = self.runs.iter().map(|run| run.view.id).collect();
        ids.sort();
        ids.retain(|run| after.is_none_or(|after| *run > after));
        ids.truncate(limit);
        let (there_were, outboxes) = (self.runs.len(), &self.outboxes);
        self.runs.retain(|run| {
            let has_ended = run.view.ended_at.is_some_and(|ended_at| ended_at < before);
            !ids.contains(&run.view.id) || !has_ended || outboxes.has(run.view.id)
        });
        let next = if ids.len() == limit { ids.last().copied() } else { None };
        Pruned { runs: (there_were - self.runs.len()) as u64, next }
    }
}

pub(super) fn without_update_times(mut view: RunView) -> RunView {
    view.updated_at = view.created_at;
    view.retry_at = None;
    view
}
