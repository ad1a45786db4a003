//! `doctor`: finds problems of the configuration, the world and its workers.

mod checks;
mod place;

use serde::Serialize;

use super::CommandContext;
use crate::config::{Target, without_password};
use crate::exit::{CommandError, Exit};
use crate::output::{Console, Tone, one_line};
use crate::surface::Surface;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    Good,
    Warning,
    Bad,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DoctorFinding {
    severity: Severity,
    check: &'static str,
    message: String,
}

impl DoctorFinding {
    fn good(check: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Good, check, message: message.into() }
    }

    fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, check, message: message.into() }
    }

    fn bad(check: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Bad, check, message: message.into() }
    }
}

/// Checks everything, and exits with 1 if something is wrong.
pub(super) async fn doctor(context: &CommandContext) -> Result<Exit, CommandError> {
    let mut findings = Vec::new();
    if let Some(surface) = connection(context, &mut findings).await {
        answers(context, &*surface, &mut findings).await;
    }
    print(&context.console, &findings)?;
    let is_bad = findings.iter().any(|finding| finding.severity == Severity::Bad);
    Ok(if is_bad { Exit::Failure } else { Exit::Done })
}

/// Checks the configuration and the connection.
async fn connection(context: &CommandContext, findings: &mut Vec<DoctorFinding>) -> Option<Box<dyn Surface>> {
    match context.settings.target() {
        Err(error) => {
            findings.push(DoctorFinding::bad("configuration", error.to_string()));
            return None;
        }
        Ok(None) => {
            let advice =
                "no world is configured; set OUTLAST_WORLD, or write `world = \"…\"` into outlast.toml";
            findings.push(DoctorFinding::bad("configuration", advice));
            return None;
        }
        Ok(Some(Target::World(world))) => {
            let text = format!("world {} ({})", without_password(&world.value), world.origin);
            findings.push(DoctorFinding::good("configuration", text));
            findings.extend(checks::of_file(&world.value));
            findings.extend(place::of_folder(&world.value));
        }
        Ok(Some(Target::Server(server))) => {
            let text = format!("server {} ({})", server.value, server.origin);
            findings.push(DoctorFinding::good("configuration", text));
            let key = context.settings.access_key().ok().flatten();
            findings.extend(place::of_server(&server.value, key.is_some()));
            findings.extend(key.map(|key| place::of_key(&key.value)));
            let file = context.settings.first(|values| values.access_key_file.clone());
            findings.extend(file.and_then(|file| place::of_key_file(&file.value)));
        }
    }
    match context.surface().await {
        Ok(surface) => Some(surface),
        Err(error) => {
            findings.push(DoctorFinding::bad("connection", error.to_string()));
            None
        }
    }
}

/// Checks what the world or the server answers.
async fn answers(context: &CommandContext, surface: &dyn Surface, findings: &mut Vec<DoctorFinding>) {
    let begin = context.console.now();
    let world = match surface.world().await {
        Ok(world) => world,
        Err(problem) => return findings.push(DoctorFinding::bad("connection", problem.detail.clone())),
    };
    let end = context.console.now();
    findings.push(checks::of_latency(end.since(begin)));
    findings.push(checks::of_clock(begin, end, world.now.0));
    findings.push(checks::of_durability(&world));
    let (counts, workers) = match (surface.counts().await, surface.workers().await) {
        (Ok(counts), Ok(workers)) => (counts, workers),
        (Err(problem), _) | (_, Err(problem)) => {
            return findings.push(DoctorFinding::bad("connection", problem.detail.clone()));
        }
    };
    findings.extend(checks::of_workers(context.console.now(), &workers.items, &counts));
    findings.extend(checks::of_runs(&counts));
    match checks::unserved(surface, &workers.items).await {
        Ok(found) => findings.extend(found),
        Err(problem) => findings.push(DoctorFinding::bad("connection", problem.detail.clone())),
    }
}

fn print(console: &Console, findings: &[DoctorFinding]) -> Result<(), CommandError> {
    console.page(&serde_json::json!({ "items": findings }), findings)?;
    let look = console.look;
    for finding in findings {
        let (unicode, ascii, tone) = match finding.severity {
            Severity::Good => ("✓", "+", Tone::Good),
            Severity::Warning => ("▲", "!", Tone::Warning),
            Severity::Bad => ("✕", "x", Tone::Bad),
        };
        let symbol = look.paint(tone, look.either(unicode, ascii));
        let check = look.paint(Tone::Dim, format!("{:<14}", finding.check));
        console
            .line(format!("{symbol} {check} {}", console.with_program_name(&one_line(&finding.message))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
