//! `send` and `ask`: a payload for a hook or a token, and its reply.

use outlast::IntoDuration;
use outlast_api::{SendRequest, SentJson};

use super::CommandContext;
use super::input::{read_json, read_text};
use crate::args::{AskArgs, PayloadArgs, SendArgs};
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::ids::short_id;
use crate::output::json::pretty_raw;
use crate::output::one_line;

/// Where a payload goes.
enum SendTarget {
    Hook(String),
    Token,
}

/// Sends a payload.
pub(super) async fn send(context: &CommandContext, args: &SendArgs) -> Result<Exit, CommandError> {
    let (target, sent) = post(context, &args.to, None).await?;
    let console = &context.console;
    console.document(&sent)?;
    if console.is_for_people() {
        let run = short_id(console.error_look, sent.run.id);
        let delivery = one_line(&sent.delivery);
        match target {
            SendTarget::Hook(hook) => {
                let waits = &sent.run.waits;
                let is_awaited =
                    waits.iter().any(|wait| wait.on == "hook" && wait.name.as_deref() == Some(&hook));
                let is_kept = !is_awaited && sent.delivery == "delivered";
                let kept = if is_kept { "; it is kept until the run asks for it" } else { "" };
                console.message(format!("{delivery} to hook {} of {run}{kept}", one_line(&hook)));
            }
            SendTarget::Token if sent.delivery == "closed" => {
                console.message(format!("{run} has closed the token or has ended; nothing was sent"));
            }
            SendTarget::Token => console.message(format!("{delivery} to {run}")),
        }
    }
    Ok(if sent.delivery == "closed" { Exit::Conflict } else { Exit::Done })
}

/// Sends a payload, and prints the reply.
pub(super) async fn ask(context: &CommandContext, args: &AskArgs) -> Result<Exit, CommandError> {
    // Checked here, so that the message names the argument.
    args.within
        .as_str()
        .into_duration()
        .map_err(|error| CommandError::usage(format!("--within: {error}")))?;
    let (_, sent) = post(context, &args.to, Some(args.within.clone())).await?;
    let console = &context.console;
    console.document(&sent)?;
    let why = sent.why.as_deref().unwrap_or("the run did not reply");
    let run = short_id(console.error_look, sent.run.id);
    match (sent.delivery.as_str(), sent.answer.as_deref(), &sent.reply) {
        ("closed", ..) => {
            let detail = format!("{run} has closed the token or has ended; nothing was sent");
            Err(CommandError::conflict(detail))
        }
        ("rejected", ..) => Err(CommandError::usage(one_line(why).into_owned())),
        (_, Some("timeout"), _) => {
            let detail = format!(
                "{run} has not replied within {}; with the same --key the reply can be read later",
                args.within
            );
            Err(CommandError::timed_out(detail))
        }
        (_, _, Some(reply)) => {
            if console.is_for_people() {
                console.line(pretty_raw(reply))?;
            }
            Ok(Exit::Done)
        }
        _ => Err(CommandError::conflict(one_line(why).into_owned())),
    }
}

async fn post(
    context: &CommandContext,
    args: &PayloadArgs,
    reply_within: Option<String>,
) -> Result<(SendTarget, SentJson), CommandError> {
    let (place, payload) = match (&args.token, args.words.as_slice()) {
        (Some(_), []) => (None, None),
        (Some(_), [payload]) => (None, Some(payload)),
        (Some(_), _) => {
            return Err(CommandError::usage("with `--token` there is only a payload: no run and no hook"));
        }
        (None, [run, hook]) => (Some((run, hook)), None),
        (None, [run, hook, payload]) => (Some((run, hook)), Some(payload)),
        (None, _) => return Err(CommandError::usage("name a run and its hook, or give `--token`")),
    };
    let payload = payload.map(|payload| read_json("payload", payload)).transpose()?;
    let token = args.token.as_deref().map(read_text).transpose()?;
    let request = SendRequest { payload, key: args.key.clone(), reply_within };
    let surface = context.surface().await?;
    match (place, token) {
        (Some((run, hook)), _) => {
            let run = find_run(&*surface, run).await?;
            let sent = surface.send(run, hook, request).await?;
            Ok((SendTarget::Hook(hook.clone()), sent))
        }
        (None, token) => {
            let token = token.unwrap_or_default().trim().to_owned();
            let sent = surface.send_to_token(&token, request).await?;
            Ok((SendTarget::Token, sent))
        }
    }
}
