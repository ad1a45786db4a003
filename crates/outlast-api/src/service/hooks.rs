//! Open hooks.

use outlast_core::{RunId, RunView, Status, Wait};

use super::list::query;
use super::problems::of_error;
use super::{Caller, Service};
use crate::cursor::{Cursor, PageDirection};
use crate::hook::{HookFilter, OpenHookJson, WebhookJson};
use crate::page::{ItemPage, PageRequest};
use crate::problem::Problem;
use crate::query::QueryPairs;
use crate::role::Role;
use crate::runs::RunFilter;

impl Service {
    /// `GET /api/hooks`: the hooks that runs wait for, those of the newest runs first. A page may be short. The URLs of
    /// webhooks are for callers who may send to hooks.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `cursor_mismatch`.
    pub async fn hooks(
        &self,
        caller: &Caller,
        filter: &HookFilter,
    ) -> Result<ItemPage<OpenHookJson>, Problem> {
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
        let mut items: Vec<_> = page.runs.iter().flat_map(|run| hooks_of(run, filter)).collect();
        for (hook, token) in &mut items {
            hook.webhook = match token {
                Some(token) => self.webhook_of(caller, token).await?,
                None => None,
            };
        }
        let items = items.into_iter().map(|(hook, _)| hook);
        Ok(ItemPage {
            items: items.filter(|hook| filter.kind.is_none_or(|kind| kind == hook.kind())).collect(),
            next: page.next.map(cursor),
            prev: None,
        })
    }
}

impl Service {
    /// The webhook under a token, if it is one.
    async fn webhook_of(&self, caller: &Caller, token: &str) -> Result<Option<WebhookJson>, Problem> {
        let Some(view) = self.client.token(token).await.map_err(of_error)? else { return Ok(None) };
        Ok(view.webhook.map(|terms| {
            let url = caller.role.includes(Role::Operate).then(|| terms.url(token)).flatten();
            WebhookJson { url, ..WebhookJson::of(&terms) }
        }))
    }

    /// The URL of the webhook that an operation has opened, for callers who may send to hooks.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn webhook_url(&self, caller: &Caller, run: RunId, op: u64) -> Result<Option<String>, Problem> {
        if !caller.role.includes(Role::Operate) {
            return Ok(None);
        }
        let (_, views) = self.read_history(run).await?;
        let view = views.iter().find(|view| view.op.0 == op);
        Ok(view.and_then(|view| view.webhook.as_ref()?.url(view.token.as_deref()?)))
    }
}

fn hooks_of<'a>(
    run: &'a RunView,
    filter: &'a HookFilter,
) -> impl Iterator<Item = (OpenHookJson, Option<&'a str>)> + 'a {
    let is_old = filter.opened_before.is_none_or(|before| run.updated_at < before.0);
    run.waits.iter().filter(move |_| is_old).filter_map(move |wait| {
        let Wait::Hook { name, token, .. } = wait else { return None };
        let is_wanted = filter.name.as_ref().is_none_or(|wanted| wanted == name);
        is_wanted.then(|| {
            let hook = OpenHookJson {
                name: name.clone(),
                run: run.id,
                op: wait.op().0,
                workflow: run.workflow.to_string(),
                key: run.key.clone(),
                since: run.updated_at.into(),
                until: wait.until().map(Into::into),
                has_token: token.is_some(),
                webhook: None,
            };
            (hook, token.as_deref())
        })
    })
}
