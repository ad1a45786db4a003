//! `show`: a run with its operations, why it is where it is, and what to do next.

mod next;

use outlast::Timestamp;
use outlast::core::queue::BUILT_IN_PREFIX;
use outlast_api::{ExplanationJson, OperationFilter, OperationJson, PageRequest, PayloadAmount, RunJson};

use super::CommandContext;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::bars::Scale;
use crate::output::ids::{short_id, typed_id};
use crate::output::symbols::{run_status, status};
use crate::output::table::width;
use crate::output::{Align, Console, Look, Table, Tone, one_line, times};

/// The number of operations that are shown.
const OPERATIONS_MAX: usize = 100;

/// Kinds of operations that are bookkeeping; `run steps --all` shows them.
const BOOKKEEPING: [&str; 3] = ["compensation", "keep", "tags"];

/// The number of columns of bars.
const BAR_COLUMNS: usize = 28;

/// Shows a run.
pub(super) async fn show(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, text).await?;
    let run = surface.run(id).await?;
    console.document(&run)?;
    if !console.is_for_people() {
        return Ok(Exit::Done);
    }
    let filter = OperationFilter {
        payloads: Some(PayloadAmount::None),
        page: PageRequest { limit: Some(OPERATIONS_MAX), cursor: None },
        ..OperationFilter::default()
    };
    let mut page = surface.operations(id, &filter).await?;
    page.items.retain(|operation| !BOOKKEEPING.contains(&operation.kind.as_str()));
    let explanation = surface.explain(id).await?;
    let view = RunPage {
        run: &run,
        operations: &page.items,
        has_more: page.next.is_some(),
        explanation: &explanation,
    };
    console.lines(view.lines(console, &context.name))?;
    Ok(Exit::Done)
}

/// Everything that is shown of a run.
pub(super) struct RunPage<'a> {
    pub(super) run: &'a RunJson,
    pub(super) operations: &'a [OperationJson],
    pub(super) has_more: bool,
    pub(super) explanation: &'a ExplanationJson,
}

impl RunPage<'_> {
    /// The lines of the page.
    pub(super) fn lines(&self, console: &Console, program: &str) -> Vec<String> {
        let (look, now) = (console.look, console.now());
        let mut lines = self.heading(look, now);
        if !self.operations.is_empty() {
            lines.push(String::new());
            lines.extend(operations_table(look, now, self.run, self.operations));
        }
        if self.has_more {
            let text = format!(
                "the first {} operations; all: {program} run steps --all {}",
                self.operations.len(),
                self.run.id
            );
            lines.push(look.paint(Tone::Dim, text));
        }
        lines.push(String::new());
        lines.extend(paragraph(look, "why", &reason(console, program, self.explanation)));
        let next = next::suggestions(look, program, self.run);
        let room = next.iter().map(|(command, _)| width(command)).max().unwrap_or(0);
        for (index, (command, why)) in next.iter().enumerate() {
            let label = if index == 0 { "next" } else { "" };
            let label = look.paint(Tone::Dim, format!("{label:<6}"));
            lines.push(format!("{label}{command:<room$}   {}", look.paint(Tone::Dim, why)));
        }
        lines
    }

    fn heading(&self, look: Look, now: Timestamp) -> Vec<String> {
        let run = self.run;
        let title = format!("{}  {} v{}", run.id, one_line(&run.workflow), run.version);
        let mut lines = vec![format!("{}  {}", look.paint(Tone::Strong, title), run_status(look, run))];
        let mut facts = Vec::new();
        facts.extend(run.key.as_ref().map(|key| format!("key {}", one_line(key))));
        facts.push(format!("queue {}", one_line(&run.queue)));
        // The tags of the engine are shown in other words.
        let own = run.tags.iter().filter(|(name, _)| !name.starts_with(BUILT_IN_PREFIX));
        let tags: Vec<_> = own.map(|(name, value)| format!("{name}={value}")).collect();
        if !tags.is_empty() {
            facts.push(format!("tags {}", one_line(&tags.join(" "))));
        }
        facts.push(format!("started {}", times::ago(now, run.created_at.0)));
        if let Some(ended) = run.ended_at {
            facts.push(format!("took {}", times::duration(ended.0.since(run.created_at.0))));
        }
        facts.extend(
            run.deadline
                .filter(|_| run.ended_at.is_none())
                .map(|at| format!("deadline {}", times::ago(now, at.0))),
        );
        facts.extend(run.parent.map(|parent| format!("child of {}", short_id(look, parent.run))));
        facts.extend(run.forked_from.map(|from| format!("forked from {}", short_id(look, from))));
        facts.extend(run.restarted_from.map(|from| format!("restarted from {}", short_id(look, from))));
        if run.generation > 1 {
            facts.push(format!("generation {}", run.generation));
        }
        let unread = run.inbox.sent.saturating_sub(run.inbox.read);
        if unread > 0 {
            facts.push(format!("{unread} unread messages"));
        }
        lines.push(look.paint(Tone::Dim, facts.join(look.either(" · ", " | "))));
        lines
    }
}

/// The operations of a run as a table with bars.
pub(super) fn operations_table(
    look: Look,
    now: Timestamp,
    run: &RunJson,
    operations: &[OperationJson],
) -> Vec<String> {
    let mut table = Table::new([
        ("#", Align::Right),
        ("OPERATION", Align::Left),
        ("STATUS", Align::Left),
        ("TOOK", Align::Right),
        ("ATTEMPTS", Align::Right),
        ("", Align::Left),
    ]);
    // The copied operations of a fork are older than the run.
    let copied =
        operations.iter().filter(|_| run.forked_from.is_some()).map(|operation| operation.started_at.0);
    let begin = copied.chain([run.created_at.0]).min().unwrap_or(run.created_at.0);
    let scale = Scale::new(begin, run.ended_at.map_or(now, |at| at.0), BAR_COLUMNS);
    for operation in operations {
        let took = operation.ended_at.map_or(now, |at| at.0).since(operation.started_at.0);
        let is_retried = operation.retry_at.is_some() && operation.ended_at.is_none();
        // The attempt that is due has not begun.
        let made = operation.attempt_count.saturating_sub(u32::from(is_retried));
        let attempts = if operation.kind == "step" { made.to_string() } else { String::new() };
        let state = if is_retried { "retry" } else { &operation.status };
        table.row([
            operation.op.to_string(),
            format!("{} {}", one_line(&operation.kind), one_line(&operation.name)),
            status(look, state),
            times::duration(took),
            attempts,
            scale.bar(look, operation),
        ]);
    }
    table.without_empty_columns().lines(look)
}

/// The reason for the state of a run, with commands as remedies, and times as other commands show them.
pub(super) fn reason(console: &Console, program: &str, explanation: &ExplanationJson) -> String {
    let id = typed_id(console.look, explanation.run);
    let text = explanation.sentence_with(|action| format!("`{program} run {action} {id}`"));
    times::in_sentence(&console.zone, &text)
}

/// A label and a text beside it. The first line of the text is wrapped; further ones, such as the two columns of a
/// divergence, stay as they are.
pub(super) fn paragraph(look: Look, label: &str, text: &str) -> Vec<String> {
    const INDENT: usize = 6;
    let room = if look.is_terminal { look.width.saturating_sub(INDENT).max(20) } else { usize::MAX };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let mut rows = wrapped(&one_line(first), room);
    rows.extend(rest.lines().map(|line| one_line(line).into_owned()));
    let label =
        |index: usize| look.paint(Tone::Dim, format!("{:<INDENT$}", if index == 0 { label } else { "" }));
    let labelled = |(index, row): (usize, &String)| match row.is_empty() {
        true => String::new(),
        false => format!("{}{row}", label(index)),
    };
    rows.iter().enumerate().map(labelled).collect()
}

/// The words of a text in lines of this width. A longer word has a line of its own.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match rows.last_mut() {
            Some(row) if width(row) + 1 + width(word) <= room => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests;
