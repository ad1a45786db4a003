//! `explain`: why a run is in its current state.

use super::CommandContext;
use super::show::{paragraph, reason};
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::symbols::status;
use crate::output::{Tone, one_line};

/// Explains a run.
pub(super) async fn explain(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, text).await?;
    let explanation = surface.explain(id).await?;
    console.document(&explanation)?;
    if console.is_for_people() {
        let run = surface.run(id).await?;
        let look = console.look;
        let title = format!("{id}  {} v{}", one_line(&run.workflow), run.version);
        console.line(format!(
            "{}  {}",
            look.paint(Tone::Strong, title),
            status(look, &explanation.status)
        ))?;
        console.lines(paragraph(look, "why", &reason(console, &context.name, &explanation)))?;
    }
    Ok(Exit::Done)
}
