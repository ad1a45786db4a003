//! The commands that may help next.

use outlast_api::RunJson;

use crate::output::Look;
use crate::output::ids::typed_id;

/// Commands that fit the state of a run, and what they do.
pub(super) fn suggestions(look: Look, program: &str, run: &RunJson) -> Vec<(String, &'static str)> {
    let id = typed_id(look, run.id);
    let has = |mark: &str| run.marks.iter().any(|found| found == mark);
    let mut next = Vec::new();
    if run.ended_at.is_some() {
        match run.status.as_str() {
            "completed" => next.push((format!("{program} run output {id}"), "its output")),
            _ => {
                next.push((format!("{program} run output {id}"), "its failure"));
                // What was undone cannot be continued.
                if !has("compensated") {
                    next.push((
                        format!("{program} run retry {id} --dry-run"),
                        "see what a retry would run again",
                    ));
                }
                next.push((format!("{program} run restart {id}"), "start it again with the same input"));
            }
        }
        return next;
    }
    if has("paused") {
        next.push((format!("{program} run resume {id}"), "let it continue"));
    } else if run.status == "stuck" {
        next.push((format!("{program} run resume {id}"), "let the failed build try again"));
    }
    for wait in run.waits.iter().take(2) {
        match (wait.on.as_str(), &wait.name) {
            ("hook", Some(name)) => {
                next.push((format!("{program} send {id} {} JSON", shell_word(name)), "answer the hook"))
            }
            ("timer", _) => {
                next.push((format!("{program} run wake {id} --op {}", wait.op), "end the sleep now"))
            }
            ("retry", _) => {
                next.push((format!("{program} run wake {id} --op {}", wait.op), "attempt it now"))
            }
            ("child" | "step", _) => {
                next.extend(
                    wait.run.map(|child| {
                        (format!("{program} show {}", typed_id(look, child)), "what it waits for")
                    }),
                );
            }
            _ => {}
        }
    }
    if run.status == "pending" {
        next.push((format!("{program} worker list"), "who could execute it"));
    }
    if next.is_empty() {
        next.push((format!("{program} watch {id}"), "follow it"));
    }
    next
}

/// A name as a word of a shell.
fn shell_word(name: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ':');
    if name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("'{}'", crate::output::one_line(&name.replace('\'', "'\\''")))
}
