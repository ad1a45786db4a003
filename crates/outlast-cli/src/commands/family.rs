//! `run children`: the children of a run.

use outlast_api::PageRequest;

use super::CommandContext;
use super::list::print;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;

/// Prints the children of a run.
pub(super) async fn children(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, text).await?;
    let mut request = PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None };
    let mut all = surface.children(id, &request).await?;
    while let Some(next) = all.next.take() {
        request.cursor = Some(next);
        let page = surface.children(id, &request).await?;
        all.items.extend(page.items);
        all.next = page.next;
    }
    console.page(&all, &all.items)?;
    print(console, &all.items, false)?;
    if console.is_for_people() {
        let counts = all.counts.iter().filter(|(_, count)| **count > 0);
        let counts: Vec<_> = counts.map(|(status, count)| format!("{count} {status}")).collect();
        console.message(if counts.is_empty() { "no children".into() } else { counts.join(", ") });
    }
    Ok(Exit::Done)
}
