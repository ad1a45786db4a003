//! `send`: sends a payload to a hook.

use outlast_api::SendRequest;

use super::CommandContext;
use super::input::read_json;
use crate::args::SendArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::ids::short_id;
use crate::output::one_line;

/// Sends a payload to a hook of a run.
pub(super) async fn send(context: &CommandContext, args: &SendArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let payload = args.payload.as_ref().map(|payload| read_json("payload", payload)).transpose()?;
    let surface = context.surface().await?;
    let id = find_run(&*surface, &args.run.run).await?;
    let sent = surface.send(id, &args.hook, SendRequest { payload, key: args.key.clone() }).await?;
    console.document(&sent)?;
    if console.is_for_people() {
        let is_awaited =
            sent.run.waits.iter().any(|wait| wait.on == "hook" && wait.name.as_deref() == Some(&args.hook));
        let kept = if is_awaited { "" } else { "; it is kept until the run asks for it" };
        let (hook, run) = (one_line(&args.hook), short_id(console.error_look, id));
        console.message(format!("{} to hook {hook} of {run}{kept}", one_line(&sent.delivery)));
    }
    Ok(Exit::Done)
}
