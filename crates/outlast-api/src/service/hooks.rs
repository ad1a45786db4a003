//! Open hooks.

use outlast_core::{RunId, RunView, Status, Wait};

use super::Service;
use super::list::query;
use super::problems::of_error;
use crate::cursor::{Cursor, PageDirection};
use crate::hook::{HookFilter, OpenHookJson};
use crate::page::{ItemPage, PageRequest};
use crate::problem::Problem;
use crate::query::QueryPairs;
use crate::runs::RunFilter;

impl Service {
    /// `GET /api/hooks`: the hooks that runs wait for, those of the newest runs first. A page may be short.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `cursor_mismatch`.
    pub async fn hooks(&self, filter: &HookFilter) -> Result<ItemPage<OpenHookJson>, Problem> {
        let filters = HookFilter { page: PageRequest::default(), ..filter.clone() }.to_query();
        let waiting = RunFilter {
            statuses: vec![Status::Waiting],
            workflow: filter.workflow.clone(),
            page: PageRequest { limit: filter.page.limit, cursor: None },
            ..RunFilter::default()
        };
        let mut query = query(&waiting)?;
        if let Some(Cursor { position, .. }) = filter.page.cursor(&filters)? {
            query.after = Some(RunId::from_bits(position));
        }
        let page = self.client.runs(query).await.map_err(of_error)?;
        let cursor = |run: RunId| Cursor::new(&filters, PageDirection::Next, run.bits()).to_string();
        Ok(ItemPage {
            items: page.runs.iter().flat_map(|run| hooks_of(run, filter)).collect(),
            next: page.next.map(cursor),
            prev: None,
        })
    }
}

fn hooks_of<'a>(run: &'a RunView, filter: &'a HookFilter) -> impl Iterator<Item = OpenHookJson> + 'a {
    let is_old = filter.opened_before.is_none_or(|before| run.updated_at < before.0);
    run.waits.iter().filter(move |_| is_old).filter_map(move |wait| {
        let Wait::Hook { name, .. } = wait else { return None };
        let is_wanted = filter.name.as_ref().is_none_or(|wanted| wanted == name);
        is_wanted.then(|| OpenHookJson {
            name: name.clone(),
            run: run.id,
            op: wait.op().0,
            workflow: run.workflow.to_string(),
            key: run.key.clone(),
            since: run.updated_at.into(),
            until: wait.until().map(Into::into),
        })
    })
}
