//! The operations of a run.

use outlast_core::event::hidden_tokens::{GENERATED_TOKEN, hidden_value};
use outlast_core::view::AttemptView;
use outlast_core::view::operations;
use outlast_core::{OpNumber, OperationKind, OperationView, Payload, RunId, TurnRecord};

use super::Service;
use super::problems::of_error;
use crate::cursor::{Cursor, PageDirection};
use crate::hook::WebhookJson;
use crate::operation::{AttemptJson, OperationFilter, OperationJson, RejectionJson};
use crate::page::{ItemPage, PageRequest};
use crate::payload::PayloadAmount;
use crate::problem::{Problem, ProblemCode};
use crate::query::QueryPairs;

/// The number of attempts that are shown of one step.
const ATTEMPTS_SHOWN: usize = 100;

impl Service {
    /// `GET /api/runs/{id}/operations`.
    ///
    /// # Errors
    ///
    /// `not_found`, `cursor_mismatch`.
    pub async fn operations(
        &self,
        run: RunId,
        filter: &OperationFilter,
    ) -> Result<ItemPage<OperationJson>, Problem> {
        let plain = OperationFilter { page: PageRequest::default(), payloads: None, ..filter.clone() };
        let filters = format!("{run} {}", plain.to_query());
        let cursor = filter.page.cursor(&filters)?;
        let amount = filter.payloads.unwrap_or_default();
        let views = self.read_operations(run).await?;
        let wanted = views.iter().filter(|view| is_wanted(view, filter));
        let page = slice(wanted.collect(), |view| view.op.0, cursor, filter.page.limit());
        let mark = |direction, op: u64| Cursor::new(&filters, direction, op.into()).to_string();
        Ok(ItemPage {
            next: page.next.map(|op| mark(PageDirection::Next, op)),
            prev: page.prev.map(|op| mark(PageDirection::Previous, op)),
            items: page.items.iter().map(|view| self.operation_json(view, amount)).collect(),
        })
    }

    /// `GET /api/runs/{id}/operations/{op}`, with full payloads.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn operation(&self, run: RunId, op: u64) -> Result<OperationJson, Problem> {
        let views = self.read_operations(run).await?;
        let view = views.iter().find(|view| view.op == OpNumber(op));
        let not_found = || format!("run {run} has no operation {op}");
        let view = view.ok_or_else(|| Problem::new(ProblemCode::NotFound, not_found()))?;
        Ok(self.operation_json(view, PayloadAmount::Full))
    }

    async fn read_operations(&self, run: RunId) -> Result<Vec<OperationView>, Problem> {
        Ok(self.read_history(run).await?.1)
    }

    /// The whole history of a run, and its operations.
    pub(super) async fn read_history(
        &self,
        run: RunId,
    ) -> Result<(Vec<TurnRecord>, Vec<OperationView>), Problem> {
        let row = self.client.run(run).await.map_err(of_error)?;
        let history = self.client.history(run).await.map_err(of_error)?;
        let now = self.client.world().clock().now();
        let mut views = operations(&history);
        for view in views.iter_mut().filter(|view| view.is_attempted_in_place(now)) {
            view.crashed = row.crashes;
        }
        Ok((history, views))
    }

    pub(super) fn operation_json(&self, view: &OperationView, amount: PayloadAmount) -> OperationJson {
        let payload = |stored: &Option<_>| stored.as_ref().map(|stored| self.payload(stored, amount));
        OperationJson {
            op: view.op.0,
            kind: view.kind.as_str().into(),
            name: view.name.to_string(),
            status: view.status.as_str().into(),
            started_at: view.started_at.into(),
            changed_at: view.changed_at.into(),
            cancelled_at: view.cancelled_at.map(Into::into),
            ended_at: view.ended_at.map(Into::into),
            attempts: view.attempts.iter().take(ATTEMPTS_SHOWN).map(attempt).collect(),
            attempt_count: view.attempt_count,
            crashed: view.crashed,
            retry_at: view.retry_at.map(Into::into),
            until: view.until.map(Into::into),
            run: view.child,
            queue: view.queue.as_deref().map(Into::into),
            input: payload(&view.input),
            output: payload(&shown_output(view)),
            failure: view.failure.as_ref().map(Into::into),
            tags: view.tags.clone(),
            undoes: view.undoes.map(|op| op.0),
            rejected: view.rejected.iter().map(rejection).collect(),
            webhook: view.webhook.as_deref().map(WebhookJson::of),
            skipped: view.is_skipped,
        }
    }
}

fn attempt(view: &AttemptView) -> AttemptJson {
    AttemptJson {
        number: view.number,
        due_at: view.due_at.into(),
        ended_at: view.ended_at.map(Into::into),
        failure: view.failure.as_ref().map(Into::into),
        build: view.build.as_deref().map(Into::into),
    }
}

fn rejection(rejected: &outlast_core::Rejection) -> RejectionJson {
    RejectionJson {
        message: rejected.message.to_string(),
        at: rejected.at.into(),
        reason: rejected.reason.clone(),
    }
}

fn is_wanted(view: &OperationView, filter: &OperationFilter) -> bool {
    filter.kind.as_ref().is_none_or(|kind| view.kind.as_str() == kind)
        && filter.status.as_ref().is_none_or(|status| view.status.as_str() == status)
        && filter.name.as_ref().is_none_or(|name| *view.name == **name)
}

/// A page of elements that have numbers.
pub(super) struct NumberedPage<T> {
    pub(super) items: Vec<T>,
    /// The number of the last element, if there are more.
    pub(super) next: Option<u64>,
    /// The number of the first element, if there are others before.
    pub(super) prev: Option<u64>,
}

/// The page of a list at a cursor. The numbers rise or fall throughout the list.
pub(super) fn slice<T>(
    items: Vec<T>,
    number: impl Fn(&T) -> u64,
    cursor: Option<Cursor>,
    limit: usize,
) -> NumberedPage<T> {
    let is_rising = items.first().map(&number) <= items.last().map(&number);
    let is_behind = |item: &T, position: u128| {
        let number = u128::from(number(item));
        if is_rising { number > position } else { number < position }
    };
    let (begin, end) = match cursor {
        None => (0, limit),
        Some(Cursor { direction: PageDirection::Next, position, .. }) => {
            let begin = items.iter().position(|item| is_behind(item, position)).unwrap_or(items.len());
            (begin, begin + limit)
        }
        Some(Cursor { position, .. }) => {
            let is_at_or_behind =
                |item: &T| u128::from(number(item)) == position || is_behind(item, position);
            let end = items.iter().position(is_at_or_behind).unwrap_or(items.len());
            (end.saturating_sub(limit), end)
        }
    };
    let end = end.min(items.len());
    let next = (end < items.len()).then(|| items[..end].last().map(&number)).flatten();
    let prev = (begin > 0).then(|| items.get(begin).map(&number)).flatten();
    let items = items.into_iter().skip(begin).take(end.saturating_sub(begin)).collect();
    NumberedPage { items, next, prev }
}

/// The output of an operation. A generated token is hidden: readers must not get what lets them send.
fn shown_output(view: &OperationView) -> Option<Payload> {
    let output = view.output.as_ref()?;
    let is_token = view.kind == OperationKind::Value && *view.name == *GENERATED_TOKEN;
    match is_token {
        true => output.codec().is_none().then(|| hidden_value(output)),
        false => Some(output.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages of a list, forwards and then backwards.
    fn pages(items: &[u64], limit: usize) -> (Vec<Vec<u64>>, Vec<Vec<u64>>) {
        let cursor = |direction, position: u64| Some(Cursor::new("", direction, position.into()));
        let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
        let mut page = slice(items.to_vec(), |item| *item, None, limit);
        while let Some(next) = page.next {
            forwards.push(page.items);
            page = slice(items.to_vec(), |item| *item, cursor(PageDirection::Next, next), limit);
        }
        forwards.push(page.items);
        while let Some(prev) = page.prev {
            page = slice(items.to_vec(), |item| *item, cursor(PageDirection::Previous, prev), limit);
            backwards.push(page.items);
        }
        (forwards, backwards)
    }

    #[test]
    fn pages_cover_a_list_once_in_both_directions() {
        let (forwards, backwards) = pages(&[1, 2, 4, 7, 9], 2);
        assert_eq!(forwards, [vec![1, 2], vec![4, 7], vec![9]]);
        assert_eq!(backwards, [vec![4, 7], vec![1, 2]]);
        let (forwards, backwards) = pages(&[9, 7, 4], 2);
        assert_eq!((forwards, backwards), (vec![vec![9, 7], vec![4]], vec![vec![9, 7]]));
        assert_eq!(pages(&[], 2), (vec![vec![]], vec![]));
    }
}
