//! `run output`, `run state`, `run export`.

use std::fs::OpenOptions;
use std::io::Write;

use outlast::IntoDuration;
use outlast_api::{OutputJson, PayloadJson};

use super::CommandContext;
use crate::args::{ExportArgs, OutputArgs};
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::json::pretty_raw;
use crate::output::symbols::status;
use crate::output::{Console, several_lines};
use crate::wait::wait_for_end;

/// Prints the output of a run.
pub(super) async fn output(context: &CommandContext, args: &OutputArgs) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    let id = find_run(&*surface, &args.run.run).await?;
    let output = match args.wait.as_deref() {
        None => surface.output(id, std::time::Duration::ZERO).await?,
        Some("") => wait_for_end(&*surface, id, None).await?,
        Some(limit) => {
            let limit =
                limit.into_duration().map_err(|error| CommandError::usage(format!("--wait: {error}")))?;
            wait_for_end(&*surface, id, Some(limit)).await?
        }
    };
    print_output(&context.console, &output)
}

/// Prints an output. The exit code says whether the run completed.
pub(super) fn print_output(console: &Console, output: &OutputJson) -> Result<Exit, CommandError> {
    console.document(output)?;
    if let Some(value) = &output.output {
        console.line(payload_text(value))?;
    }
    if output.status == "completed" {
        return Ok(Exit::Done);
    }
    if console.is_for_people() {
        let state = status(console.error_look, &output.status);
        match &output.failure {
            None if output.ended => console.message(format!("the run ended: {state}")),
            None => console.message(format!("the run has not ended: {state}; wait for it with `--wait`")),
            Some(failure) => {
                let step = failure.step.as_ref().map(|step| format!("step {step}: ")).unwrap_or_default();
                let code = failure.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
                let text = format!("{step}{}{code}", failure.message);
                console.error_line(format!("{state}  {}", several_lines(&text)));
                for cause in &failure.causes {
                    console.error_line(format!("  caused by: {}", several_lines(cause)));
                }
            }
        }
    }
    Ok(Exit::NotCompleted)
}

/// A payload for people: JSON with line breaks, or what it is.
pub(super) fn payload_text(payload: &PayloadJson) -> String {
    match (&payload.json, &payload.base64, &payload.preview) {
        (Some(json), _, _) => pretty_raw(json),
        (None, Some(base64), _) => format!("{} ({} bytes): {base64}", payload.codec, payload.bytes),
        (None, None, Some(preview)) => format!("{}…", several_lines(preview)),
        (None, None, None) => format!("{} of {} bytes", payload.codec, payload.bytes),
    }
}

/// Prints the state that a run has published.
pub(super) async fn state(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, text).await?;
    let state = surface.state(id).await?;
    console.document(&state)?;
    match &state.state {
        Some(value) => console.line(payload_text(value))?,
        None if console.is_for_people() => console.message("the run has published no state"),
        None => {}
    }
    Ok(Exit::Done)
}

/// Writes the history of a run to a file, or prints it.
pub(super) async fn export(context: &CommandContext, args: &ExportArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, &args.run.run).await?;
    let history = surface.export(id).await?;
    let Some(file) = &args.to else {
        console.raw_line(history.trim_end())?;
        return Ok(Exit::Done);
    };
    let shown = file.display();
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    let mut opened =
        opened.map_err(|error| CommandError::failure(format!("{shown} cannot be created: {error}")))?;
    opened.write_all(history.as_bytes())?;
    console.message(format!("wrote {shown}, {} bytes", history.len()));
    Ok(Exit::Done)
}
