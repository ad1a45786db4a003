//! `run steps`: the operations of a run.

use outlast_api::{ItemPage, OperationFilter, OperationJson, PageRequest};

use super::CommandContext;
use super::show::operations_table;
use crate::args::StepsArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;

/// Prints the steps or all operations of a run.
pub(super) async fn steps(context: &CommandContext, args: &StepsArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let payloads = args.payloads.as_deref().map(str::parse).transpose();
    let mut filter = OperationFilter {
        kind: (!args.all).then(|| "step".to_owned()),
        status: args.status.clone(),
        name: args.name.clone(),
        payloads: payloads.map_err(|error| CommandError::usage(format!("--payloads: {error}")))?,
        page: PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None },
    };
    let surface = context.surface().await?;
    let id = find_run(&*surface, &args.run.run).await?;
    let mut items: Vec<OperationJson> = Vec::new();
    loop {
        let page = surface.operations(id, &filter).await?;
        items.extend(page.items);
        match page.next {
            Some(next) => filter.page.cursor = Some(next),
            None => break,
        }
    }
    let page = ItemPage { items, next: None, prev: None };
    console.page(&page, &page.items)?;
    if console.is_for_people() {
        if page.items.is_empty() {
            console.message("no operations");
            return Ok(Exit::Done);
        }
        let run = surface.run(id).await?;
        console.lines(operations_table(console.look, console.now(), &run, &page.items))?;
    }
    Ok(Exit::Done)
}
