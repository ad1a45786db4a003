//! `run cancel`, `terminate`, `pause`, `resume`, `wake`, `quarantine`, `release`, `delete`.

use outlast::RunId;
use outlast_api::{
    BulkAction, BulkRequest, CancelRequest, ControlledJson, DidWhat, PauseRequest, TerminateRequest,
    WakeRequest,
};

use super::CommandContext;
use super::bulk::BulkSelection;
use crate::args::{ControlArgs, WakeArgs};
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::Console;
use crate::output::ids::short_id;
use crate::output::symbols::run_status;
use crate::surface::{Control, Surface};

/// An action on one or many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlVerb {
    Cancel,
    Terminate { compensating: bool },
    Pause,
    Resume,
    Delete,
}

impl ControlVerb {
    const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Terminate { .. } => "terminate",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Delete => "delete",
        }
    }

    /// The action on many runs.
    fn bulk(self) -> BulkRequest {
        let action = match self {
            Self::Cancel => BulkAction::Cancel,
            Self::Terminate { .. } => BulkAction::Terminate,
            Self::Pause => BulkAction::Pause,
            Self::Resume => BulkAction::Resume,
            Self::Delete => BulkAction::Delete,
        };
        BulkRequest {
            compensating: self == Self::Terminate { compensating: true },
            ..BulkRequest::new(action)
        }
    }

    /// The call on one run; `None` for a deletion, which answers nothing.
    fn control(self, reason: Option<String>) -> Option<Control> {
        match self {
            Self::Cancel => Some(Control::Cancel(CancelRequest { reason })),
            Self::Terminate { compensating } => {
                Some(Control::Terminate(TerminateRequest { reason, compensating }))
            }
            Self::Pause => Some(Control::Pause(PauseRequest { reason })),
            Self::Resume => Some(Control::Resume),
            Self::Delete => None,
        }
    }
}

/// Does an action to the named runs, or to those that the filters select.
pub(super) async fn control(
    context: &CommandContext,
    verb: ControlVerb,
    args: &ControlArgs,
) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    if args.runs.is_empty() {
        return many(context, &*surface, verb, args).await;
    }
    let mut runs = Vec::new();
    for text in &args.runs {
        runs.push(find_run(&*surface, text).await?);
    }
    for run in runs {
        if args.dry_run {
            let found = surface.run(run).await?;
            context.console.document(&found)?;
            context.console.line(format!(
                "would {} {run}  {}",
                verb.name(),
                run_status(context.console.look, &found)
            ))?;
        } else {
            one(context, &*surface, verb, run, args.reason.clone()).await?;
        }
    }
    Ok(Exit::Done)
}

async fn one(
    context: &CommandContext,
    surface: &dyn Surface,
    verb: ControlVerb,
    run: RunId,
    reason: Option<String>,
) -> Result<(), CommandError> {
    match verb.control(reason) {
        Some(control) => {
            print_controlled(&context.console, verb.name(), &surface.control(run, &control).await?)
        }
        None => {
            surface.delete(run).await?;
            context.console.message(format!("deleted {run}"));
            Ok(())
        }
    }
}

pub(super) fn print_controlled(
    console: &Console,
    verb: &str,
    controlled: &ControlledJson,
) -> Result<(), CommandError> {
    console.document(controlled)?;
    let what = match controlled.did {
        DidWhat::Requested => format!("{verb}: requested"),
        DidWhat::Already => format!("{verb}: already"),
        DidWhat::Nothing => format!("{verb}: nothing to do"),
    };
    console.line(format!(
        "{}  {what}  {}",
        short_id(console.look, controlled.run.id),
        run_status(console.look, &controlled.run)
    ))
}

/// Does an action to all runs that the filters select.
async fn many(
    context: &CommandContext,
    surface: &dyn Surface,
    verb: ControlVerb,
    args: &ControlArgs,
) -> Result<Exit, CommandError> {
    let selection = BulkSelection::new(context, surface, verb.bulk(), verb.name(), args).await?;
    match selection {
        Some(selection) => selection.execute(context, surface, verb.name()).await,
        None => Ok(Exit::Done),
    }
}

/// Ends sleeps of a run.
pub(super) async fn wake(context: &CommandContext, args: &WakeArgs) -> Result<Exit, CommandError> {
    let control = Control::Wake(WakeRequest { op: args.op });
    single(context, &args.run.run, "wake", &control).await
}

/// Protects a run.
pub(super) async fn quarantine(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    single(context, text, "quarantine", &Control::Quarantine).await
}

/// Ends the protection of a run.
pub(super) async fn release(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    single(context, text, "release", &Control::Release).await
}

async fn single(
    context: &CommandContext,
    text: &str,
    verb: &str,
    control: &Control,
) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    let run = find_run(&*surface, text).await?;
    print_controlled(&context.console, verb, &surface.control(run, control).await?)?;
    Ok(Exit::Done)
}
