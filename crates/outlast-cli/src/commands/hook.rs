//! `hook list`: the hooks that runs wait for.

use outlast_api::{HookFilter, OpenHookJson, PageRequest};

use super::CommandContext;
use crate::args::HookListArgs;
use crate::exit::{CommandError, Exit};
use crate::output::ids::short_id;
use crate::output::{Align, Table, one_line, times};

/// Lists open hooks.
pub(super) async fn list(context: &CommandContext, args: &HookListArgs) -> Result<Exit, CommandError> {
    let (console, surface) = (&context.console, context.surface().await?);
    let page = PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None };
    let (name, workflow) = (args.name.clone(), args.workflow.clone());
    let mut filter = HookFilter { name, workflow, kind: args.kind, opened_before: None, page };
    let mut hooks = surface.hooks(&filter).await?;
    while hooks.items.len() < args.limit as usize
        && let Some(next) = hooks.next.take()
    {
        filter.page.cursor = Some(next);
        let more = surface.hooks(&filter).await?;
        hooks.items.extend(more.items);
        hooks.next = more.next;
    }
    hooks.items.truncate(args.limit as usize);
    console.page(&hooks, &hooks.items)?;
    if console.is_for_people() && hooks.items.is_empty() {
        console.message("no run waits for a hook");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("HOOK", Align::Left),
        ("KIND", Align::Left),
        ("RUN", Align::Left),
        ("WORKFLOW", Align::Left),
        ("KEY", Align::Left),
        ("SINCE", Align::Right),
        ("UNTIL", Align::Left),
        ("URL", Align::Left),
    ]);
    let now = console.now();
    for hook in &hooks.items {
        table.row([
            one_line(&hook.name).into_owned(),
            kind(hook),
            short_id(console.look, hook.run),
            one_line(&hook.workflow).into_owned(),
            hook.key.as_deref().map(|key| one_line(key).into_owned()).unwrap_or_default(),
            times::age(now, hook.since.0),
            hook.until.map(|until| times::age(now, until.0)).unwrap_or_default(),
            hook.webhook.as_ref().and_then(|webhook| webhook.url.as_deref()).unwrap_or_default().to_owned(),
        ]);
    }
    console.lines(table.without_empty_columns().lines(console.look))?;
    Ok(Exit::Done)
}

/// What kind of hook it is, and what a webhook accepts; empty for a plain hook.
fn kind(hook: &OpenHookJson) -> String {
    match &hook.webhook {
        Some(webhook) => {
            let signed = webhook.secret.as_deref().map(|secret| format!(", signed ({})", one_line(secret)));
            format!("webhook {}{}", webhook.methods.join("/"), signed.unwrap_or_default())
        }
        None if hook.has_token => "token".into(),
        None => String::new(),
    }
}
