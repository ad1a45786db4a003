//! What a list says about a run in one line.

use outlast::Timestamp;
use outlast_api::{RunFailureJson, RunJson, WaitJson};

use crate::output::times;

/// What is worth knowing about a run in one line.
pub(crate) fn note(now: Timestamp, run: &RunJson) -> String {
    if run.ended_at.is_some() {
        return run.failure.as_ref().map(failure).unwrap_or_default();
    }
    let mut notes = Vec::new();
    if run.flags.iter().any(|flag| flag == "cancelling") {
        notes.push("cancelling".to_owned());
    }
    if run.marks.iter().any(|mark| mark == "paused") && run.status != "waiting" {
        notes.push(format!("paused while {}", run.status));
    }
    match &run.stuck {
        Some(stuck) => notes.push(format!("{}: {}", stuck.reason, stuck.message)),
        None if run.status == "pending" => {
            let begins = run.wake_at.filter(|at| at.0 > now);
            notes.extend(begins.map(|at| format!("begins {}", times::age(now, at.0))));
        }
        None => notes.extend(waits(now, run)),
    }
    if run.crashes > 0 {
        notes.push(format!("crashed its worker {} times", run.crashes));
    }
    notes.join("; ")
}

/// Why a run failed: the step, and the code or the message.
fn failure(failure: &RunFailureJson) -> String {
    let step = failure.step.as_ref().map(|step| format!("{step}: ")).unwrap_or_default();
    let code = failure.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
    format!("{step}{}{code}", failure.message)
}

fn waits(now: Timestamp, run: &RunJson) -> Option<String> {
    let first = run.waits.first()?;
    let more = match run.waits.len() {
        1 => String::new(),
        count => format!(" (+{})", count - 1),
    };
    Some(format!("{}{more}", wait(now, first)))
}

/// One thing that a run waits for.
fn wait(now: Timestamp, wait: &WaitJson) -> String {
    let name = wait.name.as_deref().unwrap_or("?");
    let until = wait.until.map(|until| times::age(now, until.0));
    let within = until.as_ref().map(|until| format!(", times out {until}")).unwrap_or_default();
    match wait.on.as_str() {
        "timer" => format!("sleeps, wakes {}", until.unwrap_or_else(|| "later".into())),
        "hook" => format!("hook {name}{within}"),
        "child" => format!("child {name}{within}"),
        "step" => format!("step {name} in queue {}", wait.queue.as_deref().unwrap_or("default")),
        "retry" => format!("{name} failed, next attempt {}", until.unwrap_or_else(|| "soon".into())),
        other => format!("{other} {name}{within}"),
    }
}
