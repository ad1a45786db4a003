//! `workflow list` and `workflow show`.

use std::time::Duration;

use outlast_api::{EndedRunsJson, OpenRunsJson, WorkflowDefinitionJson, WorkflowJson};

use super::CommandContext;
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, Tone, one_line, times};

/// Lists the workflows that workers have code for, or had.
pub(super) async fn list(context: &CommandContext) -> Result<Exit, CommandError> {
    let console = &context.console;
    let workflows = context.surface().await?.workflows().await?;
    console.page(&workflows, &workflows.items)?;
    if console.is_for_people() && workflows.items.is_empty() {
        console.message("no worker has joined, so no workflow is known");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("WORKFLOW", Align::Left),
        ("VERSIONS", Align::Left),
        ("WORKERS", Align::Right),
        ("SEEN", Align::Right),
        ("QUEUES", Align::Left),
    ]);
    let now = console.now();
    for workflow in &workflows.items {
        table.row([
            one_line(&workflow.name).into_owned(),
            versions(workflow),
            workflow.workers.to_string(),
            workflow.seen_at.map_or_else(|| "-".into(), |at| times::age(now, at.0)),
            one_line(&workflow.queues.join(",")).into_owned(),
        ]);
    }
    console.lines(table.lines(console.look))?;
    Ok(Exit::Done)
}

/// Shows a workflow: versions, builds, open runs, what became of the others.
pub(super) async fn show(context: &CommandContext, name: &str) -> Result<Exit, CommandError> {
    let (console, look) = (&context.console, context.console.look);
    let detail = context.surface().await?.workflow(name).await?;
    console.document(&detail)?;
    let fact = |label: &str, text: String| {
        console.line(format!("{}{text}", look.paint(Tone::Dim, format!("{label:<10}"))))
    };
    let workflow = &detail.workflow;
    console.line(look.paint(Tone::Strong, one_line(&workflow.name)))?;
    fact("versions", versions(workflow))?;
    fact("workers", workflow.workers.to_string())?;
    fact("queues", one_line(&workflow.queues.join(", ")).into_owned())?;
    for definition in &detail.definitions {
        fact("build", build(definition, console.now()))?;
    }
    fact("open", open(&detail.open))?;
    fact("ended", ended(&detail.ended))?;
    Ok(Exit::Done)
}

fn versions(workflow: &WorkflowJson) -> String {
    let versions: Vec<_> = workflow.versions.iter().map(|version| format!("v{version}")).collect();
    versions.join(" ")
}

fn build(definition: &WorkflowDefinitionJson, now: outlast::Timestamp) -> String {
    let schema = if definition.input.is_some() { ", with a schema" } else { "" };
    let (build, seen) = (one_line(&definition.build), times::ago(now, definition.seen_at.0));
    format!("v{}  {build}  joined {seen}{schema}", definition.version)
}

fn open(open: &OpenRunsJson) -> String {
    let more = if open.more { " and more" } else { "" };
    let versions: Vec<_> =
        open.by_version.iter().map(|of| format!("{} of v{}", of.runs, of.version)).collect();
    if versions.is_empty() { "none".into() } else { format!("{}{more}", versions.join(", ")) }
}

fn ended(ended: &EndedRunsJson) -> String {
    let time = |ms: Option<u64>| ms.map(|ms| times::duration(Duration::from_millis(ms))).unwrap_or_default();
    let Some(ratio) = ended.success_ratio else { return "none".into() };
    let (p50, p95) = (time(ended.p50_ms), time(ended.p95_ms));
    format!("newest {}: {:.1} % completed, p50 {p50}, p95 {p95}", ended.runs, ratio * 100.0)
}
