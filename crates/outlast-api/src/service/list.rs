//! Lists of runs, and their numbers.

use std::collections::BTreeMap;

use outlast_core::{BuiltInRuns, FlagFilter, ListOrder, Marks, Page, QueuedSteps, RunId, RunQuery, Status};

use super::problems::{of_error, of_world};
use super::{Service, convert};
use crate::cursor::{Cursor, PageDirection};
use crate::page::{ChildrenJson, ItemPage, PageRequest};
use crate::problem::Problem;
use crate::run::RunJson;
use crate::runs::{CountsJson, RunFilter, RunFlag, RunListOrder};

/// The statuses of runs that have not ended.
pub(super) const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];

/// The number of children that are counted by status.
const CHILDREN_COUNTED: usize = 1_000;

impl Service {
    /// `GET /api/runs`.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `cursor_mismatch`.
    pub async fn runs(&self, filter: &RunFilter) -> Result<ItemPage<RunJson>, Problem> {
        let filters = filter.filters();
        let mut query = query(filter)?;
        match filter.page.cursor(&filters)? {
            Some(Cursor { direction: PageDirection::Next, position, .. }) => {
                query.after = Some(RunId::from_bits(position));
            }
            Some(Cursor { position, .. }) => query.before = Some(RunId::from_bits(position)),
            None => {}
        }
        let page = self.client.runs(query).await.map_err(of_error)?;
        Ok(item_page(&page, &filters))
    }

    /// `GET /api/runs/{id}/children`.
    ///
    /// # Errors
    ///
    /// `not_found`, `cursor_mismatch`.
    pub async fn children(&self, run: RunId, page: &PageRequest) -> Result<ChildrenJson, Problem> {
        self.client.run(run).await.map_err(of_error)?;
        let filter = RunFilter {
            parent: Some(run),
            order: RunListOrder::OldestFirst,
            page: page.clone(),
            ..RunFilter::default()
        };
        let ItemPage { items, next, prev } = self.runs(&filter).await?;
        let all = RunQuery { limit: CHILDREN_COUNTED, ..query(&filter)? };
        let all = self.client.runs(all).await.map_err(of_error)?;
        let mut counts = BTreeMap::new();
        for child in &all.runs {
            *counts.entry(child.status.as_str().to_owned()).or_default() += 1;
        }
        Ok(ChildrenJson { items, next, prev, counts, more: all.next.is_some() })
    }

    /// `GET /api/counts`.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn counts(&self) -> Result<CountsJson, Problem> {
        let (client, flags) = (&self.client, self.client.world().flag_counts());
        let (counts, marks, flags) =
            futures_util::future::join3(client.counts(), client.mark_counts(), flags).await;
        let flags = flags.map_err(of_world)?;
        let counts = counts.map_err(of_error)?.into_iter();
        let marks = marks.map_err(of_error)?.into_iter();
        Ok(CountsJson {
            counts: counts.map(|(status, runs)| (status.as_str().into(), runs)).collect(),
            marks: marks.map(|(mark, runs)| (mark.to_string(), runs)).collect(),
            flags: [("retrying".into(), flags.retrying), ("cancelling".into(), flags.cancelling)].into(),
            as_of: self.now(),
        })
    }
}

fn item_page(page: &Page, filters: &str) -> ItemPage<RunJson> {
    let cursor = |direction, run: RunId| Cursor::new(filters, direction, run.bits()).to_string();
    ItemPage {
        items: page.runs.iter().map(convert::run).collect(),
        next: page.next.map(|run| cursor(PageDirection::Next, run)),
        prev: page.prev.map(|run| cursor(PageDirection::Previous, run)),
    }
}

/// The query of the first page of a list.
pub(super) fn query(filter: &RunFilter) -> Result<RunQuery, Problem> {
    let mut statuses = filter.statuses.clone();
    if filter.open {
        if !statuses.is_empty() {
            return Err(Problem::field("?open", "it cannot be combined with `status`"));
        }
        statuses = OPEN.into();
    }
    Ok(RunQuery {
        statuses,
        marks: marks(&filter.marks)?,
        workflow: filter.workflow.as_deref().map(Into::into),
        queue: filter.queue.as_deref().map(Into::into),
        queued_steps: if filter.queued_steps { QueuedSteps::Listed } else { QueuedSteps::LeftOut },
        built_in: if filter.built_in { BuiltInRuns::Listed } else { BuiltInRuns::LeftOut },
        flag: filter.flag.map(flag),
        ended_from: filter.ended_from.map(|time| time.0),
        ended_before: filter.ended_before.map(|time| time.0),
        key: filter.key.clone(),
        parent: filter.parent,
        root: filter.root,
        tags: filter.tags.clone(),
        created_from: filter.created_from.map(|time| time.0),
        created_before: filter.created_before.map(|time| time.0),
        text: filter.text.clone(),
        order: match filter.order {
            RunListOrder::NewestFirst => ListOrder::NewestFirst,
            RunListOrder::OldestFirst => ListOrder::OldestFirst,
        },
        limit: filter.page.limit(),
        ..RunQuery::default()
    })
}

fn flag(flag: RunFlag) -> FlagFilter {
    match flag {
        RunFlag::Retrying => FlagFilter::Retrying,
        RunFlag::Cancelling => FlagFilter::Cancelling,
    }
}

fn marks(names: &[String]) -> Result<Marks, Problem> {
    names.iter().try_fold(Marks::NONE, |marks, name| {
        let found = Marks::ALL.into_iter().find(|mark| mark.to_string() == *name);
        let found = found.ok_or_else(|| {
            Problem::field("?mark", "expected paused, compensating, compensated or quarantined")
        })?;
        Ok(marks.with(found))
    })
}
