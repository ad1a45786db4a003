//! Naming a run: id, key, the beginning or end of an id, `@last`, `@last:WORKFLOW`, `@failed`.

use outlast::{RunId, Status};
use outlast_api::{FieldProblem, PageRequest, Problem, ProblemCode, RunFilter, RunJson};

use crate::exit::CommandError;
use crate::surface::Surface;

/// The run that a person means.
pub(crate) async fn find_run(surface: &dyn Surface, text: &str) -> Result<RunId, CommandError> {
    if let Ok(run) = text.parse::<RunId>() {
        return Ok(run);
    }
    if let Some(name) = text.strip_prefix('@') {
        return newest(surface, name).await;
    }
    // As tables show it: `run_…7P2R6X`.
    let text = text.strip_prefix("run_…").or_else(|| text.strip_prefix("run_..")).unwrap_or(text);
    let candidates = surface.resolve(text).await?.candidates;
    // A key names the run that was started last with it, whatever else it looks like.
    let by_key = candidates.iter().find(|run| run.key.as_deref() == Some(text));
    match (by_key, candidates.as_slice()) {
        (Some(run), _) => Ok(run.id),
        (None, [run]) => Ok(run.id),
        (None, []) => Err(CommandError::not_found(format!("there is no run `{text}`"))),
        (None, several) => Err(ambiguous(text, several).into()),
    }
}

async fn newest(surface: &dyn Surface, name: &str) -> Result<RunId, CommandError> {
    let (statuses, workflow) = match name.split_once(':') {
        None if name == "last" => (Vec::new(), None),
        None if name == "failed" => (vec![Status::Failed], None),
        Some(("last", workflow)) => (Vec::new(), Some(workflow.to_owned())),
        Some(("failed", workflow)) => (vec![Status::Failed], Some(workflow.to_owned())),
        _ => {
            let detail =
                format!("`@{name}` names no run; write @last, @last:WORKFLOW, @failed or @failed:WORKFLOW");
            return Err(CommandError::usage(detail));
        }
    };
    let page = PageRequest { limit: Some(1), cursor: None };
    let mut filter = RunFilter { statuses, workflow, page, ..RunFilter::default() };
    loop {
        let found = surface.runs(&filter).await?;
        match (found.items.first(), found.next) {
            (Some(run), _) => return Ok(run.id),
            // A page may be empty although there are more.
            (None, Some(next)) => filter.page.cursor = Some(next),
            (None, None) => return Err(CommandError::not_found(format!("there is no run for `@{name}`"))),
        }
    }
}

fn ambiguous(text: &str, several: &[RunJson]) -> Problem {
    let detail = format!("`{text}` fits {} runs; give more of the id:", several.len());
    let describe = |run: &RunJson| {
        let key = run.key.as_ref().map(|key| format!(", key {key}")).unwrap_or_default();
        format!("{} v{}, {}{key}", run.workflow, run.version, run.status)
    };
    let errors =
        several.iter().map(|run| FieldProblem { pointer: run.id.to_string(), message: describe(run) });
    let candidates = several.iter().map(|run| run.id).collect();
    Problem::new(ProblemCode::Ambiguous, detail).with(|problem| {
        problem.errors = errors.collect();
        problem.candidates = candidates;
    })
}
